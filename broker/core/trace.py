"""The trace context that goes with what is done: from a request to the log entries and calls that it causes.

A W3C Trace Context `traceparent` as text, for whoever writes to Redis; what it means is known to
telemetry/tracing.py and workers/tracing.py. Rules:

1. It is set only inside a span that is sampled, so without traces it costs a look at an empty variable.
2. It is a hint: what is no `traceparent` is left out, and never refuses an entry or a call.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

TRACEPARENT = "traceparent"
SAMPLED = 1
"""The flag of what somebody keeps (W3C Trace Context, 3.2.2.5.1)."""

_WRITTEN = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

_current: ContextVar[str] = ContextVar("trace", default="")


def current() -> str:
    """Return the `traceparent` of what is being done, "" if it is not traced."""
    return _current.get()


@contextmanager
def under(context: str) -> Generator[None]:
    """Let `context` go with whatever is done inside."""
    before = _current.set(context)
    try:
        yield
    finally:
        _current.reset(before)


def written(trace_id: int, span_id: int, flags: int) -> str:
    """Return a span's context as a `traceparent`, "" if it is not sampled."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}" if flags & SAMPLED else ""


def read(given: bytes | None) -> str:
    """Return a `traceparent` that came from outside, "" for anything else."""
    return given.decode() if given is not None and _WRITTEN.fullmatch(given) else ""
