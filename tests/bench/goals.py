"""What was to be reached, and whether a run reached it. Pure.

A goal that was missed is shown with its reason; `REASONS` has one for each that ever was.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.results import Results, Row
from tests.bench.table import NONE, median, number, ratios, times, values

NOISE = 1.25
"""What is called independent may differ by this much: single runs differ by that."""


Measure = Callable[[Results], float | None]


@dataclass(frozen=True, slots=True)
class Bound:
    """One number to be reached: at most, or at least, `limit`."""

    text: str
    limit: float
    measure: Measure
    show: Callable[[float | None], str] = number
    is_most: bool = True

    def verdict(self, results: Results) -> tuple[str, bool | None]:
        """Return what was measured, and whether that is good enough (None: it was not measured)."""
        found = self.measure(results)
        if found is None:
            return NONE, None
        return self.show(found), found <= self.limit if self.is_most else found >= self.limit


@dataclass(frozen=True, slots=True)
class Goal:
    """One row: `name` is the key of its reason."""

    name: str
    what: str
    bounds: tuple[Bound, ...]


def _ratio(scenario: str, system: str, other: str, field: str = "cpu_us") -> Measure:
    return lambda results: median(ratios(results, scenario, system, other, field))


def _less(scenario: str, system: str, other: str, field: str = "cpu_us") -> Measure:
    return lambda results: median([1 / one for one in ratios(results, scenario, system, other, field)])


def _figure(scenario: str, system: str, field: str, x: float = 0, factor: float = 1) -> Measure:
    def measure(results: Results) -> float | None:
        found = median(values(results, scenario, system, field, x))
        return None if found is None else found * factor

    return measure


def _grown(scenario: str, field: str, low: float, high: float) -> Measure:
    """Return how much more the high end costs than the low one."""

    def measure(results: Results) -> float | None:
        first, last = (median(values(results, scenario, "broker", field, x)) for x in (low, high))
        return None if first is None or last is None else last / first

    return measure


def _with_redis(results: Results) -> float | None:
    """Return what a cue costs against nchan's, both with their Redis."""
    theirs = {row["round"]: _whole(row) for row in results.of("many-uris", "nchan-redis")}
    ours = [row for row in results.of("many-uris", "broker") if row["round"] in theirs]
    return median([_whole(row) / theirs[row["round"]] for row in ours])


def _whole(row: Row) -> float:
    return float(row["cpu_us"]) + float(row["store_cpu_us"])


def _opened(system: str) -> Measure:
    def measure(results: Results) -> float | None:
        cost = median(values(results, "idle", system, "open_cpu_us"))
        return None if cost is None else 1e6 / cost

    return measure


def _spread(results: Results) -> float | None:
    found = [median(values(results, "cue-by-replicas", "broker", "cpu_us", x)) for x in (1, 2, 4)]
    known = [one for one in found if one is not None]
    return max(known) / known[0] if len(known) == len(found) else None


def _milli(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} ms"


def _micro(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f} µs"


def _kilo(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f} KB"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.2%}"


def _against(system: str, nchan: float, tuned: float, typescript: float) -> tuple[Bound, ...]:
    return (
        Bound(f"≤ {nchan} x nchan", nchan, _ratio("one-uri", system, "nchan"), times),
        Bound(
            f"≥ {tuned} x less than the tuned Python SDK", tuned,
            _less("one-uri", system, "python-sdk-tuned"), times, is_most=False,
        ),
        Bound(
            f"≥ {typescript} x less than the TypeScript SDK", typescript,
            _less("one-uri", system, "typescript-sdk"), times, is_most=False,
        ),
    )  # fmt: skip


GOALS = (
    Goal("one-uri", "S1: a cue to one of 2,000 streams on one URI, as it comes", (
        *_against("broker", 1.1, 12, 2.2),
        Bound("≥ 20 x less than the Python SDK", 20, _less("one-uri", "broker", "python-sdk"), times,
              is_most=False),
    )),
    Goal("one-uri-portable", "S1, portable", _against("broker-portable", 1.4, 8, 1.7)),
    Goal("many-uris", "S2: a cue, 2,000 URIs round robin", (
        Bound("≤ 0.8 x nchan", 0.8, _ratio("many-uris", "broker", "nchan"), times),
        Bound("≤ 0.3 x nchan with Redis, both with theirs", 0.3, _with_redis, times),
        Bound("≥ 40 x less than the Python SDK with Redis", 40,
              _less("many-uris", "broker", "python-sdk-redis"), times, is_most=False),
    )),
    Goal("lone", "S4: a publish, 9,000 streams open against 100", (
        Bound("the same", NOISE, _grown("lone-by-streams", "cpu_us_per_publish", 100, 9000), times),
    )),
    Goal("bursts", "S5: bursts to slow readers", (
        Bound("≤ 0.3 x nchan a publish and subscriber", 0.3,
              _ratio("bursts", "broker", "nchan", "burst_cpu_us"), times),
        Bound("memory of a stream that is not read grows ≤ 4 KB", 4,
              _figure("flood", "broker", "burst_growth_kb"), _kilo),
    )),
    Goal("unwatched", "a publish nobody watches, under load", (
        Bound("≤ 2 µs a replica", 2, _figure("unwatched", "broker", "cpu_us_per_publish"), _micro),
    )),
    Goal("idle", "5,000 idle streams with keep-alives", (
        Bound("≤ 13 KB, modern", 13, _figure("idle", "broker", "stream_kb"), _kilo),
        Bound("≤ 13 KB, handshake", 13, _figure("idle", "broker-handshake", "stream_kb"), _kilo),
        Bound("≤ 1 % of a core", 0.01, _figure("idle", "broker", "idle_core"), _percent),
    )),
    Goal("prompt", "publish to cue, three replicas, 100 publishes a second", (
        Bound("p50 ≤ 2 ms", 2, _figure("prompt", "broker", "p50_ms"), _milli),
        Bound("p99 ≤ 10 ms", 10, _figure("prompt", "broker", "p99_ms"), _milli),
        Bound("never above 50 ms", 50, _figure("prompt", "broker", "max_ms"), _milli),
    )),
    Goal("open", "opening streams, a second and core", (
        Bound("≥ 1,500 listens", 1500, _opened("broker"), is_most=False),
        Bound("≥ 1,500 GETs", 1500, _opened("broker-handshake"), is_most=False),
    )),
    Goal("read", "a stored read", (
        Bound("≥ 3 x the SDK's static resource a second", 3,
              _ratio("read", "broker", "python-sdk", "answers_s"), times, is_most=False),
    )),
    Goal("page", "a page of 100, out of 1,000,000 resources against 1,000", (
        Bound("the same", NOISE, _grown("page", "cpu_us", 1000, 1_000_000), times),
    )),
    Goal("replicas", "a cue, 2,000 streams on 1, 2 or 4 replicas", (
        Bound("within 25 %", 1.25, _spread, times),
    )),
)  # fmt: skip

REASONS: dict[str, str] = {
    "one-uri-portable": (
        "the write is the same as nchan's; what is more is uvicorn's own `send` between (a message dict, "
        "its checks, a chunk's head joined anew), 3 to 4 µs a cue, which the fast writer leaves out. That "
        "is why it is the default where this uvicorn is known."
    ),
    "many-uris": (
        "65 % of the replica's samples are one system call, the write of a cue to its socket; 13 % are "
        "the log (read, decode, cursor), 6 % the hub. That is about 20 µs a write, where in S1 a whole "
        "cue costs 8: the publish script takes Redis 60 to 90 µs, so changes come at 8,000 to 10,000 a "
        "second, some 20 at a time, and (we think) most writes find their client asleep and wake it on "
        "the other core. nchan's changes come over HTTP into the same process, and it pays 16 µs where it "
        "paid 7 to 9. The prototype reached 0.54 x, with a bare XADD of 6 µs in place of the script. With "
        "Redis it is the script as well: two thirds of what is compared."
    ),
    "bursts": (
        "a quarter of what is counted is the idle 1.5 s after each burst in which the harness makes sure "
        "that nothing more comes; the rest is one write for 20 changes, and the entries."
    ),
    "unwatched": (
        "an entry that nobody watches is passed over undecoded, in about 1 µs (8 % of the samples); the "
        "rest is the fixed price of a read with its wake-up, system calls and pause. Redis runs one "
        "script in 60 to 80 µs, so some 25 entries come with a read, however hard one publishes."
    ),
    "idle": (
        "a modern stream holds a connection, uvicorn's protocol and request cycle, and asyncio's task and "
        "transport: 13.0 KB where 2,000 share one URI, 13.3 with a topic of its own each. A handshake "
        "stream has its session's state besides, 3 KB. Of the idle CPU about half is 333 keep-alive "
        "writes a second, at 20 µs for clients that sleep."
    ),
    "open": (
        "of opening a listen 19 % is the script that reads the revision (redis-py's part of it 15 %), 9 % "
        "the quotas (6 % of it `dataclasses.asdict` of the limits), 7 % uvicorn's head, 5 % the guard's "
        "look at the streams. A GET, which was not profiled, also takes the session by a script."
    ),
    "read": (
        "about half is HTTP on uvicorn's side, which the SDK pays as well; of the rest the answer's head "
        "is 14 %, quotas 10 % (7 % of it `dataclasses.asdict`), Redis 15 %. The SDK's static resource "
        "asks nobody: no tenant, no quota, no Redis."
    ),
    "replicas": (
        "every replica reads every entry (a log that all tail), and in S2 an entry has one cue on one "
        "replica, so three of four replicas pay the unwatched price above for it: 3 x 9.5 of the 42 µs "
        "that four replicas cost more. Where a change has watchers on each replica, as in S1, it vanishes "
        "among them."
    ),
}
"""Why a goal was missed: the physical reason, found by a profile."""
