"""The logs as a replica uses them: tail, head, heartbeat, and the revisions that a resync compares.

Returns core values, raises our errors; decides nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.core.access import may_read
from broker.core.errors import StoreUnavailable
from broker.core.identity import Principal, ReplicaId, ResourceKey
from broker.core.log import NO_HEAD, Head
from broker.core.revision import Stamp
from broker.store.client import READ_BLOCK_MS, READER_TIMEOUT, Connect, adopt, disconnect
from broker.store.errors import is_split, translated
from broker.store.line import Line, RawEntry
from broker.store.scripts import Call, fresh, run, script

if TYPE_CHECKING:
    from redis.asyncio import Redis

REVISIONS_PER_CALL = 100
LAPSE_MS = 5000
"""A replica whose heartbeat is older is gone."""

NOWHERE = Stamp("", 0, "")
"""As revisions.lua answers of what never was."""


class Standing(NamedTuple):
    """Where a key stands: its last change, and what is required of whoever may know (core/access.py)."""

    stamp: Stamp
    rule: frozenset[str]

    def seen_by(self, principal: Principal) -> Stamp:
        """Return where it stands for `principal`: what is forbidden was never published (promise 8)."""
        return self.stamp if may_read(principal, self.rule) else NOWHERE


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat brought: the head, the server's clock in ms, and the live replicas."""

    head: Head
    server_ms: int
    replicas: frozenset[ReplicaId]


class LogStore:
    """One installation's logs. `readers` are the clients that wait for entries, by the log's number."""

    def __init__(self, how: Connect, commands: "Redis", readers: "Mapping[int, Redis]") -> None:
        self._how = how
        self._keys = how.keys
        self._commands = commands
        self._readers = readers
        self._lines = {
            number: Line(
                reader,
                how.keys.log(number),
                block_ms=READ_BLOCK_MS,
                timeout=READER_TIMEOUT,
                is_held=not how.keys.is_sharded,
            )
            for number, reader in readers.items()
        }

    async def tail(self, number: int, after: bytes, count: int) -> list[RawEntry]:
        """Return up to `count` entries after the id `after`, waiting up to a second for the first.

        Raises:
            StoreUnavailable, WrongStore: from store/errors.py.
        """
        with translated():
            return await self._lines[number].read(after, count)

    async def head(self, number: int) -> tuple[Head, int]:
        """Return the head of a log and the n that its stream generated last (0 without a stream).

        A head that is gone (FLUSHALL, a lost key) is begun anew first, with a new epoch.
        """
        names = (self._how.keys.log(number), self._how.keys.head(number))
        call: Call[tuple[Head, int]] = Call(script("head"), names, (), _head_and_last)
        head, last = await run(self._commands, call)
        if head is NO_HEAD:
            with translated():
                await adopt(self._commands, self._how, number)
            head, last = await run(self._commands, call)
        return head, last

    async def leave_epoch(self, number: int, epoch: str) -> None:
        """Begin a new epoch, unless another one than `epoch` has begun already: the log broke within it.

        Raises:
            StoreUnavailable, WrongStore: from store/errors.py.
        """
        names = (self._how.keys.log(number), self._how.keys.head(number))
        call: Call[bool] = Call(script("fork"), names, (*fresh(), epoch), bool)
        await run(self._commands, call)

    async def beat(self, number: int, replica: ReplicaId | None) -> Beat:
        """Renew `replica`'s place (None: only look) and return what a heartbeat tells.

        Who is there is kept beside the first log: of any other the answer names no replica.
        """
        names = [self._keys.head(number)]
        if number == 0:
            names.append(self._keys.replicas())
        call: Call[Beat] = Call(script("beat"), names, (replica or "", LAPSE_MS), _beat)
        return await run(self._commands, call)

    async def stamps(self, keys: Sequence[ResourceKey]) -> list[Stamp]:
        """Return when each of these lists last changed: `standings` of what has no rule.

        Raises:
            StoreUnavailable, WrongStore: from store/errors.py.
        """
        return [standing.stamp for standing in await self.standings(keys)]

    async def standings(self, keys: Sequence[ResourceKey]) -> list[Standing]:
        """Return when each of these keys last changed, and who may know. Of one shard only, on a cluster.

        Raises:
            StoreUnavailable, WrongStore: from store/errors.py.
        """
        found: list[Standing] = []
        for start in range(0, len(keys), REVISIONS_PER_CALL):
            names = [self._keys.resource(key) for key in keys[start : start + REVISIONS_PER_CALL]]
            try:
                found += await self._standings(names)
            except StoreUnavailable as error:
                if not is_split(error):
                    raise
                # A slot that hangs between two nodes is read key by key.
                for some in await asyncio.gather(*(self._standings([name]) for name in names)):
                    found += some
        return found

    async def _standings(self, names: Sequence[str]) -> list[Standing]:
        call: Call[list[Standing]] = Call(script("revisions"), names, (), _standings)
        return await run(self._commands, call)

    async def reconnect(self, number: int) -> None:
        """Drop a reader's connection: the next tail makes a new one, whatever the old one waited for."""
        await disconnect(self._readers[number])


def _head(epoch: bytes, n: bytes, mark: bytes) -> Head:
    return Head(epoch.decode(), int(n), mark.decode()) if epoch else NO_HEAD


def _head_and_last(reply: list[bytes]) -> tuple[Head, int]:
    return _head(*reply[:3]), int(reply[3])


def _beat(reply: list[bytes]) -> Beat:
    epoch, n, mark, server_ms, *replicas = reply
    return Beat(
        _head(epoch, n, mark), int(server_ms), frozenset(ReplicaId(name.decode()) for name in replicas)
    )


def _standings(reply: list[bytes]) -> list[Standing]:
    standings: list[Standing] = []
    for text in reply:
        stamp, *rule = text.decode().split(" ")
        epoch, n, mark = stamp.split(".")
        standings.append(Standing(Stamp(epoch, int(n), mark), frozenset(rule)))
    return standings
