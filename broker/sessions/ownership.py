"""Handshake-era sessions on this replica: which of their GET streams delivers, and what it watches.

A session lives in Redis and answers on every replica; only its open streams are here. Rules (design
section 3, "Sessions"; section 5, decision 2):

1. At most one stream of the fleet delivers for a session: the newest GET. Opening one takes the session by a
   script that raises the fence and announces it in the log; whoever delivered before meets that entry and
   demotes its stream, which stays open with keep-alives only.
2. The local session exists before the take is sent, and entries that arrive before its reply are kept and
   applied behind the snapshot by their counter, so nothing falls between.
3. A taken stream watches first and reads revisions after: a change is either in what was read, or an entry
   that the tail has still to apply.
4. What is owed at an opening is what differs from the baselines, unless the client's proof covers it.
   Baselines rise only by proof from the client.
5. When the delivering stream ends, the next older one here takes over, else the session is released and a
   replica that holds one takes it; also when the owner's heartbeat has lapsed.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Generic, TypeVar

from broker.core.access import may_read
from broker.core.errors import BrokerError, SessionNotFound, Unavailable
from broker.core.identity import Principal, ReplicaId, ResourceKey, SessionId, TenantId
from broker.core.log import Entry, SessionEvent, SessionOp
from broker.core.revision import Revision
from broker.replica import Replica
from broker.sessions.local_session import LocalSession
from broker.sessions.releases import TAKE_SECONDS, Releases
from broker.store.sessions import ANY_OWNER, NO_PROOF, Kept, Proof, SessionStore, Taken
from broker.streams.connection import CloseReason, Connection
from broker.tailing.tail import Tail

_log = logging.getLogger(__name__)

W = TypeVar("W")

KEPT_STREAMS = 3
"""GET streams kept open per session on a replica: the delivering one and two older ones."""
RELOADS_AT_ONCE = 16


class Sessions(Generic[W]):
    """The handshake-era sessions of one replica."""

    def __init__(self, replica: Replica[W], store: SessionStore, idle_ms: int) -> None:
        self._replica = replica.id
        self._store = store
        self._log = replica.log
        self._hub = replica.hub
        self._tail_of = replica.tail
        self._spawn = replica.spawn
        self._idle_ms = idle_ms
        self._releases = Releases(replica.id, store, self._is_open)
        self._clock_offsets: dict[Tail, float] = {}
        """Redis' clock less our loop's, in seconds, from each log's last heartbeat."""
        self._local: dict[tuple[TenantId, SessionId], LocalSession[W]] = {}

    def __len__(self) -> int:
        return len(self._local)

    # -- a client's stream ---------------------------------------------------------------------------------

    async def attach(
        self, connection: Connection[W], who: Principal, session: SessionId, proof: Proof
    ) -> str:
        """Make `connection` the stream that delivers for `session`, and return the session's version.

        Undone by `detach`.

        Raises:
            SessionNotFound: it ended, never was, or is somebody else's; nothing is left behind.
            StoreUnavailable: Redis cannot say; the stream stays attached, call again.
        """
        local = self._local.get((who.tenant, session))
        if local is not None and local.principal.subject != who.subject:
            # Somebody else's session: asked of Redis like any other, so that it looks and costs the same.
            await self._store.check(who, session)
            raise SessionNotFound
        if local is None:
            local = self._local[who.tenant, session] = LocalSession(who, session)
        local.principal = who
        if connection not in local.streams:
            local.streams.append(connection)
            self._drop_oldest(local)
        try:
            await self._take(local, proof=proof)
        except SessionNotFound:
            # It may have gone from there already: as one too many, or by the entry that ended the session.
            if connection in local.streams:
                local.streams.remove(connection)
            self._end(local)
            raise
        return local.version

    def detach(self, connection: Connection[W], who: Principal, session: SessionId) -> None:
        """The stream has ended: the next older one takes over, or the session is released."""
        local = self._local.get((who.tenant, session))
        if local is None or connection not in local.streams:
            return
        local.streams.remove(connection)
        was_delivering = local.delivering is connection
        self._unwatch(connection)
        if was_delivering:
            local.delivering = None
        if local.streams:
            if was_delivering:
                self._spawn(self._retake(local, expected_owner=self._replica))
        elif not local.turn.locked():
            # Else a take is under way: it finds no stream and lets go itself.
            self._forget(local)
            if was_delivering or local.is_unsure:
                self._release(local)

    async def end(self, who: Principal, session: SessionId) -> None:
        """End a session (DELETE). Its streams end when the entry comes, here as everywhere.

        Raises:
            SessionNotFound, StoreUnavailable: nothing was ended.
        """
        await self._store.end(who, session)

    # -- from the log --------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Take in a session entry, in order with the changes. Never awaits."""
        event = entry.session
        if event is None:
            return
        local = self._local.get((entry.tenant, event.id))
        if local is None:
            if event.op is SessionOp.TAKEN and event.owner == self._replica:
                # A take of ours whose stream had ended before it was executed.
                self._spawn(self._releases.release(entry.tenant, event.id, event.fence))
            return
        if event.op is SessionOp.ENDED:
            self._end(local)
        elif local.waiting is not None:
            local.waiting.append(event)
        else:
            self._apply(local, event)

    def _apply(self, local: LocalSession[W], event: SessionEvent) -> None:
        if event.counter <= local.counter:
            return
        is_next = event.counter == local.counter + 1
        local.counter = event.counter
        match event.op:
            case SessionOp.SUBSCRIBED:
                self._subscribed(local, event)
            case SessionOp.UNSUBSCRIBED:
                self._unsubscribed(local, event.uri)
            case SessionOp.TAKEN:
                local.owner = event.owner
                if event.owner != self._replica:
                    self._demote(local)
                elif local.delivering is None:
                    # A take of ours that we had given up was executed after all: let it be true.
                    self._spawn(self._retake(local, expected_owner=self._replica))
                else:
                    local.fence = max(local.fence, event.fence)
            case SessionOp.RELEASED:
                # Even if we deliver: then a late release of ours has just given that away.
                local.owner = ""
                self._spawn(self._retake(local, expected_owner=""))
            case SessionOp.ENDED:
                self._end(local)
        if not is_next and local.delivering is not None:
            # An event between is missing (it can only have been lost with Redis' memory): ask.
            self._spawn(self._retake(local, expected_owner=self._replica))

    def _subscribed(self, local: LocalSession[W], event: SessionEvent) -> None:
        baseline = event.baseline or Revision(0, "")
        local.baselines.setdefault(event.uri, baseline)
        connection = local.delivering
        if connection is None or event.uri in connection.topics:
            return
        topic = self._hub.subscribe(connection, ResourceKey(local.principal.tenant, event.uri))
        connection.topics[event.uri] = topic
        # The entry stands in order with the changes: what is later than the baseline is still to come, or
        # somebody's read was ahead of the log and has told the others already.
        if topic.seen is None:
            topic.seen = baseline
        elif (
            topic.seen != baseline
            and may_read(connection.principal, topic.rule)
            and connection.backlog.add(topic, topic.seen.n)
        ):
            connection.mark()

    def _unsubscribed(self, local: LocalSession[W], uri: str) -> None:
        local.baselines.pop(uri, None)
        connection = local.delivering
        topic = connection.topics.pop(uri, None) if connection is not None else None
        if connection is not None and topic is not None:
            self._hub.unsubscribe(connection, topic)

    # -- taking over ---------------------------------------------------------------------------------------

    async def _take(
        self,
        local: LocalSession[W],
        *,
        proof: Proof = NO_PROOF,
        expected_owner: str = ANY_OWNER,
        restore: Mapping[str, Revision] | None = None,
    ) -> None:
        async with local.turn:
            if not local.streams:
                return
            local.waiting = []
            local.is_unsure = True
            taken: Taken | Kept | None = None
            try:
                taken = await self._store.take(
                    local.principal,
                    local.id,
                    self._replica,
                    expected_owner=expected_owner,
                    above_fence=local.fence,
                    proof=proof,
                    valid_until_ms=self._valid_until(local.principal.tenant),
                    restore=restore,
                )
                local.is_unsure = False
            finally:
                waiting, local.waiting = local.waiting, None
                if not local.streams:
                    self._let_go(local, taken)
            if not local.streams:
                return
            if isinstance(taken, Taken):
                self._deliver(local, taken)
            elif isinstance(taken, Kept):
                local.owner = taken.owner
                self._demote(local)
            for event in waiting:
                self._apply(local, event)
            if isinstance(taken, Taken) and local.delivering is not None:
                await self._tell_what_is_owed(local, local.delivering, taken)

    def _let_go(self, local: LocalSession[W], taken: Taken | Kept | None) -> None:
        """Undo a take whose streams have all ended meanwhile."""
        self._forget(local)
        if isinstance(taken, Taken):
            local.fence = taken.fence
        if not isinstance(taken, Kept):
            self._release(local)

    def _deliver(self, local: LocalSession[W], taken: Taken) -> None:
        """Let the newest stream watch what the snapshot says."""
        local.fence, local.counter = taken.fence, taken.counter
        local.version = taken.version
        local.owner = self._replica
        local.baselines = dict(taken.subscriptions)
        local.renew_at = asyncio.get_running_loop().time() + self._idle_ms / 3000 * random.uniform(0.8, 1.0)
        connection = local.streams[-1]
        if local.delivering is not connection:
            self._demote(local)
        local.delivering = connection
        connection.is_settled = False
        for uri in [uri for uri in connection.topics if uri not in taken.subscriptions]:
            self._hub.unsubscribe(connection, connection.topics.pop(uri))
        for uri in taken.subscriptions:
            if uri not in connection.topics:
                key = ResourceKey(local.principal.tenant, uri)
                connection.topics[uri] = self._hub.subscribe(connection, key)

    async def _tell_what_is_owed(
        self, local: LocalSession[W], connection: Connection[W], taken: Taken
    ) -> None:
        tail = self._tail_of(local.principal.tenant)
        topics = dict(connection.topics)
        asked_at = tail.cursor.tick
        standings = await self._log.standings([topic.key for topic in topics.values()])
        for (uri, topic), standing in zip(topics.items(), standings, strict=True):
            revision = standing.stamp.revision
            # What an entry has touched since the question was marked by it, whatever we read.
            self._hub.observe(topic, revision, asked_at, standing.rule)
            baseline = taken.subscriptions.get(uri)
            is_owed = baseline is not None and revision != baseline
            is_owed = is_owed and not taken.proof.covers(taken.epoch, revision)
            is_owed = is_owed and may_read(connection.principal, standing.rule)
            if is_owed and uri in connection.topics and connection.backlog.add(topic, revision.n):
                connection.mark()
        connection.is_settled = connection is local.delivering

    async def _retake(self, local: LocalSession[W], expected_owner: str = ANY_OWNER) -> None:
        """Take in the background, until it is done or there is nothing to deliver to."""
        pause = 0.05
        while local.streams and self._local.get((local.principal.tenant, local.id)) is local:
            try:
                await self._take(local, expected_owner=expected_owner)
            except SessionNotFound:
                self._end(local)
                return
            except Unavailable:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(1.0, pause * 2)
            else:
                return

    def _release(self, local: LocalSession[W]) -> None:
        """Give the session back, in the background."""
        fence = None if local.is_unsure else local.fence
        self._spawn(self._releases.release(local.principal.tenant, local.id, fence))

    def _is_open(self, tenant: TenantId, session: SessionId) -> bool:
        return (tenant, session) in self._local

    def _valid_until(self, tenant: TenantId) -> int | None:
        """Return until when a take that is sent now may be executed, by Redis' clock in ms, if we know it."""
        offset = self._clock_offsets.get(self._tail_of(tenant))
        if offset is None:
            return None
        return int((asyncio.get_running_loop().time() + offset + TAKE_SECONDS) * 1000)

    # -- repair and upkeep ---------------------------------------------------------------------------------

    async def reload(self, tail: Tail, *, may_have_lost: bool) -> None:
        """Bring every session of `tail` that has a stream here up to date, before a resync compares.

        `may_have_lost`: Redis may have lost writes (a rollback), so subscriptions that we know are written
        back where they are missing. A cue too many is harmless, one too few is not.

        Raises:
            StoreUnavailable: Redis went away again; ask later.
        """
        waiting = [one for one in self._local.values() if self._tail_of(one.principal.tenant) is tail]

        async def work() -> None:
            while waiting:
                await self._reload(waiting.pop(), may_have_lost=may_have_lost)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(RELOADS_AT_ONCE, len(waiting))):
                group.create_task(work())

    async def _reload(self, local: LocalSession[W], *, may_have_lost: bool) -> None:
        if local.delivering is None:
            # An older stream: it delivers only if nobody does, e.g. since the release was in the gap.
            expected, restore = "", None
        elif may_have_lost:
            expected, restore = ANY_OWNER, local.baselines
        else:
            expected, restore = self._replica, None
        before, known = local.counter, local.baselines
        try:
            await self._take(local, expected_owner=expected, restore=restore)
            if restore is None and local.delivering is not None and local.counter <= before:
                # The counter went back: the gap has hidden a rollback.
                await self._take(local, expected_owner=self._replica, restore=known)
        except SessionNotFound:
            self._end(local)

    def clock_read(self, tail: Tail, server_ms: int) -> None:
        """Learn the clock of the server that has this log."""
        self._clock_offsets[tail] = server_ms / 1000 - asyncio.get_running_loop().time()

    def on_beat(self, live: frozenset[ReplicaId]) -> None:
        """Take over the sessions whose older streams are here and whose owner is not alive any more."""
        for local in self._local.values():
            owner = local.owner
            if local.delivering is None and owner and owner != self._replica and owner not in live:
                self._spawn(self._retake(local, expected_owner=owner))

    async def run(self) -> None:
        """Renew the time to live of every session with a delivering stream, each at a third of it."""
        loop = asyncio.get_running_loop()
        pause = max(0.2, min(1.0, self._idle_ms / 10_000))
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            due = [one for one in self._local.values() if one.delivering and one.renew_at <= now]
            for local in due:
                await self._renew(local, now)

    async def _renew(self, local: LocalSession[W], now: float) -> None:
        local.renew_at = now + self._idle_ms / 3000 * random.uniform(0.8, 1.0)
        try:
            await self._store.check(local.principal, local.id)
        except SessionNotFound:
            self._end(local)
        except BrokerError:
            local.renew_at = now + 1.0

    # -- ends ----------------------------------------------------------------------------------------------

    def _drop_oldest(self, local: LocalSession[W]) -> None:
        for connection in local.streams[:-KEPT_STREAMS]:
            connection.end(CloseReason.REPLACED)
            local.streams.remove(connection)
            self._unwatch(connection)

    def _demote(self, local: LocalSession[W]) -> None:
        connection, local.delivering = local.delivering, None
        if connection is not None:
            connection.is_settled = False
            self._unwatch(connection)

    def _unwatch(self, connection: Connection[W]) -> None:
        for topic in connection.topics.values():
            self._hub.unsubscribe(connection, topic)
        connection.topics.clear()

    def _end(self, local: LocalSession[W]) -> None:
        streams = list(local.streams)
        self._forget(local)
        for connection in streams:
            connection.end(CloseReason.SESSION_ENDED)

    def _forget(self, local: LocalSession[W]) -> None:
        if self._local.get((local.principal.tenant, local.id)) is local:
            del self._local[local.principal.tenant, local.id]
        for connection in local.streams:
            self._unwatch(connection)
        local.streams.clear()
        local.delivering = None
