"""The broker with one of its mechanisms switched off: the negative control of the tests of repair.

`WITHOUT=resync python -m tests.support.without serve` is `broker serve`, but one thing is not done. A test of
a repair that passes all the same proves nothing (tests/chaos/test_controls.py).
"""

# pyright: reportPrivateUsage=false
# What a control removes is nobody's interface.

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from broker.__main__ import main
from broker.core.log import Cursor, Discontinuity, Entry, Head
from broker.tailing.heart import Heart
from broker.tailing.resync import Resync
from broker.tailing.tail import Tail


def _resync() -> None:
    """Compare nothing, whatever broke."""

    async def compare(self: Resync, tail: Tail, why: Discontinuity) -> None:
        del self, tail, why
        await asyncio.sleep(0)

    Resync._compare = compare


def _heartbeat() -> None:
    """Say that the replica lives and ask for the heads, and draw no conclusion from them."""

    async def beat(self: Heart, tail: Tail) -> None:
        said = await self._store.beat(tail.number, self._replica if tail.number == 0 else None)
        self.last_beat = self._answered[tail] = asyncio.get_running_loop().time()
        self._on_beat(tail, said)

    Heart._beat = beat


def _sequence() -> None:
    """Take in whatever entry comes next, as if none were missing before it."""
    whole = Cursor.follow

    def follow(self: Cursor, entry: Entry) -> Discontinuity | None:
        if entry.epoch == self.epoch and entry.n > self.n:
            self.n, self.mark = entry.n - 1, entry.previous
        return whole(self, entry)

    Cursor.follow = follow


def _fork() -> None:
    """Compare no epoch and no mark, neither of entries nor of heads: numbers only."""

    def follow(self: Cursor, entry: Entry) -> Discontinuity | None:
        if self.is_anchored and entry.n != self.n + 1:
            return Discontinuity.GAP
        self.epoch, self.n, self.mark, self.is_anchored = entry.epoch, entry.n, entry.mark, True
        self.tick += 1
        return None

    def check(self: Cursor, head: Head, asked_at: int) -> Discontinuity | None:
        del self, head, asked_at
        return None

    Cursor.follow, Cursor.check = follow, check


def _deafness() -> None:
    """Never take the reader for deaf."""

    async def listen_again(self: Heart, tail: Tail, beat: Any, now: float) -> None:
        del self, tail, beat, now
        await asyncio.sleep(0)

    Heart._listen_again_if_deaf = listen_again


MECHANISMS: dict[str, Callable[[], None]] = {
    "resync": _resync,
    "heartbeat": _heartbeat,
    "sequence": _sequence,
    "fork": _fork,
    "deafness": _deafness,
}


if __name__ == "__main__":
    MECHANISMS[os.environ["WITHOUT"]]()
    sys.exit(main())
