"""What an operator sees is what happened, bounded, and documented."""

import timeit
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from broker.core.errors import BrokerError
from broker.core.log import Discontinuity
from broker.streams.connection import CloseReason
from broker.telemetry import catalogue
from broker.telemetry.catalogue import CATALOGUE, PROCESS, SERIES
from broker.telemetry.exposition import Exposition
from broker.telemetry.metrics import Metrics
from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet, Replica
from tests.support.wait import until
from workers import Publisher

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "metrics.md"


def samples(page: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def value(page: str, name: str, **labels: str) -> float | None:
    """Return the sum of the series of `name` that have `labels`; None without any."""
    found = [s.value for s in samples(page) if s.name == name and labels.items() <= s.labels.items()]
    return sum(found) if found else None


def metrics_page(replica: Replica) -> str:
    status, page = replica.health("metrics")
    assert status == 200
    return page


def families(page: str) -> set[str]:
    """Return the metrics of a page by the names that its HELP lines give them."""
    return {line.split()[2] for line in page.splitlines() if line.startswith("# HELP ")}


def shown(metrics: Metrics, accept: str = "") -> str:
    page, _ = Exposition(metrics).page(accept)
    return page.decode()


# -- the recorder -------------------------------------------------------------------------------------------


def test_two_replicas_of_one_process_share_no_count() -> None:
    one, other = Metrics(), Metrics()
    one.cues_written(3)
    assert value(shown(one), "broker_cues_written_total") == 3
    assert value(shown(other), "broker_cues_written_total") == 0


def test_a_caller_cannot_make_series_without_end() -> None:
    metrics = Metrics(tenants=5)
    for number in range(1000):
        metrics.request_refused(f"reason-{number}")
        metrics.request_answered("modern", f"method-{number}", 0.01)
        metrics.script_ran(f"script-{number}", 0.01)
        metrics.tenant_changed(f"tenant-{number}", 2)
    page = shown(metrics)
    for metric in CATALOGUE.values():
        name = f"{metric.name}_count" if metric.bounds else metric.name
        assert len([s for s in samples(page) if s.name == name]) <= SERIES + 1, name
    assert metrics["broker_requests_refused_total"] == 1000
    assert value(page, "broker_request_seconds_count", method="other") == 1000
    assert value(page, "broker_tenant_changes_total", tenant="other") == 995
    assert metrics["broker_tenant_cues_total"] == 2000


def test_known_reasons_stand_at_nought_before_they_happen() -> None:
    page = shown(Metrics())
    for reason in CloseReason:
        assert value(page, "broker_streams_closed_total", reason=reason.value) == 0
    for why in Discontinuity:
        assert value(page, "broker_resyncs_total", reason=why.value) == 0


def test_a_histogram_counts_what_is_at_most_its_bound() -> None:
    metrics = Metrics()
    for seconds in (0.05, 0.0500001, 99.0):
        metrics.batch_told(seconds)
    page = shown(metrics)
    name = "broker_publish_to_cue_seconds"
    assert value(page, f"{name}_bucket", le="0.05") == 1
    assert value(page, f"{name}_bucket", le="10") == 2
    assert value(page, f"{name}_bucket", le="+Inf") == 3
    assert value(page, f"{name}_sum") == pytest.approx(99.1000001)


def test_both_formats_that_prometheus_asks_for_are_given() -> None:
    exposition = Exposition(Metrics())
    for accept, expected in (
        ("", "text/plain"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
    ):
        page, content_type = exposition.page(accept)
        assert content_type.startswith(expected)
        assert b"broker_cues_written_total 0.0" in page


def test_tenants_are_not_named_unless_the_operator_asks() -> None:
    assert "tenant" not in {s.labels.get("tenant") and "tenant" for s in samples(shown(Metrics()))}
    assert not [name for name in families(shown(Metrics())) if name.startswith("broker_tenant_")]


def test_counting_costs_less_than_a_fifth_of_a_microsecond() -> None:
    """The dispatcher counts once a batch, so a cue alone in its batch bears a whole call.

    The best of many short runs: the machine's other users make it slower, never faster.
    """
    metrics = Metrics()
    number = 20_000
    best = min(timeit.repeat(lambda: metrics.cues_written(1), number=number, repeat=15)) / number
    assert best < 0.2e-6


# -- the documents ------------------------------------------------------------------------------------------


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {row.split("`")[1] for row in rows}
    assert documented == {*CATALOGUE, *PROCESS}


def test_the_labels_that_are_known_beforehand_are_those_of_the_code() -> None:
    assert set(catalogue.CLOSE_REASONS) == {reason.value for reason in CloseReason}
    assert set(catalogue.RESYNC_REASONS) == {why.value for why in Discontinuity}


def reasons() -> set[str]:
    """Return every reason that an error of ours may have."""

    def tree(kind: type[BrokerError]) -> list[type[BrokerError]]:
        return [kind, *(below for sub in kind.__subclasses__() for below in tree(sub))]

    return {kind.reason for kind in tree(BrokerError)}


def test_every_refusals_reason_may_be_a_label() -> None:
    assert len(reasons()) < SERIES - 10


# -- a real replica -----------------------------------------------------------------------------------------


async def test_a_replica_shows_exactly_the_catalogue(fleet: Fleet) -> None:
    found = families(metrics_page(fleet[0]))
    expected = {metric.name for metric in CATALOGUE.values() if not metric.is_per_tenant} | set(PROCESS)
    # The text format names a counter with its _total, as we do.
    assert found == expected


async def test_an_operator_sees_a_stream_its_cue_and_how_long_it_took(
    fleet: Fleet, tenant: str, publisher: Publisher, http: httpx.AsyncClient
) -> None:
    replica = fleet[0]
    before = metrics_page(replica)

    def grown(name: str, **labels: str) -> float:
        return (value(metrics_page(replica), name, **labels) or 0) - (value(before, name, **labels) or 0)

    async with Modern(replica.url, tenant, http) as client, await client.listen(["docs://m"]) as listening:
        assert grown("broker_streams_open", era="modern") == 1
        assert grown("broker_subscriptions_open") == 1
        await publisher.publish("docs://m", "hello")
        await listening.cue("docs://m")
        await until(lambda: grown("broker_publish_to_cue_seconds_count") >= 1, "the cue's time")
        assert grown("broker_cues_written_total") >= 1
        assert 0 <= grown("broker_publish_to_cue_seconds_sum") < 10
        await client.read("docs://m")
        assert grown("broker_reads_total", kind="stored") == 1
        assert grown("broker_request_seconds_count", era="modern", method="resources/read") == 1
        with pytest.raises(RpcError):
            await client.read("docs://absent")
        assert grown("broker_reads_total", kind="absent") == 1
        assert grown("broker_requests_refused_total", reason="resource_not_found") == 1
        assert grown("broker_script_seconds_count", script="revisions") >= 1
        where = {"broker-tenant": tenant}
        refused = await http.put(f"{replica.api}/resources?uri=no-uri", content=b"x", headers=where)
        assert refused.status_code == 400
        batch = {"resources": [{"uri": "docs://m"}, {"uri": "no uri", "text": "x"}]}
        assert (await http.post(f"{replica.api}/publish", json=batch, headers=where)).status_code == 200
        assert grown("broker_requests_refused_total", reason="invalid_uri") == 2
        assert grown("broker_requests_refused_total") == 4
    await until(lambda: grown("broker_streams_open", era="modern") == 0, "the stream's end")
    assert grown("broker_streams_closed_total", reason="client_left") == 1


async def test_a_session_s_stream_counts_for_its_era(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    replica = fleet[1]
    before = value(metrics_page(replica), "broker_streams_open", era="handshake") or 0
    async with Handshake(replica.url, tenant, http) as client, await client.get_stream():
        await until(
            lambda: value(metrics_page(replica), "broker_streams_open", era="handshake") == before + 1,
            "the session's stream",
        )


async def test_a_lost_redis_shows_and_so_does_its_return(
    own_redis: RedisServer, new_fleet: Callable[..., Fleet]
) -> None:
    fleet = new_fleet(own_redis.url, 1)
    replica = fleet[0]

    def up() -> float | None:
        return value(metrics_page(replica), "broker_redis_up", log="0")

    await until(lambda: up() == 1, "Redis up")
    own_redis.kill()
    await until(lambda: up() == 0, "Redis down", 15)
    assert (value(metrics_page(replica), "broker_reader_failures_total") or 0) > 0
    assert value(metrics_page(replica), "broker_ready") == 1, "promise 10: down is a state"
    own_redis.start()
    await until(lambda: up() == 1, "Redis up again", 15)
    await until(lambda: value(metrics_page(replica), "broker_log_settled", log="0") == 1, "compared", 15)
    assert (value(metrics_page(replica), "broker_resyncs_total") or 0) >= 1


async def test_the_loudest_tenants_are_named_where_the_operator_asks(
    redis_server: RedisServer, new_fleet: Callable[..., Fleet], http: httpx.AsyncClient
) -> None:
    fleet = new_fleet(redis_server.url, 1, BROKER_METRICS__TENANTS="1")
    replica = fleet[0]
    async with Modern(replica.url, "loud", http) as loud, Modern(replica.url, "quiet", http) as quiet:
        streams = [await loud.listen([f"docs://{i}"]) for i in range(3)] + [await quiet.listen(["docs://1"])]
        page = metrics_page(replica)
        assert value(page, "broker_tenant_streams_open", tenant="loud") == 3
        assert value(page, "broker_tenant_streams_open", tenant="other") == 1
        async with Publisher(redis_server.url, tenant="loud", prefix=fleet.prefix) as publisher:
            await publisher.publish("docs://1", "x")
        await streams[1].cue("docs://1")
        assert value(metrics_page(replica), "broker_tenant_cues_total", tenant="loud") == 1
        for stream in streams:
            await stream.close()
