"""Every scenario of the table and of the plots, and its two-minute version.

Counts are such that a run takes seconds; who needs minutes for them gets fewer publishes, and the same
streams.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.bench.ours import Broker, writer
from tests.bench.peers import Nchan, PythonSdk, TypescriptSdk
from tests.bench.plan import Audience
from tests.bench.scenario import Entrant, Load, Scenario
from tests.bench.target import System

SLOW = 5
"""How many times fewer publishes the SDKs get."""


def broker(replicas: int = 1) -> Callable[[], System]:
    """Return ours as it comes: the writer that it chooses itself."""
    return lambda: Broker("broker", replicas=replicas, settings=writer("auto"))


def crowd(replicas: int) -> Callable[[], System]:
    """Return one replica with streams, and the others as readers of the log."""
    return lambda: Broker("broker", readers=replicas - 1, settings=writer("auto"))


def unpaced(replicas: int) -> Callable[[], System]:
    """Return the same, with readers that never wait."""
    return lambda: Broker("broker-unpaced", readers=replicas - 1, is_paced=False, settings=writer("auto"))


def portable() -> System:
    return Broker("broker-portable", settings=writer("portable"))


def handshake() -> System:
    return Broker("broker-handshake", era="handshake", settings=writer("auto"))


def nchan() -> System:
    return Nchan("nchan")


def nchan_redis() -> System:
    return Nchan("nchan-redis", has_redis=True)


def python_sdk() -> System:
    return PythonSdk("python-sdk")


def python_tuned() -> System:
    return PythonSdk("python-sdk-tuned", is_tuned=True)


def python_redis() -> System:
    return PythonSdk("python-sdk-redis", has_redis=True)


def _grown(
    values: Sequence[int],
    make: Callable[[int], Callable[[], System]],
    load: Callable[[int], Load],
    rounds: int,
) -> list[Entrant]:
    return [Entrant(make(value), rounds, load=load(value), x=value) for value in values]


ONE_URI = Load(Audience(2000, 1), flat_count=50)
MANY_URIS = Load(Audience(2000, 2000), published=2000, flat_count=10_000, window=100)
LONE = Load(Audience(5000, 5000), flat_count=1000)
BURSTS = Load(Audience(2000, 1), burst=20, repeat=3, slow_ms=300, receive_buffer=2048)
FLOOD = Load(Audience(100, 1), burst=3000, repeat=1, gap_us=200, slow_ms=1000, receive_buffer=2048)
UNWATCHED = Load(Audience(2000, 2000), published=0, flat_count=10_000)
IDLE = Load(Audience(5000, 5000), idle_ms=16_000)
PROMPT = Load(Audience(3000, 3000), published=3000, rate=100, rate_count=1500)
TAILED = Load(Audience(30, 30), published=0, rate=2000, rate_count=6000)


def _table() -> list[Scenario]:
    return [
        Scenario("one-uri", "S1: 2,000 streams on one URI", ONE_URI, [
            Entrant(broker(), 5), Entrant(nchan, 5), Entrant(portable, 5), Entrant(handshake, 2),
            Entrant(python_sdk, 2, SLOW), Entrant(python_tuned, 2, SLOW), Entrant(TypescriptSdk, 2, SLOW),
        ]),
        Scenario("many-uris", "S2: 2,000 URIs round robin, a stream each", MANY_URIS, [
            Entrant(broker(), 5), Entrant(nchan, 5), Entrant(nchan_redis, 5), Entrant(portable, 2),
            Entrant(handshake, 2), Entrant(python_sdk, 2, SLOW), Entrant(python_redis, 2, SLOW),
            Entrant(TypescriptSdk, 2, SLOW),
        ]),
        Scenario("lone", "S4: one watcher among 5,000 streams", LONE, [
            Entrant(broker(), 1), Entrant(nchan, 1), Entrant(nchan_redis, 1), Entrant(python_sdk, 1, 20),
        ]),
        Scenario("bursts", "S5: bursts of 20 to 2,000 streams that do not read", BURSTS, [
            Entrant(broker(), 5), Entrant(nchan, 5), Entrant(portable, 2), Entrant(TypescriptSdk, 1, SLOW),
        ]),
        Scenario("flood", "S6: 3,000 publishes while 100 streams do not read", FLOOD, [
            Entrant(broker(), 1), Entrant(nchan, 1), Entrant(TypescriptSdk, 1),
        ]),
        Scenario("unwatched", "a publish nobody watches, 2,000 streams open", UNWATCHED, [
            Entrant(broker(), 2), Entrant(nchan, 2), Entrant(python_sdk, 1, SLOW),
            Entrant(TypescriptSdk, 1, SLOW),
        ]),
        Scenario("idle", "5,000 idle streams: opening one, keeping it", IDLE, [
            Entrant(broker(), 1), Entrant(handshake, 1), Entrant(nchan, 1), Entrant(python_sdk, 1),
            Entrant(TypescriptSdk, 1),
        ]),
        Scenario("prompt", "publish to cue: three replicas, 100 publishes a second", PROMPT, [
            Entrant(broker(3), 2), Entrant(nchan, 1),
        ]),
    ]  # fmt: skip


def _growth() -> list[Scenario]:
    lone = _grown((100, 1000, 9000), lambda _: broker(), lambda n: replace(LONE, audience=Audience(n, n)), 2)
    streams = _grown(
        (250, 1000, 9000), lambda _: broker(),
        lambda n: Load(Audience(n, 1), flat_count=80_000 // n), 1,
    )  # fmt: skip
    uris = _grown(
        (2000, 20_000, 100_000), lambda _: broker(),
        lambda n: replace(MANY_URIS, audience=Audience(2000, n, each=n // 2000), at_once=8), 1,
    )  # fmt: skip
    tenants = _grown(
        (1, 10, 100, 1000), lambda _: broker(),
        lambda n: replace(MANY_URIS, audience=Audience(2000, 2000 // n, tenants=n), at_once=8), 1,
    )  # fmt: skip
    tailed = [
        *_grown((1, 3, 10, 30), crowd, lambda _: TAILED, 1),
        *_grown((3, 10, 30), unpaced, lambda _: TAILED, 1),
    ]
    return [
        Scenario("lone-by-streams", "S4: one publish, by the streams that do not watch it", LONE, lone),
        Scenario("cue-by-streams", "S1: one cue, by the streams on one URI", ONE_URI, streams),
        Scenario("cue-by-uris", "S2: one cue, by the URIs that 2,000 streams watch", MANY_URIS, uris),
        Scenario("cue-by-tenants", "S2: one cue, by the tenants of 2,000 streams", MANY_URIS, tenants),
        Scenario("cue-by-replicas", "S2: one cue, by the replicas that share 2,000 streams", MANY_URIS,
                 _grown((1, 2, 4), broker, lambda _: MANY_URIS, 1)),
        Scenario("tailing", "Redis' share of one change at 2,000/s, by the replicas", TAILED, tailed),
    ]  # fmt: skip


FULL = [*_table(), *_growth()]


def _small(load: Load) -> Load:
    audience = load.audience
    streams = min(audience.streams, 300)
    # As many of each other as before, or fewer: every stream still has a whole number of URIs.
    uris = max(audience.each, min(audience.uris, 300 * audience.each))
    return replace(
        load,
        audience=replace(audience, streams=streams, uris=uris),
        published=min(load.published, audience.tenants * uris),
        flat_count=min(load.flat_count, 500 if load.published != 1 else 10),
        rate_count=min(load.rate_count, 150),
        idle_ms=min(load.idle_ms, 1000),
        repeat=min(load.repeat, 1),
        burst=min(load.burst, 500),
    )


def smoke() -> list[Scenario]:
    """Return the table once around, small: whether all of it runs and is exact."""
    return [
        replace(
            scenario,
            load=_small(scenario.load),
            entrants=[replace(entrant, rounds=1) for entrant in scenario.entrants],
        )
        for scenario in _table()
    ]
