"""Traces by OpenTelemetry, if the extra `otel` is installed and the operator says where they go.

Without either, `span` costs a comparison and nothing is imported. Rules:

1. A request's span continues the `traceparent` of its `_meta`, else of its HTTP headers (2026-07-28 and W3C
   Trace Context); the scripts that it runs are spans below it.
2. What a sampled span does in Redis carries its context (core/trace.py): a log entry, so that the dispatch of
   the change on each replica is a span below the publish, and a call, so that the worker's answer is one.
3. A read is its client's and has its client's parent; it is linked to the change that it shows.
   Every replica follows every log and knows which that was: the last `REMEMBERED` are kept.
4. No span holds contents, tokens or whole session ids. Nothing is kept in OpenTelemetry's global state.
"""

import contextlib
import importlib
import time
from collections import OrderedDict
from collections.abc import Generator, Mapping
from typing import Any, cast

from broker.core import trace
from broker.core.errors import Misconfigured

EXPORT_SECONDS = 2
CARRIED = (trace.TRACEPARENT, "tracestate")
REMEMBERED = 10_000
"""Traced changes whose reads are linked to them; about 250 bytes each."""


class Tracing:
    """Makes spans with `tracer`; None makes none. `provider` is what must be shut down in the end."""

    def __init__(self, tracer: Any = None, provider: Any = None) -> None:
        self._tracer = tracer
        self._provider = provider
        self._changes: OrderedDict[str, str] = OrderedDict()
        if tracer is not None:
            self._trace: Any = importlib.import_module("opentelemetry.trace")
            propagation: Any = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
            self._propagator: Any = propagation.TraceContextTextMapPropagator()

    @property
    def is_on(self) -> bool:
        """Whether there are spans at all."""
        return self._tracer is not None

    @contextlib.contextmanager
    def span(self, name: str, carried: Mapping[str, str], **attributes: str) -> Generator[None]:
        """Trace what is done inside as one request, below the trace context in `carried` if there is one."""
        if self._tracer is None:
            yield
            return
        context = self._propagator.extract(dict(carried))
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=self._trace.SpanKind.SERVER,
            attributes={_name(key): value for key, value in attributes.items()},
        ) as span:
            own = span.get_span_context()
            with trace.under(trace.written(own.trace_id, own.span_id, own.trace_flags)):
                yield

    def note(self, **attributes: str) -> None:
        """Say more of the request of this task, if it is traced."""
        if self._tracer is not None:
            span = self._trace.get_current_span()
            for key, value in attributes.items():
                span.set_attribute(_name(key), value)

    def shows(self, revision: str) -> None:
        """Link the request of this task to the change that made `revision`, if both are traced."""
        if self._tracer is None:
            return
        self.note(broker_revision=revision)
        cause = self._changes.get(revision)
        if cause is not None:
            made = self._trace.get_current_span(self._below(cause)).get_span_context()
            self._trace.get_current_span().add_link(made)

    def dispatched(self, revision: str, tenant: str, told: int, cause: str) -> None:
        """Record that a change was given to `told` watchers here, below the span that made it."""
        if self._tracer is None:
            return
        if cause:
            self._changes[revision] = cause
            if len(self._changes) > REMEMBERED:
                self._changes.popitem(last=False)
        if told:
            about: dict[str, str | int] = {
                "broker.revision": revision, "broker.tenant": tenant, "broker.watchers": told,
            }  # fmt: skip
            kind = self._trace.SpanKind.CONSUMER
            self._tracer.start_span("dispatch", self._below(cause), kind=kind, attributes=about).end()

    def happened(self, name: str, seconds: float, error: Exception | None = None) -> None:
        """Record what took `seconds` until now, below the span of this task if there is one."""
        if self._tracer is None:
            return
        end = time.time_ns()
        span = self._tracer.start_span(
            name, kind=self._trace.SpanKind.CLIENT, start_time=end - int(seconds * 1e9)
        )
        if error is not None:
            span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
        span.end(end)

    def _below(self, cause: str) -> Any:
        """Return OpenTelemetry's context of a `traceparent`; "" is one without a span."""
        return self._propagator.extract({trace.TRACEPARENT: cause})

    def close(self) -> None:
        """Send what is left; blocks for `EXPORT_SECONDS` at most for each batch."""
        if self._provider is not None:
            self._provider.shutdown()


OFF = Tracing()
"""No traces."""


def start(endpoint: str, instance: str, release: str) -> Tracing:
    """Return traces that are sent to `endpoint` by OTLP over HTTP, in batches, from a thread of their own.

    Raises:
        Misconfigured: the extra is not installed.
    """
    try:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
        otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError:
        raise Misconfigured(
            "BROKER_TRACES__ENDPOINT needs OpenTelemetry: pip install 'mcp-resource-broker[otel]'."
        ) from None
    resource = resources.Resource.create(
        {
            "service.name": "mcp-resource-broker",
            "service.version": release,
            "service.instance.id": instance,
        }
    )
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = otlp.OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return Tracing(provider.get_tracer("broker", release), provider)


def carried(headers: Mapping[str, str], meta: Any) -> dict[str, str]:
    """Return the trace context of a request: that of its `_meta` if it has one, else of its headers."""
    source = cast("Mapping[str, Any]", meta) if isinstance(meta, dict) and CARRIED[0] in meta else headers
    return {name: value for name in CARRIED if isinstance(value := source.get(name), str)}


def _name(key: str) -> str:
    """Return an attribute's name: `broker_revision` is written broker.revision."""
    return key.replace("_", ".", 1)
