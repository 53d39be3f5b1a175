"""The heartbeat: says that this replica lives, and finds out what the tail cannot see.

A tail that reads a dead-end connection, or whose log was rolled back to exactly where it stands, notices
nothing by itself. Once a second the heartbeat asks for the head on another connection:

- another epoch, or another mark at the same n → the log broke, the tail jumps;
- the head is gone → it is begun anew;
- two beats in a row that found the log ahead of a reader that has had no entry for a second → deaf: the
  reader gets a new connection. (With entries in the last second it is late, not deaf.)
- two missed beats → whatever happened meanwhile is compared.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from broker.core.errors import BrokerError
from broker.core.identity import ReplicaId
from broker.core.log import NO_HEAD, Discontinuity
from broker.store.log import Beat, LogStore
from broker.tailing.tail import Tail
from broker.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

INTERVAL = 1.0
MISSED = 2
QUIET = 1.0
DEAF_AFTER = 5.0
"""Seconds without an answered read, while heartbeats are answered, that turn readiness."""


class Heart:
    """One replica's heartbeat over all of its logs."""

    def __init__(
        self,
        replica: ReplicaId,
        store: LogStore,
        tails: Sequence[Tail],
        *,
        on_break: Callable[[Tail, Discontinuity], None],
        on_beat: Callable[[Tail, Beat], None],
        metrics: Metrics,
    ) -> None:
        self.last_beat = 0.0
        """Loop time of the last answered beat; 0 before the first."""
        self._replica = replica
        self._store = store
        self._tails = tails
        self._on_break = on_break
        self._on_beat = on_beat
        self._metrics = metrics
        self._missed = dict.fromkeys(tails, 0)
        self._behind = dict.fromkeys(tails, 0)
        self._answered = dict.fromkeys(tails, 0.0)
        self._lag = dict.fromkeys(tails, 0)

    def is_deaf(self, now: float) -> bool:
        """Whether a reader brings nothing for `DEAF_AFTER` seconds while its log's beats are answered."""
        return any(self.is_up(tail, now) and now - tail.last_read > DEAF_AFTER for tail in self._tails)

    def is_answered(self, now: float) -> bool:
        """Whether the last heartbeats of every log were answered."""
        return all(self.is_up(tail, now) for tail in self._tails)

    def is_up(self, tail: Tail, now: float) -> bool:
        """Whether the last heartbeats of one log were answered."""
        return now - self._answered[tail] <= 2 * INTERVAL + QUIET

    def lag(self, tail: Tail) -> int:
        """How many entries of a log had not been read at its last heartbeat."""
        return self._lag[tail]

    async def run(self) -> None:
        """Beat for ever, for each log by itself: on a cluster one node may be silent while others answer."""
        async with asyncio.TaskGroup() as group:
            for tail in self._tails:
                group.create_task(self._beat_forever(tail), name=f"heart {tail.number}")

    async def _beat_forever(self, tail: Tail) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._beat(tail)
            except BrokerError as error:
                self._missed[tail] += 1
                if self._missed[tail] == MISSED:
                    _log.warning("heartbeat_missed", extra={"log": tail.number, "error": str(error)})
            except Exception:  # a bug in one beat must not stop the heart
                self._missed[tail] += 1
                _log.exception("heartbeat_failed", extra={"log": tail.number})
            await asyncio.sleep(max(0.0, started + INTERVAL - loop.time()))

    async def _beat(self, tail: Tail) -> None:
        asked_at = tail.cursor.n
        beat = await self._store.beat(tail.number, self._replica)
        now = asyncio.get_running_loop().time()
        self.last_beat = self._answered[tail] = now
        self._lag[tail] = max(0, beat.head.n - tail.cursor.n) if beat.head.epoch == tail.epoch else 0
        if tail.number == 0:
            for each in self._tails:
                each.replicas = max(1, len(beat.replicas))
        self._on_beat(tail, beat)
        if self._missed[tail] >= MISSED:
            self._on_break(tail, Discontinuity.RECONNECT)
        self._missed[tail] = 0
        if not tail.has_stood:
            return
        why = Discontinuity.EPOCH if beat.head is NO_HEAD else tail.cursor.check(beat.head, asked_at)
        if why is not None:
            await tail.jump(why)
        else:
            await self._listen_again_if_deaf(tail, beat, now)

    async def _listen_again_if_deaf(self, tail: Tail, beat: Beat, now: float) -> None:
        if not tail.cursor.is_behind(beat.head):
            self._behind[tail] = 0
            return
        if now - tail.last_entry <= QUIET:
            self._metrics.reader_late()
            self._behind[tail] = 0
            return
        self._behind[tail] += 1
        if self._behind[tail] >= MISSED:
            self._behind[tail] = 0
            self._metrics.reader_deaf()
            _log.warning("log_reader_deaf", extra={"log": tail.number})
            await tail.reconnect()
