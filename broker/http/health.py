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

from broker.http.stream_desk import StreamDesk, is_near

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

    def __init__(
        self,
        replica: Replica,
        metrics: Callable[[str], tuple[bytes, str]],
        streams: StreamDesk | None = None,
    ) -> None:
        self._replica = replica
        self._metrics = metrics
        self._streams = streams

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the internal port does not speak {scope['type']}")
        if scope["path"] == "/streams" or scope["path"].startswith("/streams/"):
            await self._desk(scope, send)
            return
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

    async def _desk(self, scope: Scope, send: Send) -> None:
        """Answer `GET /streams?tenant=…` and `POST /streams/NUMBER/end`, to callers of this machine."""
        if self._streams is None or not is_near(scope.get("client")):
            answer = {"error": "Streams are shown to this machine only: ask from a shell in the container."}
            await _answer(scope, send, HTTPStatus.FORBIDDEN, answer)
            return
        match scope["method"], scope["path"].strip("/").split("/"):
            case "GET" | "HEAD", ["streams"]:
                query = parse_qs(scope["query_string"].decode("latin-1"))
                listed = self._streams.listed(query.get("tenant", [None])[-1])
                await _answer(scope, send, HTTPStatus.OK, {"streams": listed})
            case "POST", ["streams", number, "end"] if number.isascii() and number.isdigit():
                is_there = self._streams.cut(int(number))
                status = HTTPStatus.OK if is_there else HTTPStatus.NOT_FOUND
                await _answer(scope, send, status, {"ended": is_there})
            case _:
                answer = {"error": "Here are GET /streams and POST /streams/NUMBER/end."}
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


async def _answer(scope: Scope, send: Send, status: HTTPStatus, body: dict[str, Any]) -> None:
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
