"""Follows a tenant's changes, for jobs that index, mirror or forward them.

    async for change in publisher.changes("indexer"):
        match change:
            case Relist():   ...  # look at everything: what changed before this cannot be told one by one
            case Change():   ...  # this URI changed; change.stored is what it holds now, if anything

It reads the log that the brokers read (ADR 0004). Rules:

1. At least once: the group's place moves on after what was yielded has been dealt with, that is when the next
   is asked for. Of a URI that changed several times meanwhile, only the last is told.
2. A newcomer, a gap (trimmed), a fork and a new epoch are one thing: `Relist`. The follower already stands at
   the log's head then, so what changes while it lists comes after.
3. Of a group one process follows at a time; another takes over when it ends or dies.
4. Redis being away is waited for.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from broker.core.errors import BrokerError
from broker.core.identity import ResourceKey, TenantId
from broker.core.log import CHANGE, REMOVE, Cursor, Discontinuity, Entry, Head, Malformed, decode
from broker.core.revision import Stamp
from broker.store import resources
from broker.store.client import Connect, commands, reader
from broker.store.feed import PlaceStore
from broker.store.line import RawEntry
from broker.store.log import LogStore
from broker.store.registry import check_group
from broker.store.resources import Stored
from workers.ending import end

T = TypeVar("T")

_log = logging.getLogger(__name__)

BATCH = 100
KEEP_SECONDS = 2.0
STANDBY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """A URI changed. `stored` is what it holds now: None where it was removed, or a worker answers for it."""

    uri: str
    stamp: Stamp
    is_removed: bool
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class Relist:
    """Changes may have been missed: look at everything. `why` is "new", "gap", "fork" or "epoch"."""

    why: str


class Follower:
    """One process of a group that follows a tenant. `contents`: read what each changed URI holds."""

    def __init__(self, how: Connect, tenant: TenantId, group: str, *, contents: bool) -> None:
        self._redis = commands(how)
        self._reader = reader(how, self._redis)
        self._how = how
        self._tenant = tenant
        self._contents = contents
        self._number = how.keys.log_number(tenant)
        self._store = LogStore(how, self._redis, {self._number: self._reader})
        self._place = PlaceStore(self._redis, how.keys, tenant, check_group(group), secrets.token_hex(6))
        self._cursor = Cursor()
        self._after = ""
        self._is_following = False

    async def changes(self) -> AsyncGenerator[Change | Relist]:
        """Yield changes for ever, while this process is the one of its group that follows."""
        keeping = asyncio.get_running_loop().create_task(self._keep())
        try:
            while True:
                place = await self._patiently(self._place.take)
                if place is None:
                    await asyncio.sleep(STANDBY_SECONDS)
                    continue
                self._is_following = True
                async with contextlib.aclosing(self._from(place)) as following:
                    async for change in following:
                        yield change
                self._is_following = False
        finally:
            await end({keeping})
            with contextlib.suppress(BrokerError):
                await self._place.leave()
            await self._reader.aclose()
            await self._redis.aclose()

    async def _from(self, place: Head) -> AsyncGenerator[Change | Relist]:
        """Yield what follows `place`, until another process has it."""
        if place.epoch:
            self._stand(place)
            why = self._cursor.check(await self._head(), place.n)
        else:
            why = "new"
        while True:
            if why is not None:
                await self._jump()
                yield Relist(why if isinstance(why, str) else why.value)
                if not await self._move():
                    return
            batch, why = await self._read()
            for entry in batch:
                yield await self._patiently(lambda entry=entry: self._change(entry))
            if batch and not await self._move():
                return

    async def _read(self) -> tuple[list[Entry], Discontinuity | None]:
        """Return our next changes, the last of each URI, and why the log does not go on after them."""
        found: dict[str, Entry] = {}
        before = self._cursor.n
        for entry_id, fields in await self._patiently(self._tail):
            try:
                entry = decode(entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
            except Malformed:
                self._cursor.skip(int(entry_id.partition(b"-")[0]))
                self._after = entry_id.decode()
                continue
            why = self._cursor.follow(entry)
            if why is not None:
                return list(found.values()), why
            self._after = entry_id.decode()
            if entry.tenant == self._tenant and entry.kind in (CHANGE, REMOVE):
                found.pop(entry.uri, None)
                found[entry.uri] = entry
        if self._cursor.n == before:
            # Nothing came: is the log still the one that we read?
            return [], self._cursor.check(await self._head(), before)
        return list(found.values()), None

    async def _change(self, entry: Entry) -> Change:
        stored = None
        if self._contents and entry.kind == CHANGE:
            stored = await resources.read(self._redis, self._how.keys, ResourceKey(self._tenant, entry.uri))
        stamp = Stamp(entry.epoch, entry.n, entry.mark)
        return Change(entry.uri, stamp, entry.kind == REMOVE, stored)

    def _stand(self, place: Head) -> None:
        self._cursor = Cursor()
        self._cursor.jump(place, place.n)
        self._after = f"{place.n}-0"

    async def _jump(self) -> None:
        head, last = await self._patiently(lambda: self._store.head(self._number))
        self._cursor = Cursor()
        self._cursor.jump(head, last)
        self._after = f"{self._cursor.n}-0"

    async def _tail(self) -> list[RawEntry]:
        return await self._store.tail(self._number, self._after.encode(), BATCH)

    async def _head(self) -> Head:
        return (await self._patiently(lambda: self._store.head(self._number)))[0]

    async def _move(self) -> bool:
        place = Head(self._cursor.epoch, self._cursor.n, self._cursor.mark)
        return await self._patiently(lambda: self._place.move(place))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` returns, once Redis answers."""
        failures = 0
        while True:
            try:
                answer = await ask()
            except BrokerError as error:
                if not error.retryable:
                    raise
                failures += 1
                if failures == 1:
                    _log.warning("follower_lost_redis", extra={"error": str(error)})
                await asyncio.sleep(min(1.0, 0.05 * 2 ** min(failures, 5)) * random.uniform(0.5, 1.0))
            else:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # It came while a command was sent, and the client lost it (ending.py).
                    raise asyncio.CancelledError
                return answer

    async def _keep(self) -> None:
        """Keep the place, however long what was yielded takes."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if self._is_following:
                with contextlib.suppress(BrokerError):
                    await self._place.take()
