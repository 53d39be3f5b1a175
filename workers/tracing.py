"""Spans of a backend job, by the OpenTelemetry of the job itself, if it has one.

A job that uses OpenTelemetry has loaded it and said where its spans go; we say there what we did. Rules:

1. Nothing is imported for it: a job without OpenTelemetry pays for a look into a dictionary.
2. What a span does in Redis carries its context (core/trace.py), so that a broker's spans go on from there. A
   job without OpenTelemetry hands on the context that a call came with.
3. No span holds contents, and its name no URI.
"""

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from broker.core import trace


def published(what: str, tenant: str) -> AbstractContextManager[None]:
    """Trace what is written inside: a publish and its like."""
    return _span(f"broker {what}", "PRODUCER", tenant)


def answered(cause: str, tenant: str) -> AbstractContextManager[None]:
    """Trace the answer to a call inside; `cause` is the trace context that it came with."""
    return _span("broker call", "CONSUMER", tenant, cause)


@contextmanager
def _span(name: str, kind: str, tenant: str, cause: str = "") -> Generator[None]:
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        if not cause:
            yield
            return
        with trace.under(cause):
            yield
        return
    tracer = api.get_tracer("mcp-resource-broker")
    with tracer.start_as_current_span(
        name,
        _below(api, cause),
        kind=getattr(api.SpanKind, kind),
        attributes={"broker.tenant": tenant},
    ) as span:
        own = span.get_span_context()
        with trace.under(trace.written(own.trace_id, own.span_id, own.trace_flags)):
            yield


def _below(api: Any, cause: str) -> Any:
    """Return OpenTelemetry's context of a `traceparent`, None for the one that there is."""
    if not cause:
        return None
    _, trace_id, span_id, flags = cause.split("-")
    remote = api.SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=api.TraceFlags(int(flags, 16))
    )
    return api.set_span_in_context(api.NonRecordingSpan(remote))
