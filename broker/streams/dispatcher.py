"""Writes what marked connections have still to be told, a slice at a time.

One place decides when sockets are written: after a batch of entries was applied to the hub, each dirty
connection is flushed once. Between slices the loop runs, so a key with ten thousand watchers delays nobody
by more than a slice.
"""

import asyncio
import time
from collections import deque
from typing import Any, Generic, TypeVar

from broker.core.hub import Hub, Topic
from broker.streams.connection import Connection
from broker.telemetry.metrics import Metrics

W = TypeVar("W")

SLICE = 256
"""Connections flushed before the loop runs again: about 3 ms at 11 µs each."""
LIST_HOLD_SECONDS = 1.0
CLOCK_STEP_SECONDS = 1.0
CLOCK_DRIFT_SECONDS = 0.0005
"""Between two heartbeats."""


class Dispatcher(Generic[W]):
    """The queue of dirty connections of one replica; owns the once-a-second rule for list cues."""

    def __init__(self, hub: Hub[W], metrics: Metrics) -> None:
        self._hub = hub
        self._metrics = metrics
        self._dirty: deque[Connection[Any]] = deque()
        self._is_scheduled = False
        self._oldest = 0.0
        self._ahead: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self._dirty)} dirty>"

    def add(self, connection: Connection[Any]) -> None:
        """Line `connection` up; it is flushed soon, in the order of marking."""
        self._dirty.append(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def published(self, log: int, at_ms: int) -> None:
        """Note when a change in that log was published that is to be told; 0 if its entry does not say."""
        if not self._oldest and at_ms:
            self._oldest = at_ms / 1000 - self._ahead.get(log, 0.0)

    @property
    def clock_ahead(self) -> float:
        """By how many seconds the clock of Redis is ahead of ours; of several the one that is most off."""
        return max(self._ahead.values(), key=abs, default=0.0)

    def clock_read(self, log: int, server_ms: int) -> None:
        """Take in what the clock of Redis said just now, where that log is.

        What the answer took on its way makes Redis look behind, so the greatest difference is the truest; it
        is let go slowly, for clocks that are set.
        """
        sample = server_ms / 1000 - time.time()
        ahead = self._ahead.get(log, sample)
        is_near = abs(sample - ahead) < CLOCK_STEP_SECONDS
        self._ahead[log] = max(sample, ahead - CLOCK_DRIFT_SECONDS) if is_near else sample

    def _run(self) -> None:
        told = 0
        for _ in range(min(SLICE, len(self._dirty))):
            told += self._dirty.popleft().flush()
        self._metrics.cues_written(told)
        loop = asyncio.get_running_loop()
        if self._dirty:
            loop.call_soon(self._run)
            return
        self._is_scheduled = False
        if self._oldest:
            self._metrics.batch_told(max(0.0, time.time() - self._oldest))
            self._oldest = 0.0
        for topic in self._hub.hold():
            loop.call_later(LIST_HOLD_SECONDS, self._release, topic)

    def _release(self, topic: Topic[W]) -> None:
        self._hub.release(topic)
