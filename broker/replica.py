"""The running broker: one replica's hub, logs, connections and background tasks, and their life.

The only mutator of the hub beside sessions/ownership.py. Knows no HTTP and no dialect: connections come with
a renderer and a writer, keys come from wire/ as `ResourceKey`. Everything long-lived runs in the task group
of `run`; one that dies takes the replica with it, loudly.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from broker.callbacks.asking import Callbacks
from broker.callbacks.calls import CallRules, Calls
from broker.callbacks.demand import Demand
from broker.callbacks.templates import Templates
from broker.callbacks.withdrawal import Withdrawal
from broker.core.hub import Hub
from broker.core.identity import LIST, Principal, ReplicaId, ResourceKey, TenantId, new_replica_id
from broker.core.log import ACCESS, Discontinuity, Entry
from broker.core.revision import Revision, Stamp
from broker.gathering import Gathering
from broker.gauges import Gauges
from broker.inspection import Inspection
from broker.shedding import Bounds, Resources, Shedding
from broker.store.calls import CallStore
from broker.store.client import Connect, commands, follow, reader
from broker.store.log import Beat, LogStore, Standing
from broker.streams.connection import CloseReason, Connection, Renderer
from broker.streams.dispatcher import Dispatcher
from broker.streams.wheel import Wheel
from broker.sweeper import Sweeper
from broker.tailing.heart import Heart
from broker.tailing.resync import Resync
from broker.tailing.tail import Tail
from broker.telemetry import loop_lag
from broker.telemetry.metrics import Metrics
from broker.telemetry.tracing import OFF, Tracing

_log = logging.getLogger(__name__)

W = TypeVar("W")

FEW_KEYS = 8
"""Up to so many keys of a stream that opens are read together with those of others that open just then."""
LEAVING_STREAM_SECONDS = (0.2, 1.0)
"""How long a stream lives that is opened on a replica which is leaving."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a replica treats its streams. Times in seconds, but where the name says otherwise."""

    keep_alive: float = 15.0
    write_deadline: float = 30.0
    drain: float = 20.0
    retry_ms: int = 1000


class SessionSide(Protocol):
    """What the handshake era's sessions need to be told (sessions/ownership.py); they hold the replica."""

    def apply(self, entry: Entry) -> None:
        """Take in a session entry, in order with the changes."""
        ...

    def clock_read(self, tail: Tail, server_ms: int) -> None:
        """Learn the clock of the server that has this log."""
        ...

    def on_beat(self, live: frozenset[ReplicaId]) -> None:
        """Take over what belongs to replicas that have lapsed."""
        ...

    async def reload(self, tail: Tail, *, may_have_lost: bool) -> None:
        """Bring every session of `tail` up to date before a resync compares."""
        ...

    async def run(self) -> None:
        """Look after the sessions for ever."""
        ...


class AccessSide(Protocol):
    """What watches the right to each stream (streams/guard.py)."""

    def opened(self, connection: Connection[Any]) -> None:
        """Watch a stream that is being opened."""
        ...

    def closed(self, connection: Connection[Any]) -> None:
        """Forget a stream. Twice is once."""
        ...

    def apply(self, entry: Entry) -> None:
        """Take in an access entry, in order with the changes."""
        ...

    async def run(self) -> None:
        """Look after the streams for ever."""
        ...


class Replica(Generic[W]):
    """One broker process, as far as it concerns what changes and who is told."""

    def __init__(
        self,
        how: Connect,
        encode: Callable[[ResourceKey], W],
        pace: Pace,
        metrics: Metrics | None = None,
        call_rules: CallRules | None = None,
        *,
        traces: Tracing = OFF,
        shedding: Shedding | None = None,
    ) -> None:
        self.id = new_replica_id()
        self.keys = how.keys
        self.metrics = metrics or Metrics()
        self.traces = traces
        self.shedding = shedding or Shedding(Bounds(Resources(None, None)))
        self.redis = commands(how, self._script_ran)
        self.hub: Hub[W] = Hub(encode)
        # One connection each: a read that waits holds it, and on a cluster each log has its own place.
        self._readers = {number: reader(how, self.redis) for number in range(how.keys.logs)}
        self._pace = pace
        self.log = LogStore(how, self.redis, self._readers)
        self._dispatcher: Dispatcher[W] = Dispatcher(self.hub, self.metrics)
        self._wheel = Wheel(pace.keep_alive, pace.write_deadline)
        self._tails = [
            Tail(
                number,
                self.log,
                self._apply,
                self._on_break,
                self.metrics,
                # Series by tenant count what nobody watches, too.
                watched=None if self.metrics.tenants else self.hub.watched,
            )
            for number in range(how.keys.logs)
        ]
        self._standings: Gathering[ResourceKey, Standing] = Gathering(
            self.log.standings, lambda key: how.keys.log_number(key.tenant)
        )
        self._sessions: SessionSide | None = None
        self._guard: AccessSide | None = None
        self._resync = Resync(
            self._tails, self.hub, self.log, how.keys, reload=self._reload, metrics=self.metrics
        )
        self._heart = Heart(
            self.id,
            self.log,
            self._tails,
            on_break=self._on_break,
            on_beat=self._on_beat,
            metrics=self.metrics,
        )
        call_rules = call_rules or CallRules()
        self._inbox_reader = reader(how, self.redis)
        self.calls = Calls(
            self.redis,
            CallStore(self.redis, self._inbox_reader, how.keys, self.id),
            how.keys,
            rules=call_rules,
            spawn=self.spawn,
            metrics=self.metrics,
        )
        self.templates = Templates(self.redis, how.keys, self.log)
        self._demand = Demand(self.redis, how.keys, self.hub, self.templates, call_rules.report)
        self.callbacks = Callbacks(self.calls, self.templates, self.log)
        self._sweeper = Sweeper(
            self.redis, how.keys, self.id, Withdrawal(self.redis, how.keys, call_rules.unheard)
        )
        self._inspection = Inspection(self.redis, how)
        self.metrics.watch(self._inspection.look)
        self.metrics.watch(Gauges(self, self._tails, self._heart, self._wheel, self._dispatcher).look)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._is_running = False

    def __repr__(self) -> str:
        return f"<Replica {self.id} {len(self._wheel)} streams, {self.hub!r}, {self._tails!r}>"

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._wheel)

    def connections(self) -> list[Connection[W]]:
        """Return the open streams."""
        return self._wheel.connections()

    @property
    def is_draining(self) -> bool:
        """Whether this replica is leaving."""
        return self._is_draining

    def ask(self, guard: AccessSide) -> None:
        """Let `guard` decide how long each stream may live. Before `run`."""
        self._guard = guard

    def tell(self, sessions: SessionSide) -> None:
        """Tell `sessions` of what concerns them. Before `run`."""
        self._sessions = sessions

    # -- life ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the logs and look after the streams, until cancelled."""
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as group:
                following = follow(self.redis, *self._readers.values(), self._inbox_reader)
                group.create_task(following, name="primary")
                for tail in self._tails:
                    group.create_task(tail.run(), name=f"tail {tail.number}")
                group.create_task(self._heart.run(), name="heart")
                group.create_task(self._inspection.run(), name="inspection")
                group.create_task(self._resync.run(), name="resync")
                group.create_task(self._wheel.run(), name="wheel")
                if self._sessions is not None:
                    group.create_task(self._sessions.run(), name="sessions")
                if self._guard is not None:
                    group.create_task(self._guard.run(), name="guard")
                group.create_task(self._sweeper.run(), name="sweeper")
                group.create_task(self.shedding.run(), name="shedding")
                group.create_task(self.calls.run(), name="calls")
                group.create_task(self._demand.run(), name="demand")
                group.create_task(loop_lag.sample(self.metrics), name="loop lag")
        finally:
            self._is_running = False
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for client in (*self._readers.values(), self._inbox_reader, self.redis):
                await client.aclose()

    async def drain(self) -> None:
        """End every stream cleanly, spread over the drain window, and take no new ones (promise 9)."""
        self._is_draining = True
        connections = self._wheel.connections()
        random.shuffle(connections)
        _log.info("draining", extra={"streams": len(connections)})
        window = self._pace.drain * 0.8
        loop = asyncio.get_running_loop()
        started = loop.time()
        for index, connection in enumerate(connections):
            # At most 5 ms each, so that a handful of streams need not wait for the window.
            due = started + min(window * index / len(connections), index * 0.005)
            await asyncio.sleep(max(0.0, due - loop.time()))
            connection.end(CloseReason.DRAINING, self._jittered_retry())
        await self._wheel.emptied()

    def readiness(self, *, strict: bool = False) -> str | None:
        """Return None if this replica wants traffic, else why not (promise 10).

        `strict` also wants a Redis that answers.
        """
        if self._is_draining:
            return "This replica is leaving."
        if not self._is_running or not any(tail.has_stood for tail in self._tails):
            return "Redis has not been reached yet; check BROKER_REDIS_URL and that it is up."
        if self.shedding.why is not None:
            return self.shedding.why
        now = asyncio.get_running_loop().time()
        if self._heart.is_deaf(now):
            return "The log reader brings nothing though Redis answers; see the log of this replica."
        if strict and not self.is_store_answering():
            return "Redis does not answer; reads and publishes are refused until it does."
        return None

    def is_store_answering(self) -> bool:
        """Whether the last heartbeats were answered; if not, waiting for Redis is in vain."""
        return self._heart.is_answered(asyncio.get_running_loop().time())

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` beside; it is cancelled when the replica ends, and an error is reported."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background_task_failed", exc_info=task.exception())

    # -- streams -------------------------------------------------------------------------------------------

    def tail(self, tenant: TenantId) -> Tail:
        """Return the reader of this tenant's log."""
        return self._tails[self.keys.log_number(tenant)]

    def connection(self, principal: Principal, renderer: Renderer[W]) -> Connection[W]:
        """Return a connection that watches nothing yet. Undone by `leave`.

        Raises:
            Overloaded: this replica has no room for another stream.
        """
        self.shedding.check()
        connection = Connection(principal, renderer, self.tail(principal.tenant), self._dispatcher)
        if self._guard is not None:
            self._guard.opened(connection)
        return connection

    async def watch(
        self, connection: Connection[W], keys: Sequence[ResourceKey], known: Mapping[str, Revision]
    ) -> dict[str, Stamp]:
        """Let `connection` watch `keys`, and return where each stands, by URI.

        `known`: what the client says to have seen; it is owed a cue for what differs from that. First
        watched, then read: a change is either in what was read or an entry still to come.

        Raises:
            StoreUnavailable, WrongStore: nothing is watched then.
        """
        topics = [self.hub.subscribe(connection, key) for key in keys]
        connection.topics = {topic.key.uri: topic for topic in topics}
        tail = self.tail(connection.principal.tenant)
        asked_at = tail.cursor.tick
        try:
            standings = await self._standing(keys)
        except BaseException:
            self._unwatch(connection)
            raise
        shown = [standing.seen_by(connection.principal) for standing in standings]
        for topic, standing, stamp in zip(topics, standings, shown, strict=True):
            revision = stamp.revision
            # Where this finds news for the others it marks us as well: a cue too many is harmless, and taking
            # the mark back would be wrong where a resync has just marked us for something newer.
            self.hub.observe(topic, standing.stamp.revision, asked_at, standing.rule)
            seen = known.get(topic.key.uri)
            if seen is not None and seen != revision and connection.backlog.add(topic, revision.n):
                connection.mark()
        connection.is_settled = True
        return {topic.key.uri: stamp for topic, stamp in zip(topics, shown, strict=True)}

    async def _standing(self, keys: Sequence[ResourceKey]) -> Sequence[Standing]:
        """Return where `keys` of one log stand: together with what is asked for other streams, if few."""
        if len(keys) > FEW_KEYS:
            return await self.log.standings(keys)
        return await self._standings.ask_each(keys)

    async def list_revision(self, tenant: TenantId) -> Revision:
        """Return when what resources/list shows last changed.

        Raises:
            StoreUnavailable, WrongStore: from the store.
        """
        return (await self.log.stamps([ResourceKey(tenant, LIST)]))[0].revision

    def keep(self, connection: Connection[W]) -> None:
        """Keep an open connection alive. Undone by `leave`.

        A replica that is leaving accepts it all the same and ends it soon: a refusal would be an error to a
        client that a balancer still sends here, and some never ask again.
        """
        self._wheel.add(connection)
        if self._is_draining:
            delay = random.uniform(*LEAVING_STREAM_SECONDS)
            loop = asyncio.get_running_loop()
            loop.call_later(delay, connection.end, CloseReason.DRAINING, self._jittered_retry())

    def leave(self, connection: Connection[W]) -> None:
        """Forget a connection that has ended, whoever ended it. Twice is once."""
        self._wheel.discard(connection)
        if self._guard is not None:
            self._guard.closed(connection)
        self._unwatch(connection)
        reason = connection.ending or CloseReason.CLIENT_LEFT
        self.metrics.stream_closed(reason)

    def _unwatch(self, connection: Connection[W]) -> None:
        for topic in connection.topics.values():
            self.hub.unsubscribe(connection, topic)
        connection.topics = {}

    def jittered_retry(self) -> int:
        """Return after how many ms a client should open its stream again, spread."""
        return self._jittered_retry()

    def _jittered_retry(self) -> int:
        return int(self._pace.retry_ms * random.uniform(0.5, 1.5))

    # -- from the log --------------------------------------------------------------------------------------

    def _apply(self, entry: Entry, tick: int) -> None:
        if entry.kind == ACCESS:
            if self._guard is not None:
                self._guard.apply(entry)
        elif entry.session is None:
            told = self.hub.dispatch(entry, tick)
            if told:
                self._dispatcher.published(self.keys.log_number(entry.tenant), entry.at_ms)
            if self.traces.is_on:
                self.traces.dispatched(str(entry.revision), entry.tenant, told, entry.trace)
            if self.metrics.tenants:
                self.metrics.tenant_changed(entry.tenant, told)
        elif self._sessions is not None:
            self._sessions.apply(entry)

    def _on_break(self, tail: Tail, why: Discontinuity) -> None:
        self._resync.request(tail, why)

    def _on_beat(self, tail: Tail, beat: Beat) -> None:
        self._dispatcher.clock_read(tail.number, beat.server_ms)
        if self._sessions is not None:
            self._sessions.clock_read(tail, beat.server_ms)
            if tail.number == 0:
                self._sessions.on_beat(beat.replicas)

    def _script_ran(self, name: str, seconds: float, error: Exception | None) -> None:
        self.traces.happened(f"script {name}", seconds, error)
        if error is None:
            self.metrics.script_ran(name, seconds)
        else:
            self.metrics.script_failed(name)

    async def _reload(self, tail: Tail, may_have_lost: bool) -> None:  # noqa: FBT001 - the resync's one flag
        if self._sessions is not None:
            await self._sessions.reload(tail, may_have_lost=may_have_lost)
