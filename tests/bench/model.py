"""What a large installation needs, from the figures of one run: Redis, replicas, cells.

    .venv/bin/python -m tests.bench.model [cells …]

Every replica tails every change of its cell, so a node of Redis pays for a change three times: the script
once, each wake-up of a reader, and each reader's copy of the entry:

    µs a change = script + wakes * wake + replicas * entry
    wakes a change = replicas * min(1, 1 / (changes a second * pace(replicas)))

`script`, `wake` and `entry` are fitted to the runs with 1, 10 and 30 replicas; the one with 3 is the check.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.tailing import tail
from tests.bench.results import Results, load, newest
from tests.bench.table import median, values

TAILED_RATE = 2000.0
"""Changes a second in the runs that the model is fitted to."""
FITTED = (1, 10, 30)
CHECKED = 3
WAKE_US = range(61)
"""What a wake-up may cost: three runs are too few to find it beside two others but within bounds."""
BUSY = 0.6
"""How much of a core may be planned for: the rest is for what a lost replica's clients bring."""

ENTRY_BYTES = 240
"""An entry as a reader gets it, with a URI of 60 bytes."""
LOG_BYTES = 200
RESOURCE_BYTES = 1800
"""A resource with 1 KB of contents in Redis."""
SESSION_BYTES = 1000
CUE_BYTES = 230


def pace(replicas: float) -> float:
    """Return how many seconds a reader waits after a read that brought entries."""
    return min(tail.PACE_MAX, max(tail.PACE_MIN, replicas * tail.PACE_PER_REPLICA))


def wakes(replicas: float, changes: float) -> float:
    """Return how many wake-ups of readers one change costs."""
    return replicas * min(1.0, 1.0 / (changes * pace(replicas)))


@dataclass(frozen=True, slots=True)
class Costs:
    """What one of each costs, in µs of CPU and in KB."""

    script_us: float
    wake_us: float
    entry_us: float
    applied_us: float
    """A replica's part of a change that nobody on it watches."""
    cue_us: float
    stream_kb: float
    replica_kb: float
    idle_us: float
    """An idle stream's CPU in a second."""

    def redis_us(self, replicas: float, changes: float) -> float:
        """Return a node's CPU for one change, of `changes` a second."""
        return self.script_us + wakes(replicas, changes) * self.wake_us + replicas * self.entry_us


@dataclass(frozen=True, slots=True)
class Installation:
    """What is wanted."""

    streams: float = 1_000_000
    replicas: float = 100
    tenants: float = 10_000
    changes: float = 50_000
    """Publishes a second."""
    cues: float = 2
    """Cues of one change."""
    resources: float = 1_000_000
    sessions: float = 500_000
    log_entries: float = 6_000_000
    """Two minutes of changes."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one cell of an installation needs."""

    cells: int
    redis_core: float
    redis_mb_s: float
    redis_gb: float
    replica_core: float
    replica_gb: float

    @property
    def is_enough(self) -> bool:
        return self.redis_core <= BUSY and self.replica_core <= BUSY


def fit(measured: Callable[[int], float], costs: Callable[[float, float, float], Costs]) -> Costs:
    """Return the costs that come nearest to the measured µs a change; none of them is negative."""
    found = [measured(replicas) for replicas in FITTED]

    def line(wake: float) -> tuple[float, float, float]:
        """Return how far off the best line is with this price of a wake-up, the script's and an entry's."""
        rest = [us - wake * wakes(n, TAILED_RATE) for n, us in zip(FITTED, found, strict=True)]
        entry, script = statistics.linear_regression(FITTED, rest)
        entry, script = max(0.0, entry), max(0.0, script)
        return (
            sum((one - script - entry * n) ** 2 for n, one in zip(FITTED, rest, strict=True)),
            script,
            entry,
        )

    wake = min(WAKE_US, key=lambda price: line(price)[0])
    _, script, entry = line(wake)
    return costs(script, wake, entry)


def measured_us(results: Results, replicas: int, system: str = "broker") -> float:
    """Return Redis' µs for one change at 2,000 a second with so many replicas."""
    found = median(values(results, "tailing", system, "rate_store_cpu_us_per_publish", replicas))
    assert found is not None, f"the results have no exact run of tailing with {replicas} replicas"
    return found


def costs_of(results: Results) -> Costs:
    """Return the costs that a run found."""

    def one(scenario: str, field: str, system: str = "broker", x: float = 0) -> float:
        found = median(values(results, scenario, system, field, x))
        assert found is not None, f"the results have no {field} of {scenario}"
        return found

    def costs(script: float, wake: float, entry: float) -> Costs:
        return Costs(
            script_us=script,
            wake_us=wake,
            entry_us=entry,
            applied_us=one("unwatched", "cpu_us_per_publish"),
            cue_us=one("many-uris", "cpu_us"),
            stream_kb=one("idle", "stream_kb"),
            replica_kb=one("idle", "base_kb"),
            idle_us=one("idle", "idle_core") * 1e6 / one("idle", "streams"),
        )

    return fit(lambda replicas: measured_us(results, replicas), costs)


def need(costs: Costs, wanted: Installation, cells: int) -> Need:
    """Return what each of `cells` equal cells needs."""
    replicas, changes = wanted.replicas / cells, wanted.changes / cells
    streams = wanted.streams / wanted.replicas
    cues = wanted.changes * wanted.cues / wanted.replicas
    stored = wanted.log_entries * LOG_BYTES + wanted.resources * RESOURCE_BYTES
    stored += wanted.sessions * SESSION_BYTES
    return Need(
        cells=cells,
        redis_core=costs.redis_us(replicas, changes) * changes / 1e6,
        redis_mb_s=changes * replicas * ENTRY_BYTES / 1e6,
        redis_gb=stored / cells / 1e9,
        replica_core=(changes * costs.applied_us + cues * costs.cue_us + streams * costs.idle_us) / 1e6,
        replica_gb=(costs.replica_kb + streams * costs.stream_kb) / 1e6,
    )


def lines(results: Results, cells: Sequence[int]) -> list[str]:
    """Return the model's page in Markdown: the costs, the check, and what cells need."""
    costs, wanted = costs_of(results), Installation()
    checked = measured_us(results, CHECKED)
    predicted = costs.redis_us(CHECKED, TAILED_RATE)
    needs = [need(costs, wanted, count) for count in cells]
    first = next((one.cells for one in needs if one.is_enough), None)
    fitted = (
        f"Fitted: {costs.script_us:.0f} µs a script, {costs.wake_us:.1f} a wake-up, {costs.entry_us:.2f} "
        f"µs a reader's entry. The check with {CHECKED} replicas: {predicted:.0f} µs predicted, "
        f"{checked:.0f} measured ({predicted / checked - 1:+.0%})."
    )
    asked = (
        f"{wanted.streams:,.0f} streams, {wanted.replicas:,.0f} replicas, {wanted.tenants:,.0f} tenants, "
        f"{wanted.changes:,.0f} publishes a second with {wanted.cues:g} cues each:"
    )
    rows = (
        f"| {one.cells} | {wanted.replicas / one.cells:g} | {wanted.changes / one.cells:,.0f} "
        f"| {one.redis_core:.0%} | {one.redis_mb_s:,.0f} MB/s | {one.redis_gb:.1f} GB "
        f"| {one.replica_core:.0%} | {one.replica_gb:.2f} GB |"
        for one in needs
    )
    verdict = (
        f"With at most {BUSY:.0%} of a core planned for, {first} cells are the fewest of these."
        if first
        else f"None of these stays below {BUSY:.0%} of a core."
    )
    return [fitted, "", asked, "", *HEAD, *rows, "", verdict]


COLUMNS = (
    *("cells", "replicas each", "publishes/s each", "Redis, of a core", "Redis sends", "Redis holds"),
    *("a replica, of a core", "a replica holds"),
)
HEAD = (f"| {' | '.join(COLUMNS)} |", "|" + "---:|" * len(COLUMNS))
CELLS = (1, 2, 4, 5, 10, 20)


def main() -> None:
    """Print the model of the newest results."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.model", description=__doc__)
    parser.add_argument("cells", nargs="*", type=int, default=list(CELLS))
    for line in lines(load(newest()), parser.parse_args().cells):
        print(line)  # noqa: T201 # its purpose


if __name__ == "__main__":
    main()
