"""What a worker's function may ask about the call that it serves.

A parameter annotated with `Context` gets one; it is never taken for a variable of the URI. A function that
takes a Context is personal unless its declaration says otherwise: its result is not shared between callers.
"""

import logging
import threading
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any

from broker.core.declaration import CallRequest


class CallLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose events carry the call's id and tenant."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields of the call to those of the event."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Context:
    """One call: who asks for what, and for how long the answer is of use. Threads may use it."""

    __slots__ = ("_cancelled", "_end", "_request", "call_id", "logger")

    def __init__(self, request: CallRequest, call_id: str, logger: logging.Logger) -> None:
        self._request = request
        # Read now: a clock of the machine that is set in between ends no call, and prolongs none.
        self._end = time.monotonic() + request.deadline - time.time()
        self._cancelled = threading.Event()
        self.call_id = call_id
        """Names this call in the logs, and to the client if it fails."""
        self.logger = CallLogger(logger, {"call": call_id, "tenant": request.tenant})
        """Its events carry the call's id and tenant."""

    def __repr__(self) -> str:
        return f"<Context {self.call_id} {self._request.kind} {self._request.uri!a}>"

    @property
    def tenant(self) -> str:
        """Return the tenant that the caller belongs to."""
        return self._request.tenant

    @property
    def subject(self) -> str:
        """Return who calls, as its credential says; empty where nobody does (on_watched)."""
        return self._request.subject

    @property
    def scopes(self) -> frozenset[str] | None:
        """Return the caller's scopes; None in development mode, where everything is allowed."""
        return self._request.scopes

    @property
    def uri(self) -> str:
        """Return the URI that is read, exactly as the client wrote it."""
        return self._request.uri

    @property
    def deadline(self) -> datetime:
        """Return when the caller stops waiting."""
        return datetime.fromtimestamp(self._request.deadline, UTC)

    @property
    def seconds_left(self) -> float:
        """Return how long the caller still waits; 0 if it does not."""
        return max(0.0, self._end - time.monotonic())

    @property
    def trace(self) -> str | None:
        """Return the W3C traceparent of the call, to pass on."""
        return self._request.trace

    @property
    def is_cancelled(self) -> bool:
        """Whether the answer is of no use any more: the client left, or the deadline passed.

        An async function is cancelled by itself; a sync one runs in a thread and should look here.
        """
        return self._cancelled.is_set() or self._end <= time.monotonic()

    def cancel(self) -> None:
        """Let `is_cancelled` be true from now on."""
        self._cancelled.set()
