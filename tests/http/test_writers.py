"""Both ways to write a stream: the same bytes, each of them accounted for (broker/http/fast_writer.py)."""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from broker.http import fast_writer
from broker.http.writer import AsgiWriter
from tests.http.asking import head, modern_request
from tests.support.mcp import MODERN
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet, Replica
from tests.support.wait import within
from workers import Publisher

pytestmark = pytest.mark.requirement("stream.nothing-left")

URIS = [f"docs://written/{number}" for number in range(20)]
CHANGES = 200


@pytest.fixture(scope="module")
def pair(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give a replica that writes the portable way, and one that writes the fast way."""
    prefix = f"write{secrets.token_hex(3)}"
    with Fleet(redis_server.url, prefix, BROKER_HTTP__KEEPALIVE_SECONDS="0.05") as fleet:
        fleet.add(1, BROKER_STREAM__WRITER="portable")
        fleet.add(1, BROKER_STREAM__WRITER="fast")
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture(params=["portable", "fast"])
def replica(request: pytest.FixtureRequest, pair: Fleet) -> Replica:
    return pair[0 if request.param == "portable" else 1]


class Wire:
    """A client that reads byte by byte what no parser is lenient about."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def head(self) -> tuple[bytes, dict[bytes, bytes]]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        return lines[0], dict(line.split(b": ", 1) for line in lines[1:] if line)

    async def chunk(self) -> bytes:
        """Return a chunk's data, b"" for the last one; fails on one byte that does not belong there."""
        size = await self._reader.readuntil(b"\r\n")
        assert re.fullmatch(rb"(0|[1-9a-f][0-9a-f]*)\r\n", size), size
        data = await self._reader.readexactly(int(size, 16) + 2)
        assert data.endswith(b"\r\n"), data
        return data[:-2]

    async def rest(self) -> bytes:
        """Return what comes after the last whole chunk, once the server has closed."""
        try:
            while await self.chunk():
                pass
        except asyncio.IncompleteReadError as ended:
            return ended.partial
        return await self._reader.read()

    async def exactly(self, count: int) -> bytes:
        return await self._reader.readexactly(count)


@asynccontextmanager
async def listening(
    replica: Replica, tenant: str, behind: bytes = b"", version: str = "1.1"
) -> AsyncGenerator[Wire]:
    message = modern_request("subscriptions/listen", 7, notifications={"resourceSubscriptions": URIS})
    reader, writer = await asyncio.open_connection(*replica.address)
    try:
        request = post(tenant, "subscriptions/listen", json.dumps(message).encode())
        writer.write(request.replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1) + behind)
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


def post(tenant: str, method: str, body: bytes, **more: str) -> bytes:
    named = {"MCP_Protocol_Version": MODERN, "Mcp_Method": method, "broker-tenant": tenant, **more}
    return head(Content_Length=str(len(body)), **named) + body


def cut(replica: Replica, tenant: str) -> None:
    """Let an operator end the one stream of `tenant`."""
    base = f"http://127.0.0.1:{replica.internal_port}/streams"
    (stream,) = httpx.get(f"{base}?tenant={tenant}").json()["streams"]
    assert httpx.post(f"{base}/{stream['stream']}/end").status_code == 200


def messages(parts: list[bytes]) -> list[dict[str, Any]]:
    """Return the messages in the parts of a body, each of which must be whole frames and comments."""
    found: list[dict[str, Any]] = []
    for part in parts:
        assert re.fullmatch(rb"(?::\n|event: message\ndata: [^\n]*\n\n)+", part), part
        found += [json.loads(data) for data in re.findall(rb"data: ([^\n]*)\n\n", part)]
    return found


async def test_every_byte_of_a_stream_and_of_the_answer_behind_it_is_in_its_place(
    replica: Replica, pair: Fleet, tenant: str
) -> None:
    """Chunks, keep-alives and cues one after another, the last chunk, and only then the next answer."""
    read = json.dumps(modern_request("resources/read", 8, uri=URIS[0])).encode()
    behind = post(tenant, "resources/read", read, Mcp_Name=URIS[0])
    async with (
        Publisher(pair.redis_url, tenant=tenant, prefix=pair.prefix) as publisher,
        listening(replica, tenant, behind) as wire,
    ):
        status, headers = await within(wire.head(), "the head")
        assert (status, headers[b"transfer-encoding"]) == (b"HTTP/1.1 200 OK", b"chunked")
        parts = [await within(wire.chunk(), "the acknowledgement")]
        for number in range(CHANGES):
            await publisher.publish(URIS[number % len(URIS)], str(number))
        told: set[str] = set()
        while told != set(URIS):
            parts.append(await within(wire.chunk(), "a cue"))
            told |= {message["params"]["uri"] for message in messages(parts[-1:])}
        await asyncio.to_thread(cut, replica, tenant)
        while parts[-1]:
            parts.append(await within(wire.chunk(), "the end"))
        first, *cues, last = messages(parts[:-1])
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert {cue["method"] for cue in cues} == {"notifications/resources/updated"}
        assert (last["id"], last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"]) == (7, 7)
        status, headers = await within(wire.head(), "the next answer")
        answer = json.loads(await wire.exactly(int(headers[b"content-length"])))
        assert (status, answer["id"]) == (b"HTTP/1.1 200 OK", 8)


async def test_what_is_no_request_behind_a_stream_is_not_answered_amid_it(
    replica: Replica, tenant: str
) -> None:
    """The 400 of the server stood between two chunks, and the client took it for the size of the next."""
    async with listening(replica, tenant) as wire:
        await within(wire.head(), "the head")
        await within(wire.chunk(), "the acknowledgement")
        wire.writer.write(b"no request at all\r\n\r\n")
        assert await within(wire.rest(), "the end of the connection") == b""


async def test_a_client_of_http_1_0_gets_the_same_either_way(replica: Replica, tenant: str) -> None:
    """What stands in front of us may be an nginx, which asks in HTTP/1.0 and understands chunks."""
    async with listening(replica, tenant, version="1.0") as wire:
        status, headers = await within(wire.head(), "the head")
        assert (status, headers[b"transfer-encoding"]) == (b"HTTP/1.1 200 OK", b"chunked")
        assert headers[b"connection"] == b"close"
        assert len(messages([await within(wire.chunk(), "the acknowledgement")])) == 1
        await asyncio.to_thread(cut, replica, tenant)
        assert await within(wire.rest(), "the end of the connection") == b""


def test_this_uvicorn_is_known() -> None:
    assert fast_writer.examine() is None
    assert fast_writer.chosen("auto") is fast_writer.fast_or_portable
    assert fast_writer.chosen("portable") is AsgiWriter


def test_an_uvicorn_that_frames_otherwise_is_written_to_through_asgi(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = RequestResponseCycle.send

    async def send(self: RequestResponseCycle, message: Any) -> None:
        if message["type"] == "http.response.body" and message["more_body"]:
            message = {**message, "body": message["body"] + b":\n"}
        await real(self, message)

    monkeypatch.setattr(RequestResponseCycle, "send", send)
    assert fast_writer.chosen("fast") is AsgiWriter
    (record,) = caplog.records
    assert (record.message, record.levelname) == ("stream_writer_portable", "WARNING")
    assert "in another way" in vars(record)["why"]


def test_an_uvicorn_without_what_is_needed_is_written_to_through_asgi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(self: RequestResponseCycle, **_: Any) -> None:
        raise TypeError("unexpected keyword argument 'flow'")

    monkeypatch.setattr(RequestResponseCycle, "__init__", init)
    why_not = fast_writer.examine()
    assert why_not is not None
    assert "unexpected keyword argument 'flow'" in why_not
    assert fast_writer.chosen("auto") is AsgiWriter


def test_a_send_that_is_not_uvicorns_own_is_used_as_it_is() -> None:
    async def send(_: Any) -> None: ...

    assert type(fast_writer.fast_or_portable(send, None)) is AsgiWriter
