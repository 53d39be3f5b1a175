"""The internal port: is this replica alive, is it ready, and what its metrics are.

`/livez` never depends on Redis: restarting a broker does not mend a Redis. `/readyz` follows promise 10:
a Redis that is down is a state that every replica shares, so it does not take them all out of the balancer;
`/readyz?strict` says otherwise for those who want it. Plain ASGI: it has to answer when all else is stuck.
"""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_JSON = b"application/json"


class Replica(Protocol):
    """What health needs of a replica."""

    def readiness(self, *, strict: bool = False) -> str | None:
        """Return None if ready, else the reason; `strict` also wants a Redis that answers."""
        ...


class Health:
    """The ASGI app of the internal port.

    `metrics` makes the page of metrics and its content type from an Accept header.
    """

    def __init__(self, replica: Replica, metrics: Callable[[str], tuple[bytes, str]]) -> None:
        self._replica = replica
        self._metrics = metrics

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the internal port does not speak {scope['type']}")
        if scope["method"] not in {"GET", "HEAD"}:
            await _answer(scope, send, HTTPStatus.METHOD_NOT_ALLOWED, {"error": "Only GET and HEAD."})
            return
        match scope["path"]:
            case "/livez":
                await _answer(scope, send, HTTPStatus.OK, {"status": "alive"})
            case "/readyz":
                await self._readiness(scope, send)
            case "/metrics":
                page, content_type = self._metrics(_accept(scope))
                await _send(scope, send, HTTPStatus.OK, content_type.encode(), page)
            case _:
                answer = {"error": "Here are /livez, /readyz and /metrics; MCP is on the public port."}
                await _answer(scope, send, HTTPStatus.NOT_FOUND, answer)

    async def _readiness(self, scope: Scope, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        strict = query.get("strict", ["false"])[-1].lower() not in {"false", "0", "no"}
        reason = self._replica.readiness(strict=strict)
        if reason is None:
            await _answer(scope, send, HTTPStatus.OK, {"status": "ready"})
        else:
            await _answer(
                scope, send, HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unready", "reason": reason}
            )


def _accept(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"), "")


async def _answer(scope: Scope, send: Send, status: HTTPStatus, body: dict[str, str]) -> None:
    await _send(scope, send, status, _JSON, json.dumps(body).encode() + b"\n")


async def _send(scope: Scope, send: Send, status: HTTPStatus, kind: bytes, body: bytes) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
