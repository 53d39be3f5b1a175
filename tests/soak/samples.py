"""What is watched while a soak runs, and whether it grows.

The first part of a run is left out: idempotency tokens live ten minutes and the log fills up to its length,
so only then nothing has a reason to grow. Of the rest a straight line is fitted; it grows if the line rises
by more than three times what the samples scatter around it and by more than a hundredth of the level.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import redis

from tests.support.replica import Replica

PAGE = 4096
SCATTERS = 3.0
SHARE = 0.01


@dataclass
class Series:
    """One quantity over time. Times in seconds since the start."""

    name: str
    unit: str
    times: list[float] = field(default_factory=list[float])
    values: list[float] = field(default_factory=list[float])

    def add(self, at: float, value: float) -> None:
        self.times.append(at)
        self.values.append(value)

    def trend(self, begin: float) -> "Trend":
        """Return how it went from `begin` on."""
        chosen = [each for each in zip(self.times, self.values, strict=True) if each[0] >= begin]
        if len(chosen) < 3:
            raise ValueError(f"{self.name}: too few samples after {begin:.0f} s; run longer.")
        times, values = zip(*chosen, strict=True)
        line = statistics.linear_regression(times, values)
        around = [v - (line.slope * t + line.intercept) for t, v in chosen]
        return Trend(
            level=statistics.fmean(values),
            rise=line.slope * (times[-1] - times[0]),
            scatter=statistics.pstdev(around),
            hours=(times[-1] - times[0]) / 3600,
        )


@dataclass(frozen=True)
class Trend:
    """A fitted line: its mean, how much it rises over its length, how the samples scatter around it."""

    level: float
    rise: float
    scatter: float
    hours: float

    @property
    def grows(self) -> bool:
        return self.rise > SCATTERS * self.scatter and self.rise > SHARE * self.level


class Watch:
    """Samples the replicas and Redis."""

    def __init__(self, replicas: Sequence[Replica], client: redis.Redis) -> None:
        self._replicas = replicas
        self._redis = client
        self.series: dict[str, Series] = {}

    def sample(self, at: float) -> None:
        """Take one sample of everything. Blocks for some milliseconds."""
        for name, unit, value in self._read():
            self.series.setdefault(name, Series(name, unit)).add(at, value)

    def _read(self) -> Iterator[tuple[str, str, float]]:
        for replica in self._replicas:
            pid = Path("/proc") / str(replica.process.pid)
            pages = int((pid / "statm").read_text().split()[1])
            yield f"{replica.name} memory", "MB", pages * PAGE / 1e6
            yield f"{replica.name} descriptors", "", float(sum(1 for _ in (pid / "fd").iterdir()))
            gauges = _gauges(replica.health("metrics")[1])
            yield f"{replica.name} tasks", "", gauges["broker_tasks_running"]
            yield f"{replica.name} watched", "", gauges["broker_resources_watched"]
        client = cast("Any", self._redis)  # its replies are untyped
        info: dict[str, Any] = client.info()
        yield "Redis memory", "MB", info["used_memory"] / 1e6
        yield "Redis keys", "", float(client.dbsize())
        yield "Redis clients", "", float(info["connected_clients"])


def _gauges(page: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}
