"""One trace from a job's publish to its clients' reads, over Redis, replicas and workers."""

from collections.abc import Callable
from typing import Any, cast

import httpx
import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from broker.core import trace
from broker.core.identity import check_tenant
from broker.core.log import decode
from broker.store.keys import Keys
from tests.support.mcp import Modern
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.telemetry.collector import Collector
from workers import Publisher, SyncPublisher, Worker
from workers.serving import serving

CLIENT = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"


class Job:
    """The OpenTelemetry of a backend job: the real SDK, and an exporter that keeps what it gets."""

    def __init__(self, sampler: Sampler) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer = self.provider.get_tracer("job")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._memory.get_finished_spans() if span.name == name]


def use(monkeypatch: pytest.MonkeyPatch, sampler: Sampler) -> Job:
    """Make this process a job with OpenTelemetry; its global provider can be set only once in a process."""
    job = Job(sampler)
    monkeypatch.setattr(opentelemetry.trace, "get_tracer_provider", lambda: job.provider)
    return job


def entries(server: RedisServer, prefix: str, tenant: str) -> list[dict[bytes, bytes]]:
    keys = Keys(prefix)
    with server.client() as client:
        log: list[Any] = cast("Any", client).xrange(keys.log(keys.log_number(check_tenant(tenant))))
    return [fields for _, fields in log]


async def test_a_publish_leads_to_its_dispatch_and_a_read_names_the_publish(
    redis_server: RedisServer,
    new_fleet: Callable[..., Fleet],
    http: httpx.AsyncClient,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = use(monkeypatch, ALWAYS_ON)
    fleet = new_fleet(
        redis_server.url, 2, BROKER_TRACES__ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="100"
    )
    async with (
        Publisher(redis_server.url, tenant="acme", prefix=fleet.prefix) as publisher,
        Modern(fleet[0].url, "acme", http) as client,
        Modern(fleet[1].url, "acme", http) as reader,
        await client.listen(["docs://t"]) as listening,
    ):
        with job.tracer.start_as_current_span("nightly") as nightly:
            await publisher.publish("docs://t", "x")
        await listening.cue("docs://t")
        # The other replica tells nobody, and knows the change all the same.
        await reader.ask("resources/read", uri="docs://t", _meta={"traceparent": CLIENT})
        await until(
            lambda: collector.named("dispatch") and collector.named("resources/read"), lambda: collector.spans
        )
    [published] = job.named("broker publish")
    assert published.parent == nightly.get_span_context()
    assert published.context is not None
    [dispatched] = collector.named("dispatch")
    assert int.from_bytes(dispatched.trace_id) == published.context.trace_id
    assert int.from_bytes(dispatched.parent_span_id) == published.context.span_id
    [read] = collector.named("resources/read")
    assert read.trace_id.hex() == CLIENT.split("-")[1]
    assert [int.from_bytes(link.span_id) for link in read.links] == [published.context.span_id]


async def test_a_worker_s_answer_is_part_of_its_client_s_trace_and_so_is_what_it_publishes(
    redis_server: RedisServer,
    new_fleet: Callable[..., Fleet],
    http: httpx.AsyncClient,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = use(monkeypatch, ALWAYS_ON)
    fleet = new_fleet(
        redis_server.url, 1, BROKER_TRACES__ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="100"
    )
    worker = Worker("jobs", tenants=["acme"])
    async with Publisher(redis_server.url, tenant="acme", prefix=fleet.prefix) as publisher:

        @worker.resource("answers://now")
        async def now() -> str:
            await publisher.touch("docs://asked")
            return "now"

        async with (
            serving(worker, url=fleet.redis_url, prefix=fleet.prefix),
            Modern(fleet[0].url, "acme", http) as client,
            await client.listen(["docs://asked"]) as listening,
        ):
            await client.ask("resources/read", uri="answers://now", _meta={"traceparent": CLIENT})
            await listening.cue("docs://asked")
            await until(
                lambda: collector.named("dispatch") and collector.named("resources/read"),
                lambda: collector.spans,
            )
    [read] = collector.named("resources/read")
    [call] = job.named("broker call")
    [touch] = job.named("broker touch")
    [dispatch] = [span for span in collector.named("dispatch") if span.trace_id == read.trace_id]
    assert call.parent is not None
    assert call.context is not None
    assert touch.context is not None
    assert read.trace_id.hex() == CLIENT.split("-")[1]
    assert call.parent.span_id == int.from_bytes(read.span_id)
    assert touch.parent == call.context
    assert int.from_bytes(dispatch.parent_span_id) == touch.context.span_id


@pytest.mark.parametrize("is_sampled", [True, False])
def test_an_entry_names_its_trace_only_if_somebody_keeps_it(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, *, is_sampled: bool
) -> None:
    use(monkeypatch, ALWAYS_ON if is_sampled else ALWAYS_OFF)
    with SyncPublisher(redis_server.url, tenant="acme", prefix=prefix) as publisher:
        publisher.publish("docs://a", "x")
        publisher.publish_many([("docs://b", "x"), ("docs://c", "x")])
        publisher.touch("docs://a")
        publisher.remove("docs://b")
        publisher.list_changed()
    written = [fields.get(b"tp") for fields in entries(redis_server, prefix, "acme")]
    assert len(written) == 6
    assert all((trace.read(context) != "") == is_sampled for context in written), written


def test_what_is_no_trace_context_is_left_out_and_disturbs_no_reader() -> None:
    fields = {b"e": b"0badcafe", b"m": b"1", b"p": b"", b"k": b"c", b"t": b"acme", b"u": b"docs://a"}
    for broken in (b"", b"00-1-2-01", b"\xff\xfe", b"x" * 1000):
        assert decode(b"7-0", {**fields, b"tp": broken}).trace == ""
    assert decode(b"7-0", {**fields, b"tp": CLIENT.encode()}).trace == CLIENT
