"""Keep-alives for every open stream from one task.

A ring of slots, one a second; a connection sits in the slot in which it was opened, so keep-alives spread as
the openings did, and an idle stream costs no timer of its own.
"""

import asyncio
from typing import Any

from broker.streams.connection import Connection


class Wheel:
    """Ticks once a second over the connections of one slot. Times in seconds."""

    def __init__(self, interval: float, write_deadline: float) -> None:
        self._slots: list[dict[Connection[Any], None]] = [{} for _ in range(max(1, round(interval)))]
        self._tick = min(1.0, interval)
        self._write_deadline = write_deadline
        self._now = 0
        self._slot_of: dict[Connection[Any], int] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._slot_of)

    def add(self, connection: Connection[Any]) -> None:
        """Keep `connection` alive until it is discarded."""
        # Just behind the hand: its first keep-alive is a whole interval away.
        slot = (self._now - 1) % len(self._slots)
        self._slots[slot][connection] = None
        self._slot_of[connection] = slot
        self._is_empty.clear()

    def discard(self, connection: Connection[Any]) -> None:
        """Undo `add`."""
        slot = self._slot_of.pop(connection, None)
        if slot is not None:
            self._slots[slot].pop(connection, None)
        if not self._slot_of:
            self._is_empty.set()

    def connections(self) -> list[Connection[Any]]:
        """Return every connection that is on the wheel."""
        return list(self._slot_of)

    async def emptied(self) -> None:
        """Return once no connection is on the wheel."""
        await self._is_empty.wait()

    async def run(self) -> None:
        """Turn for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._tick
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += self._tick
            slot = self._slots[self._now]
            self._now = (self._now + 1) % len(self._slots)
            for connection in list(slot):
                connection.keep_alive(loop.time(), self._write_deadline)
