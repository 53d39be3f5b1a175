"""A plain HTTP balancer: every request, not every connection, goes to the next replica.

It keeps nothing sticky, buffers no response, passes Host and all other end-to-end headers as they are, and
writes down who served what. If a replica does not accept a connection the next one gets the request (nothing
was sent yet); one that dies later ends its response, abruptly if it ended it so.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import h11

from tests.support.loop_thread import LoopThread

Address = tuple[str, int]
HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer"}
CHUNK = 1 << 16


@dataclass(frozen=True)
class Asked:
    """A request as the balancer saw it. `rpc` is its JSON-RPC method, or empty."""

    method: str
    path: str
    session: str
    rpc: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass
class Served:
    """Which replica got which request."""

    replica: Address
    asked: Asked
    is_over: bool = False
    """Whether the response has ended, however it ended."""


class Balancer:
    """Spreads requests over `replicas`, which may be changed at any time.

    `choose` orders the replicas for a request, the first that accepts gets it; None is round-robin.
    """

    def __init__(
        self,
        replicas: Sequence[Address] = (),
        choose: Callable[[Asked, list[Address]], list[Address]] | None = None,
    ) -> None:
        self.replicas = list(replicas)
        self.choose = choose
        self.served: list[Served] = []
        self._turn = 0
        self._thread = LoopThread("balancer")
        self._server = self._thread.run(asyncio.start_server(self._thread.task(self._serve), "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def close(self) -> None:
        self._thread.call(self._server.close)
        self._thread.close()

    def who_served(self, session: str, *, method: str = "", rpc: str = "") -> list[Address]:
        """Return the replicas, in order, that got requests of a session (by HTTP or JSON-RPC method)."""
        return [
            each.replica
            for each in list(self.served)
            if each.asked.session == session
            and (not method or each.asked.method == method)
            and (not rpc or each.asked.rpc == rpc)
        ]

    def _order(self, asked: Asked) -> list[Address]:
        replicas = list(self.replicas)
        if self.choose is not None:
            return self.choose(asked, replicas)
        self._turn += 1
        start = self._turn % max(len(replicas), 1)
        return replicas[start:] + replicas[:start]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Side(h11.Connection(h11.SERVER), reader, writer)
        try:
            while (asked := await _receive(client)) is not None:
                await self._forward(asked, client)
                if client.http.our_state is not h11.DONE or client.http.their_state is not h11.DONE:
                    break
                client.http.start_next_cycle()
        except (ConnectionError, h11.RemoteProtocolError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _forward(self, asked: Asked, client: "_Side") -> None:
        for replica in self._order(asked):
            try:
                reader, writer = await asyncio.open_connection(*replica)
            except OSError:
                continue
            served = Served(replica, asked)
            self.served.append(served)
            upstream = _Side(h11.Connection(h11.CLIENT), reader, writer)
            leaving = asyncio.create_task(_pass_end_on(client, upstream))
            try:
                await _relay(asked, client, upstream)
            finally:
                served.is_over = True
                leaving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await leaving
                writer.close()
            return
        await client.send(h11.Response(status_code=502, headers=[("content-length", "0")]))
        await client.send(h11.EndOfMessage())


class _Side:
    """One connection and its parser."""

    def __init__(
        self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.http = http
        self.reader = reader
        self.writer = writer

    async def send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def events(self) -> AsyncIterator[Any]:
        """Yield what arrives until the message or the connection ends."""
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                if self.http.they_are_waiting_for_100_continue:
                    await self.send(h11.InformationalResponse(status_code=100, headers=[]))
                self.http.receive_data(await self.reader.read(CHUNK))
                continue
            if isinstance(event, h11.ConnectionClosed):
                return
            yield event
            if isinstance(event, h11.EndOfMessage):
                return


async def _receive(client: _Side) -> Asked | None:
    """Return the client's next request with its whole body, or None when it has left."""
    request: h11.Request | None = None
    body = b""
    async for event in client.events():
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
    if request is None:
        return None
    headers = tuple((name, value) for name, value in request.headers if name not in HOP_BY_HOP)
    session = dict(headers).get(b"mcp-session-id", b"").decode("latin-1")
    return Asked(request.method.decode(), request.target.decode(), session, _rpc(body), headers, body)


def _rpc(body: bytes) -> str:
    try:
        message = json.loads(body)
    except ValueError:
        return ""
    return str(cast("dict[str, Any]", message).get("method", "")) if isinstance(message, dict) else ""


async def _relay(asked: Asked, client: _Side, upstream: _Side) -> None:
    """Send the request, then hand every piece of the response on as it comes.

    Raises:
        h11.RemoteProtocolError, ConnectionError: the replica or the client broke off; the caller aborts, so
            that an abrupt end stays one.
    """
    headers = [(n, v) for n, v in asked.headers if n != b"content-length"]
    if asked.body or asked.method in {"POST", "PUT"}:
        headers.append((b"content-length", str(len(asked.body)).encode()))
    await upstream.send(
        h11.Request(method=asked.method, target=asked.path, headers=[*headers, (b"connection", b"close")])
    )
    if asked.body:
        await upstream.send(h11.Data(data=asked.body))
    await upstream.send(h11.EndOfMessage())
    ended = False
    async for event in upstream.events():
        if isinstance(event, h11.InformationalResponse):
            continue
        if isinstance(event, h11.Response):
            kept = [(n, v) for n, v in event.headers if n not in HOP_BY_HOP]
            await client.send(h11.Response(status_code=event.status_code, headers=kept, reason=event.reason))
        elif isinstance(event, h11.Data):
            await client.send(h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            ended = True
            await client.send(h11.EndOfMessage())
    if not ended:
        raise ConnectionResetError("the replica closed without an answer")


async def _pass_end_on(client: _Side, upstream: _Side) -> None:
    """Tell the replica when the client closes its side; what it pipelines meanwhile is kept for later."""
    with contextlib.suppress(ConnectionError):
        while data := await client.reader.read(CHUNK):
            client.http.receive_data(data)
    client.http.receive_data(b"")
    with contextlib.suppress(OSError):
        upstream.writer.write_eof()
