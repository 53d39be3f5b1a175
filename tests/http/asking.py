"""Requests of which a test decides every header and byte, and what a correct one of each era looks like."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import h11
import httpx

from tests.support.balancer import Address
from tests.support.mcp import BOTH, HANDSHAKE, MODERN
from tests.support.wait import within

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

Headers = dict[str, str]


def modern_meta(version: str = MODERN, **more: Any) -> dict[str, Any]:
    """Return the `_meta` of a request of the modern era."""
    client = {"name": "asking", "version": "1"}
    return {META_VERSION: version, META_CLIENT: client, META_CAPABILITIES: {}, **more}


def request(method: str, identity: Any = 1, **params: Any) -> dict[str, Any]:
    """Return a request of the handshake era."""
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


def modern_request(method: str, identity: Any = 1, **params: Any) -> dict[str, Any]:
    """Return a request of the modern era."""
    return request(method, identity, **params, _meta=modern_meta())


def modern_headers(method: str, name: str | None = None, **more: str) -> Headers:
    """Return the headers that mirror a modern request."""
    named = {} if name is None else {"mcp-name": name}
    return {"mcp-protocol-version": MODERN, "mcp-method": method, **named, **more}


def initialize(version: str = HANDSHAKE, identity: Any = 0) -> dict[str, Any]:
    """Return the request that begins a session."""
    client = {"name": "asking", "version": "1"}
    return request("initialize", identity, protocolVersion=version, capabilities={}, clientInfo=client)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the error in an answer, checking what holds for every error.

    It is one JSON-RPC error with a sentence for a person, kept by nobody, and never carries a session id:
    TypeScript 1.x adopts that from any answer.
    """
    assert answer.headers["content-type"] == "application/json", (answer, answer.content)
    assert answer.headers["cache-control"] == "no-store"
    assert "mcp-session-id" not in answer.headers
    body = answer.json()
    assert body["jsonrpc"] == "2.0"
    assert "result" not in body
    error = body["error"]
    assert error["message"].endswith((".", "?")), error
    assert " " in error["message"]
    return {"id": body["id"], **error}


def result_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the result in an answer that has one."""
    assert answer.status_code == 200, (answer, answer.content)
    body = answer.json()
    assert "error" not in body, body
    result: dict[str, Any] = body["result"]
    return result


class Asking:
    """Sends requests to one URL, as one tenant."""

    def __init__(self, http: httpx.AsyncClient, url: str, tenant: str) -> None:
        self.http = http
        self.url = url
        self.tenant = tenant

    async def send(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, url: str | None = None
    ) -> httpx.Response:
        """Send a request with these headers and no others of ours but the tenant."""
        every = {"broker-tenant": self.tenant, **headers}
        # Latin-1, since that is all that a header's bytes can be said to be.
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in every.items()]
        return await self.http.request(method, url or self.url, headers=encoded, content=content)

    async def post(
        self, message: Any, headers: Mapping[str, str] | None = None, url: str | None = None
    ) -> httpx.Response:
        """Post a message, or the bytes of something that is none."""
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        all_headers = {"accept": BOTH, "content-type": "application/json", **(headers or {})}
        return await self.send("POST", all_headers, content, url)

    async def modern(
        self, method: str, identity: Any = 1, *, name: str | None = None, **params: Any
    ) -> httpx.Response:
        """Send a correct request of the modern era."""
        return await self.post(modern_request(method, identity, **params), modern_headers(method, name))

    async def session(self, version: str = HANDSHAKE) -> Headers:
        """Begin a session, and return the headers of a request in it."""
        begun = await self.post(initialize(version))
        headers = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": version}
        assert begun.json()["result"]["protocolVersion"] == version
        done = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        assert (done.status_code, done.content) == (202, b"")
        return headers


@dataclass(frozen=True)
class Answer:
    """What a server answered to raw bytes; `status` 0 if it closed without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.asynccontextmanager
async def connected(address: Address) -> AsyncGenerator["Line"]:
    """Give a bare connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


class Line:
    """A connection on which a test writes bytes and reads HTTP answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def next(self) -> None:
        """Be ready for another request on the same connection."""
        self._http.start_next_cycle()

    def finish(self) -> None:
        """Say that nothing more will be written."""
        self._writer.write_eof()

    async def answer(self, method: str = "POST", seconds: float = 10.0) -> Answer:
        """Return the answer to the one request that was written."""
        asked = h11.Request(method=method, target="/", headers=[("host", "x")])
        self._http.send(asked)
        self._http.send(h11.EndOfMessage())
        return await within(self._read(), "an answer", seconds)

    async def closed(self, seconds: float = 10.0) -> None:
        """Wait until the server has closed the connection."""
        await within(self._drained(), "the server's end of the connection", seconds)

    async def _drained(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1 << 16):
                pass

    async def _read(self) -> Answer:
        status, headers, body = 0, {}, b""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(1 << 16))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                return Answer(status, headers, body)


def head(method: str = "POST", path: str = "/mcp", **headers: str) -> bytes:
    """Return the head of a request as bytes; an underscore in a name is a hyphen."""
    lines = {"Host": "localhost", "Accept": BOTH, "Content-Type": "application/json"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode()
