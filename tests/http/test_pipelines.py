"""Clients that send more behind a request that is being answered, and clients that leave things half done.

What one connection does must not be felt by any other stream of the replica, and nothing of it may stay.
"""

import json
import re
import secrets
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.asking import connected, head, modern_request
from tests.support.mcp import MODERN, Modern
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet, Replica
from tests.support.wait import until
from workers import Publisher

pytestmark = pytest.mark.requirement("endpoint.no-500", "stream.nothing-left")

URI = "docs://piped"
LISTEN = json.dumps(
    modern_request("subscriptions/listen", notifications={"resourceSubscriptions": [URI]})
).encode()
READ = json.dumps(modern_request("resources/read", uri=URI)).encode()


@pytest.fixture(scope="module")
def impatient(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give a replica that waits for nobody for long."""
    prefix = f"pipe{secrets.token_hex(3)}"
    patience = {
        "BROKER_HTTP__HEAD_SECONDS": "0.5",
        "BROKER_HTTP__BODY_SECONDS": "0.5",
        "BROKER_HTTP__IDLE_SECONDS": "1",
        "BROKER_HTTP__KEEPALIVE_SECONDS": "0.2",
        "BROKER_STREAM__WRITE_DEADLINE_SECONDS": "0.5",
    }
    with Fleet(redis_server.url, prefix, **patience) as fleet:
        fleet.add(1)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


def post(method: str, body: bytes, **more: str) -> bytes:
    length = str(len(body))
    return head(MCP_Protocol_Version=MODERN, Mcp_Method=method, Content_Length=length, **more) + body


def open_streams(replica: Replica) -> float:
    """Return how many streams the replica says are open."""
    found = re.findall(r"^broker_streams_open(?:\{.*?\})? (\S+)$", replica.health("metrics")[1], re.MULTILINE)
    return sum(map(float, found))


async def test_a_client_that_leaves_with_requests_behind_its_stream_harms_nobody(impatient: Fleet) -> None:
    """Only the last request learned that the client had left; the stream's next write ended the replica."""
    replica = impatient[0]
    async with (
        Publisher(impatient.redis_url, prefix=impatient.prefix) as publisher,
        Modern(replica.url) as other,
        await other.listen([URI]) as listening,
    ):
        await publisher.publish(URI, "first")
        await listening.cue(URI)
        for _ in range(5):
            leaving = socket.create_connection(replica.address)
            leaving.sendall(
                post("subscriptions/listen", LISTEN) + 3 * post("resources/read", READ, Mcp_Name=URI)
            )
            await until(lambda: open_streams(replica) > 1, "the stream is open")
            # Closed without an end: the next write finds nobody.
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leaving.close()
            await until(lambda: open_streams(replica) == 1, "the stream that was left is gone", 20)
        cued = len(listening.cues)
        await publisher.publish(URI, "last")
        await listening.cue(URI, cued + 1)
        assert replica.process.is_running


@pytest.mark.parametrize(
    "refused",
    [
        head(Host="evil.example", Content_Length="1000"),
        head(path="/nothing", Content_Length="1000"),
        head("OPTIONS", Content_Length="1000"),
        head(Content_Type="text/plain", Content_Length="1000"),
        head("PUT", "/v1/resources?uri=", Content_Length="1000"),
    ],
)
async def test_a_body_that_comes_after_its_answer_does_not_keep_the_connection(
    impatient: Fleet, refused: bytes
) -> None:
    """Any byte of it ended the server's own clock, and the connection stayed for ever."""
    async with connected(impatient[0].address) as line:
        await line.write(refused)
        await line.answer()
        await line.write(b"x")
        await line.closed()
    async with connected(impatient[0].address) as line:
        await line.write(refused)
        await line.answer()
        await line.write(b"x" * 1000)
        await line.closed()


@pytest.mark.parametrize("framing", [{"Content_Length": "1000"}, {"Transfer_Encoding": "chunked"}])
async def test_what_is_published_comes_in_time_or_is_408(impatient: Fleet, framing: dict[str, str]) -> None:
    async with connected(impatient[0].address) as line:
        await line.write(head("PUT", "/v1/resources?uri=docs://half", **framing) + b"3\r\nabc")
        answer = await line.answer("PUT")
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert json.loads(answer.body)["error"]["reason"] == "too_slow"
        await line.closed()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel's table of connections is Linux'")
async def test_a_client_that_reads_nothing_keeps_neither_its_answer_nor_its_connection(
    impatient: Fleet,
) -> None:
    replica = impatient[0]
    async with Publisher(impatient.redis_url, prefix=impatient.prefix) as publisher:
        await publisher.publish(URI, "x" * 900_000)
    for more in ({}, {"Connection": "close"}):
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(replica.address)
            deaf.sendall(20 * post("resources/read", READ, Mcp_Name=URI, **more))
            await until(lambda: not is_connected(replica, deaf), "it was cut", 20)


def is_connected(replica: Replica, client: socket.socket) -> bool:
    """Whether the replica's side of a connection is still there, by the kernel's own table."""
    local, remote = f"{replica.port:04X}", f"{client.getsockname()[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(
        row[1].endswith(f":{local}") and row[2].endswith(f":{remote}") and row[9] != "0" for row in rows[1:]
    )
