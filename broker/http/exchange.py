"""One HTTP exchange on the MCP endpoint: its headers, its body within the limit, its answer.

Plain ASGI, dispatched before FastAPI: going through its wrappers cost about 6 KB per open stream (design
section 4), and the bytes of a stream must be ours.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from broker.http.writer import AsgiWriter, MakeWriter
from broker.wire import sse
from broker.wire.headers import Form
from broker.wire.refusal import INVALID_REQUEST, Refusal

T = TypeVar("T")
Headers = tuple[tuple[bytes, bytes], ...]
NO_STORE: Headers = ((b"cache-control", b"no-store"),)
STREAM_HEADERS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)

TOO_LARGE = 413
TOO_SLOW = 408

LINGER_BYTES = 16_000_000
LINGER_SECONDS = 2.0
"""How much of a body that is too large is read after its refusal, and for how long."""


class ClientGoneError(Exception):
    """The client left before its request was whole; there is nobody to answer."""


class Exchange:
    """A request and the way to answer it. Headers are lower-case names and Latin-1 values."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
        make_writer: MakeWriter = AsgiWriter,
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.scope = scope
        self.headers = joined(scope["headers"])
        self.extra: list[tuple[bytes, bytes]] = []
        """Headers of whatever the answer will be (CORS, the session's id)."""
        self.is_started = False
        """Whether the status line is out."""
        self.receive = receive
        self.send = send
        self.make_writer = make_writer
        """How a stream is written, once its head is out."""

    def forget(self) -> None:
        """Let go of the request's headers: its stream may live for hours, and needs them no more."""
        self.headers = {}
        self.extra = []
        received = self.scope["headers"]
        if isinstance(received, list):
            received.clear()

    async def body(self, limit: int, seconds: float) -> bytes:
        """Read the body, of at most `limit` bytes, counted as they come, and within `seconds`.

        Raises:
            Refusal: 413 or 408, too many bytes or too slow; what is left of it is not read.
            ClientGoneError: the client left.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._body(limit)
        except TimeoutError:
            raise Refusal(
                TOO_SLOW,
                INVALID_REQUEST,
                f"The body did not come within {seconds:g} seconds; send it again, or ask the operator to "
                "raise BROKER_HTTP__BODY_SECONDS.",
            ) from None

    async def _body(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        declared = self.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    async def attended(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` while the client is there, and cancel it when it leaves. The body must have been read.

        In the handshake era, too: its answer can be sent nowhere else, and what is cancelled only reads.

        Raises:
            ClientGoneError: the client left.
        """
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGoneError
            return task.result()
        finally:
            leaving.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, content_type: bytes, body: bytes, headers: Headers = ()) -> None:
        """Send a whole answer."""
        await self._answer_head(status, content_type, body, headers)
        await self.send({"type": "http.response.body", "body": body})

    async def _answer_head(self, status: int, content_type: bytes, body: bytes, headers: Headers) -> None:
        length = b"%d" % len(body)
        await self.start(
            status, ((b"content-type", content_type), (b"content-length", length), *NO_STORE, *headers)
        )

    async def nothing(self, status: int, headers: Headers = ()) -> None:
        """Send an answer without a body."""
        await self.start(status, ((b"content-length", b"0"), *NO_STORE, *headers))
        await self.send({"type": "http.response.body", "body": b""})

    async def json(self, status: int, body: bytes, form: Form = Form.JSON, headers: Headers = ()) -> None:
        """Send one JSON-RPC message, as JSON or, where only that is accepted, as a stream of one event."""
        if form is Form.STREAM:
            await self.answer(status, b"text/event-stream", sse.event(body), headers)
        else:
            await self.answer(status, b"application/json", body, headers)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal. One of a body that was not read whole closes the connection."""
        body = refusal.body()
        if refusal.status not in (TOO_LARGE, TOO_SLOW):
            await self.answer(refusal.status, b"application/json", body, refusal.headers)
            return
        headers = (*refusal.headers, (b"connection", b"close"))
        await self._answer_head(refusal.status, b"application/json", body, headers)
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        if refusal.status == TOO_LARGE:
            await self._linger()
        await self.send({"type": "http.response.body", "body": b""})

    async def _linger(self) -> None:
        """Read on for a moment, and forget it: closing at once would reset the connection.

        The client's machine would then throw the answer away before the client, still sending, has read it.
        """
        left = LINGER_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while left > 0:
                    message = await self.receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return

    async def start(self, status: int, headers: Headers) -> None:
        """Send the status line and headers."""
        self.is_started = True
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *self.extra]})


def _too_large(limit: int) -> Refusal:
    return Refusal(
        TOO_LARGE,
        INVALID_REQUEST,
        f"The body is larger than the {limit} bytes that are allowed; send less, or ask the operator to "
        "raise BROKER_HTTP__MAX_BODY_BYTES.",
    )


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as one mapping; lines of the same name are joined (RFC 9110, section 5.2)."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
