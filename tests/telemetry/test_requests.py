"""Requests can be told apart in the log, by their ids, and followed across services, by their traces."""

import json
from collections.abc import Callable

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from broker.core.errors import StoreUnavailable
from broker.telemetry import request, tracing
from broker.telemetry.tracing import OFF, Tracing
from tests.support.mcp import Handshake, Modern
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.telemetry.collector import Collector

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(memory: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return Tracing(provider.get_tracer("test"), provider)


def by_name(memory: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in memory.get_finished_spans()}


# -- ids -----------------------------------------------------------------------------------------------------


async def test_a_refusal_names_its_request_and_a_proxy_s_id_is_kept(fleet: Fleet, tenant: str) -> None:
    async with httpx.AsyncClient(trust_env=False, headers={"broker-tenant": tenant}) as client:
        given = {"x-request-id": "proxy-0123456789"}
        answer = await client.post(fleet[0].url, content="{", headers=given)
        assert answer.status_code >= 400
        assert answer.headers["x-request-id"] == given["x-request-id"]
        answer = await client.put(f"{fleet[0].api}/resources?uri=no-uri", content=b"x", headers=given)
        assert answer.status_code == 400
        assert answer.headers["x-request-id"] == given["x-request-id"]
        own = {(await client.post(fleet[0].url, content="{")).headers["x-request-id"] for _ in range(3)}
        assert len(own) == 3


@pytest.mark.parametrize("given", ["", "short", "x" * 65, "with blank and more", "line\nbreak1", "a;b;c;d;e"])
async def test_an_id_that_could_disturb_a_log_is_replaced(given: str) -> None:
    name = request.begin(given)
    assert name != given
    assert request.current() == name


async def test_what_a_request_logs_says_whose_it_is_and_never_the_whole_session(
    redis_server: RedisServer, new_fleet: Callable[..., Fleet], http: httpx.AsyncClient
) -> None:
    fleet = new_fleet(redis_server.url, 1, BROKER_LOG__FORMAT="json", BROKER_LOG__LEVEL="debug")
    async with Handshake(fleet[0].url, "acme", http) as client:
        await client.list()
        session = client.session
    text = fleet[0].process.tail(10_000)
    assert session not in text
    for line in text.splitlines():
        assert json.loads(line)["event"]


# -- spans ---------------------------------------------------------------------------------------------------


def test_a_request_continues_the_trace_that_its_meta_names_before_that_of_its_headers() -> None:
    headers = {"traceparent": OTHER, "tracestate": "a=b", "authorization": "secret"}
    assert tracing.carried(headers, None) == {"traceparent": OTHER, "tracestate": "a=b"}
    assert tracing.carried(headers, {"traceparent": PARENT}) == {"traceparent": PARENT}
    assert tracing.carried({}, {"traceparent": 7}) == {}
    assert tracing.carried({}, ["traceparent"]) == {}


def test_scripts_are_spans_below_the_request_that_ran_them(
    traces: Tracing, memory: InMemorySpanExporter
) -> None:
    with traces.span("resources/read", {"traceparent": PARENT}, broker_tenant="acme"):
        traces.happened("script look", 0.5)
        traces.happened("script broken", 0.1, StoreUnavailable("gone"))
        traces.note(broker_revision="7:abcd")
    spans = by_name(memory)
    above, below = spans["resources/read"], spans["script look"]
    assert above.parent is not None
    assert f"{above.parent.trace_id:032x}" == PARENT.split("-")[1]
    assert below.parent == above.context
    assert above.attributes == {"broker.tenant": "acme", "broker.revision": "7:abcd"}
    assert below.end_time is not None
    assert below.start_time is not None
    assert below.end_time - below.start_time == 500_000_000
    assert not spans["script broken"].status.is_ok


def test_a_broken_trace_context_begins_a_trace_of_its_own(
    traces: Tracing, memory: InMemorySpanExporter
) -> None:
    with traces.span("x", {"traceparent": "00-zz-zz-01"}):
        pass
    assert by_name(memory)["x"].parent is None


def test_without_a_collector_there_are_no_spans() -> None:
    with OFF.span("x", {"traceparent": PARENT}, broker_tenant="acme"):
        OFF.happened("y", 1.0)
        OFF.note(broker_revision="1:a")
    OFF.close()
    assert not OFF.is_on


async def test_a_publish_its_dispatch_and_a_read_are_joined_by_the_revision(
    redis_server: RedisServer, new_fleet: Callable[..., Fleet], http: httpx.AsyncClient, collector: Collector
) -> None:
    fleet = new_fleet(
        redis_server.url, 1, BROKER_TRACES__ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="100"
    )
    replica = fleet[0]
    async with Modern(replica.url, "acme", http) as client, await client.listen(["docs://t"]) as listening:
        published = await http.put(
            f"{replica.api}/resources?uri=docs%3A%2F%2Ft",
            content=b"hello",
            headers={"broker-tenant": "acme", "traceparent": PARENT},
        )
        assert published.status_code == 200
        await listening.cue("docs://t")
        await client.ask("resources/read", uri="docs://t", _meta={"traceparent": OTHER})
        names = ("PUT /v1/resources", "dispatch", "resources/read")
        await until(lambda: all(collector.revisions(name) for name in names), lambda: collector.spans)
    revisions = [collector.revisions(name) for name in names]
    assert revisions[0] == revisions[1] == revisions[2]
    put = next(span for span in collector.spans if span.name == "PUT /v1/resources")
    assert put.trace_id.hex() == PARENT.split("-")[1]
    scripts = [span for span in collector.spans if span.parent_span_id == put.span_id]
    assert "script publish" in {span.name for span in scripts}
