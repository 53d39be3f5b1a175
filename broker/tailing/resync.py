"""Repairs what a broken log may have hidden: compares every watched key with Redis, by inequality.

Rules:

1. The tail already stands at the head and goes on; the comparison runs beside it. An answer for a key that an
   entry has touched since the question is dropped (the hub's `observe`).
2. Sessions first: what is watched may have changed in the gap. Lists before resources.
3. One at a time of each log, the next at least a second later. After an epoch change it starts at a random
   point of the first half second, since every replica of the fleet has just seen the same.
4. Until it is done the tail is not settled: ids prove nothing meanwhile.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from broker.core.hub import Hub, Topic
from broker.core.log import Discontinuity
from broker.store.keys import Keys
from broker.store.log import REVISIONS_PER_CALL, LogStore
from broker.tailing.tail import Tail
from broker.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

MIN_PAUSE = 1.0
SPREAD = 0.5
CUES_PER_SECOND = 20_000
"""Cues that the resyncs of all logs release; more would be a burst on every socket of the fleet at once."""


class Resync:
    """The comparison of one replica. `reload` brings the sessions of a log up to date first."""

    def __init__(
        self,
        tails: Sequence[Tail],
        hub: Hub[Any],
        store: LogStore,
        keys: Keys,
        *,
        reload: Callable[[Tail, bool], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        self._hub = hub
        self._store = store
        self._keys = keys
        self._reload = reload
        self._metrics = metrics
        self._wanted: dict[Tail, Discontinuity] = {}
        self._wake = {tail: asyncio.Event() for tail in tails}

    def __repr__(self) -> str:
        return f"<Resync wanted={[why.value for why in self._wanted.values()]}>"

    def request(self, tail: Tail, why: Discontinuity) -> None:
        """Compare the keys of `tail` soon. Asking again while one is due asks for the graver one."""
        tail.is_settled = False
        earlier = self._wanted.get(tail)
        if earlier is None or why.gravity > earlier.gravity:
            self._wanted[tail] = why
        self._wake[tail].set()

    async def run(self) -> None:
        """Serve requests for ever."""
        async with asyncio.TaskGroup() as group:
            for tail in self._wake:
                group.create_task(self._serve(tail), name=f"resync {tail.number}")

    async def _serve(self, tail: Tail) -> None:
        wake = self._wake[tail]
        while True:
            await wake.wait()
            if self._wanted[tail] is Discontinuity.EPOCH:
                await asyncio.sleep(random.uniform(0, SPREAD))
            why = self._wanted.pop(tail)
            wake.clear()
            try:
                await self._compare(tail, why)
            except Exception as error:
                _log.warning("resync_failed", extra={"log": tail.number, "error": str(error)})
                self.request(tail, why)
            else:
                if tail not in self._wanted:
                    tail.is_settled = True
            await asyncio.sleep(MIN_PAUSE)

    async def _compare(self, tail: Tail, why: Discontinuity) -> None:
        self._metrics.resync_ran(why.value)
        if why is not Discontinuity.RECONNECT:
            await self._reload(tail, why.may_have_lost)
        topics = [topic for topic in self._hub if self._keys.log_number(topic.key.tenant) == tail.number]
        topics.sort(key=lambda topic: not topic.key.is_list)
        told = 0
        for start in range(0, len(topics), REVISIONS_PER_CALL):
            owed = await self._compare_some(tail, topics[start : start + REVISIONS_PER_CALL])
            told += owed
            await asyncio.sleep(owed * len(self._wake) / CUES_PER_SECOND)
        self._metrics.resync_told(told)
        if told or why.may_have_lost:
            _log.info("resync_done", extra={"why": why.value, "keys": len(topics), "cues": told})

    async def _compare_some(self, tail: Tail, topics: list[Topic[Any]]) -> int:
        asked_at = tail.cursor.tick
        standings = await self._store.standings([topic.key for topic in topics])
        return sum(
            self._hub.observe(topic, standing.stamp.revision, asked_at, standing.rule)
            for topic, standing in zip(topics, standings, strict=True)
        )
