"""Traces by OpenTelemetry, if the extra `otel` is installed and the operator says where they go.

Without either, `span` costs a comparison and nothing is imported. Rules:

1. A request's span continues the `traceparent` of its `_meta`, else of its HTTP headers (2026-07-28 and W3C
   Trace Context); the scripts that it runs are spans below it.
2. A log entry carries no trace context: it would cost every entry. A publish, the dispatch of its change on
   each replica and a read of it all have the attribute `broker.revision`, by which a search joins them.
3. No span holds contents, tokens or whole session ids. Nothing is kept in OpenTelemetry's global state.
"""

import contextlib
import importlib
import time
from collections.abc import Generator, Mapping
from typing import Any, cast

from broker.core.errors import Misconfigured

EXPORT_SECONDS = 2
CARRIED = ("traceparent", "tracestate")


class Tracing:
    """Makes spans with `tracer`; None makes none. `provider` is what must be shut down in the end."""

    def __init__(self, tracer: Any = None, provider: Any = None) -> None:
        self._tracer = tracer
        self._provider = provider
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
        ):
            yield

    def note(self, **attributes: str) -> None:
        """Say more of the request of this task, if it is traced."""
        if self._tracer is not None:
            span = self._trace.get_current_span()
            for key, value in attributes.items():
                span.set_attribute(_name(key), value)

    def happened(self, name: str, seconds: float, error: Exception | None = None, **attributes: str) -> None:
        """Record what took `seconds` until now, below the span of this task if there is one."""
        if self._tracer is None:
            return
        end = time.time_ns()
        span = self._tracer.start_span(
            name,
            kind=self._trace.SpanKind.CLIENT,
            start_time=end - int(seconds * 1e9),
            attributes={_name(key): value for key, value in attributes.items()},
        )
        if error is not None:
            span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
        span.end(end)

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
