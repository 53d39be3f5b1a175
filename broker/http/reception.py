"""Receives what is not MCP: the publishing API, the metadata, the administrators' API.

Rules:

1. Every refusal names its request (telemetry/request.py), whoever makes it: a handler, a router that has no
   such path, or this module.
2. What fails by a bug of ours is logged with its traceback, counted, and answered with the request's id. The
   MCP endpoint does the same for itself, in its own form.
"""

import logging
from typing import Any

from broker.http import answers
from broker.telemetry import request
from broker.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_REFUSED = 400
"""From this status on an answer is a refusal."""


class _Answer:
    """An ASGI `send` that names the request in a refusal, and knows how far the answer has come."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.is_started = False
        self.is_whole = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.is_started = True
            if message["status"] >= _REFUSED:
                name = (request.HEADER.encode(), request.current().encode())
                message = {**message, "headers": [*message.get("headers", ()), name]}
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self.is_whole = True
        await self._send(message)


class Reception:
    """Stands before an ASGI app; its request must have begun."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        answer = _Answer(send)
        try:
            await self._app(scope, receive, answer)
        except Exception as error:
            self._metrics.request_failed()
            if answer.is_started and not answer.is_whole:
                # Nothing can be said any more; the server closes the connection, and logs why.
                raise
            _log.exception("request_failed", extra={"method": scope["method"]})
            if not answer.is_started:
                await answers.failed(None, error)(scope, receive, answer)
