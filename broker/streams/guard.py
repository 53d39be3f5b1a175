"""Ends streams whose right has ended: by expiry, revocation, suspension, deletion, or age.

Rules:

1. A stream ends a little before its credential does, at a random moment of its last seconds, so that a
   thousand tokens of the same minute do not come back in the same instant.
2. What ended by an entry of the log ends at once, before any later entry is dispatched: that is decided
   without awaiting. Then everything of that tenant is looked up anew, since ends or scopes may differ.
3. Entries can be lost with Redis' memory, and the control data is of another shard: so the count of its
   changes is asked for once a second, and where it differs every credential of an open stream is looked up.
4. Some tokens only their issuer knows to have been taken back: those of open streams are asked about again
   (recheck.py), and what is learnt of one holds for all of its streams at once.
5. A stream that is being opened is ours from its first moment to its last (`opened`, `closed`), so nothing
   falls between its authentication and its first cue. Its request may have taken its time since its caller
   was looked up, so that is done once more.
"""

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.core.errors import BrokerError
from broker.core.identity import Principal, TenantId
from broker.core.log import Entry
from broker.core.tenancy import State
from broker.streams.connection import CloseReason, Connection
from broker.streams.recheck import Recheck
from broker.tenants.directory import Directory

_log = logging.getLogger(__name__)

TICK = 0.25
COUNT_EVERY = 1.0
"""Seconds between two looks at the count of the control data's changes."""
EARLY = 3.0
"""Seconds before a credential's end in which its streams end; a tenth of its life if that is less."""
EVERYTHING = "*"
"""What an access entry says to end all streams of its tenant."""


class Guard:
    """Watches the right to every open stream of one replica."""

    def __init__(
        self,
        directory: Directory,
        restrict: Callable[[Connection[Any]], None],
        release: Callable[[Connection[Any]], None],
        *,
        recheck: Recheck | None = None,
        is_open: bool,
        max_age: float,
        retry_ms: int,
    ) -> None:
        self._directory = directory
        self._restrict = restrict
        self._release = release
        self._recheck = recheck
        self._is_open = is_open
        self._max_age = max_age
        self._retry_ms = retry_ms
        self._due: dict[Connection[Any], int] = {}
        """Every stream that is open or being opened, and the second in which it ends (0: not by itself)."""
        self._by_second: defaultdict[int, dict[Connection[Any], None]] = defaultdict(dict)
        self._done_until = int(time.time())
        self._count: int | None = None
        self._tenants: set[TenantId] = set()
        self._fresh: list[Connection[Any]] = []
        self._wants_all = False
        """What is to be looked up: all streams of these tenants, these streams, or all."""
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Guard {len(self._due)} streams>"

    # -- streams --------------------------------------------------------------------------------------------

    def opened(self, connection: Connection[Any]) -> None:
        """Watch a stream that is being opened. Undone by `closed`."""
        self._due[connection] = 0
        self._schedule(connection)
        if not self._is_open:
            self._fresh.append(connection)
            self._wake.set()

    def closed(self, connection: Connection[Any]) -> None:
        """Forget a stream. Twice is once."""
        self._release(connection)
        second = self._due.pop(connection, 0)
        if second in self._by_second:
            self._by_second[second].pop(connection, None)
            if not self._by_second[second]:
                del self._by_second[second]

    def _schedule(self, connection: Connection[Any]) -> None:
        now = time.time()
        ends: list[float] = []
        expires = connection.principal.expires
        if expires is not None:
            ends.append(expires - random.uniform(0.3, 1.0) * min(EARLY, max(0.0, expires - now) / 10))
        if self._max_age:
            ends.append(now + self._max_age * random.uniform(0.8, 1.0))
        second = max(int(min(ends)), self._done_until + 1) if ends else 0
        before = self._due[connection]
        if before:
            self._by_second[before].pop(connection, None)
        self._due[connection] = second
        if second:
            self._by_second[second][connection] = None

    def _end_due(self) -> None:
        now = int(time.time())
        if now - self._done_until > len(self._by_second):
            # The clock jumped: fewer seconds have streams than have passed.
            seconds: list[int] | range = [second for second in self._by_second if second <= now]
        else:
            seconds = range(self._done_until + 1, now + 1)
        for second in seconds:
            for connection in self._by_second.pop(second, ()):
                expires = connection.principal.expires
                is_expired = expires is not None and expires - now <= EARLY
                self._end(connection, CloseReason.EXPIRED if is_expired else CloseReason.ROTATED)
        self._done_until = max(now, self._done_until)

    def _end(self, connection: Connection[Any], reason: CloseReason) -> None:
        connection.end(reason, int(self._retry_ms * random.uniform(0.5, 1.5)))

    # -- what changed ---------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Take in an access entry, in order with the changes (rule 2)."""
        self._directory.drop(entry.tenant)
        if entry.ended:
            for connection in list(self._due):
                principal = connection.principal
                if principal.tenant == entry.tenant and entry.ended in (EVERYTHING, principal.credential):
                    self._end(connection, CloseReason.REVOKED)
        if not self._is_open:
            self._tenants.add(entry.tenant)
            self._wake.set()

    def refreshed(self, token: str, current: Principal | None) -> None:
        """Take in what the caller of an opaque token is by now, None if it may not call any more."""
        for connection in list(self._due):
            principal = connection.principal
            if principal.token == token:
                is_same = current is not None and current.subject == principal.subject
                self._become(connection, current if is_same else None)

    def tokens(self) -> dict[str, Principal]:
        """Return the opaque tokens of open streams, and who their callers are."""
        return {one.principal.token: one.principal for one in self._due if one.principal.token}

    async def run(self) -> None:
        """Look after the streams for ever."""
        async with asyncio.TaskGroup() as group:
            if self._recheck is not None:
                group.create_task(self._recheck.run(self), name="recheck")
            await self._watch()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        counted = 0.0
        while True:
            try:
                async with asyncio.timeout(TICK):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._end_due()
            try:
                if loop.time() - counted >= COUNT_EVERY and not self._is_open:
                    counted = loop.time()
                    await self._look_at_count()
                await self._look_up()
            except BrokerError as error:
                # While Redis is away nothing can be revoked; all is looked up once it answers.
                self._wants_all = True
                _log.debug("access_check_postponed", extra={"error": str(error)})
                await asyncio.sleep(TICK)
            except Exception:  # a bug here must not end the replica, and must not stop the looking
                self._wants_all = True
                _log.exception("access_check_failed")
                await asyncio.sleep(TICK)

    async def _look_at_count(self) -> None:
        count = await self._directory.count()
        if self._count is not None and count != self._count:
            self._directory.age()
            self._wants_all = True
        self._count = count

    async def _look_up(self) -> None:
        """Look up the callers of open streams where that is wanted."""
        self._wake.clear()
        fresh, self._fresh = self._fresh, []
        tenants, self._tenants = self._tenants, set()
        wants_all, self._wants_all = self._wants_all, False
        if wants_all or tenants:
            fresh += [one for one in self._due if wants_all or one.principal.tenant in tenants]
        by_principal: defaultdict[Principal, list[Connection[Any]]] = defaultdict(list)
        for connection in fresh:
            by_principal[connection.principal].append(connection)
        for principal, connections in by_principal.items():
            current = await self._current(principal)
            for connection in connections:
                # It may have ended while we asked.
                if connection in self._due and connection.principal == principal != current:
                    self._become(connection, current)

    def _become(self, connection: Connection[Any], current: Principal | None) -> None:
        """Let a stream go on as its caller is by now, or end it."""
        if current is None or current.tenant != connection.principal.tenant:
            self._end(connection, CloseReason.REVOKED)
            return
        is_narrower = current.scopes != connection.principal.scopes
        connection.principal = current
        if is_narrower:
            self._restrict(connection)
        self._schedule(connection)

    async def _current(self, principal: Principal) -> Principal | None:
        """Return what a caller is by now, None if it may not call any more."""
        tenant = await self._directory.tenant(principal.tenant)
        if tenant is not None and tenant.state is not State.ACTIVE:
            return None
        if not principal.credential:
            return principal
        key = await self._directory.key(principal.credential)
        if key is None or tenant is None:
            return None
        expires = None if key.expires_ms is None else key.expires_ms / 1000
        return replace(principal, scopes=frozenset(key.scopes), expires=expires)
