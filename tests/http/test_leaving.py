"""What clients leave behind, however they go: nothing. And what a failure of ours looks like to them."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.http.asking import Asking, connected, modern_headers, modern_request
from tests.http.in_process import running
from tests.support.mcp import BOTH, Handshake, Modern
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet, Replica
from tests.support.wait import until
from workers import Publisher

A = "docs:a"


@pytest.fixture(scope="module")
def own(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give a replica whose gauges nobody else moves; it cuts who does not read for two seconds."""
    prefix = f"leaving{secrets.token_hex(3)}"
    settings = {"BROKER_HTTP__KEEPALIVE_SECONDS": "1", "BROKER_STREAM__WRITE_DEADLINE_SECONDS": "2"}
    with Fleet(redis_server.url, prefix, **settings) as fleet:
        fleet.add(1)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


def gauge(replica: Replica, name: str) -> float:
    """Return the sum of a metric over its labels."""
    status, page = replica.health("metrics")
    assert status == 200, page
    lines = [line for line in page.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
    assert lines, f"no {name} on the page"
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def is_empty(replica: Replica) -> None:
    """Wait until nothing is left of any stream."""
    for name in ("broker_streams_open", "broker_subscriptions_open", "broker_resources_watched"):
        await until(lambda name=name: gauge(replica, name) == 0, lambda name=name: f"{name} is 0")


def listen_bytes(identity: int) -> bytes:
    """Return a listen as bytes."""
    wanted = {"resourceSubscriptions": [A, f"docs:{identity}"], "resourcesListChanged": True}
    body = json.dumps(modern_request("subscriptions/listen", identity, notifications=wanted)).encode()
    lines = {"host": "localhost", "accept": BOTH, "content-type": "application/json",
             "content-length": str(len(body)), **modern_headers("subscriptions/listen")}  # fmt: skip
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return b"POST /mcp HTTP/1.1\r\n" + head.encode() + b"\r\n" + body


@pytest.mark.requirement("stream.nothing-left")
async def test_clients_that_vanish_while_their_listen_opens_leave_nothing(own: Fleet) -> None:
    """The connection is reset right behind the request (field reports 19, 133)."""

    async def vanish(identity: int) -> None:
        async with connected(own[0].address) as line:
            await line.write(listen_bytes(identity))

    async with Publisher(own.redis_url, prefix=own.prefix) as publisher:
        for turn in range(5):
            await asyncio.gather(*[vanish(turn * 40 + each) for each in range(40)])
            await publisher.publish(A, str(turn))
    await is_empty(own[0])


@pytest.mark.requirement("stream.nothing-left")
async def test_streams_that_come_and_go_leave_nothing(own: Fleet, http: httpx.AsyncClient) -> None:
    async with Publisher(own.redis_url, prefix=own.prefix) as publisher:
        for turn in range(5):
            async with Handshake(own.url, "default", http) as session:
                await session.subscribe(A)
                streams = [await session.get_stream() for _ in range(2)]
                await publisher.publish(A, f"stream {turn}")
                await streams[-1].cue(A)
                if turn % 2:
                    await session.delete()
    await is_empty(own[0])


@pytest.mark.requirement("stream.newest")
async def test_of_more_than_three_streams_the_oldest_ends_cleanly(
    own: Fleet, http: httpx.AsyncClient
) -> None:
    async with Handshake(own.url, "default", http) as session:
        streams = [await session.get_stream() for _ in range(4)]
        assert await streams[0].end() == "clean"
        assert [stream.ended for stream in streams[1:]] == [None] * 3


@pytest.mark.requirement("listen.slow")
async def test_a_client_that_reads_nothing_for_too_long_is_cut_and_not_told_that_all_was_well(
    own: Fleet, http: httpx.AsyncClient
) -> None:
    """A graceful result would make it stop listening for good (field report 16)."""
    uris = [f"docs:{'x' * 600}{number}" for number in range(10)]
    message = modern_request("subscriptions/listen", 1, notifications={"resourceSubscriptions": uris})
    body = json.dumps(message).encode()
    start = listen_bytes(1).partition(b"\r\n\r\n")[0]
    length = f"content-length: {len(body)}".encode()
    start = b"\r\n".join(
        length if line.startswith(b"content-length") else line for line in start.split(b"\r\n")
    )
    before = gauge(own[0], "broker_streams_closed_total")
    reader, writer = await asyncio.open_connection(*own[0].address, limit=1 << 12)
    writer.write(start + b"\r\n\r\n" + body)
    await reader.readuntil(b"\r\n\r\n")
    async with Publisher(own.redis_url, prefix=own.prefix) as publisher:
        for number in range(5000):
            await publisher.publish_many([(uri, str(number)) for uri in uris])
            if number % 50 == 0 and gauge(own[0], "broker_streams_blocked"):
                break
        await until(lambda: gauge(own[0], "broker_streams_closed_total") > before, "it is cut", 20)
    left = b""
    try:
        while part := await reader.read(1 << 16):
            left += part
    except ConnectionError:
        pass
    assert b'"resultType"' not in left
    writer.close()
    async with await Modern(own.url, "default", http).listen(uris):
        pass


@pytest.mark.requirement("error.sentence", "endpoint.cors")
def test_a_failure_of_ours_is_a_500_that_pages_can_read_and_that_tells_nothing(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure itself is in the log, and only there."""

    async def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("broker.http.modern.ModernEra.post", fail)
    body = json.dumps(modern_request("server/discover")).encode()
    headers = modern_headers("server/discover", host="localhost", origin="http://localhost:1")
    headers["content-type"] = "application/json"
    prefix = f"fail{secrets.token_hex(3)}"
    with running(redis_server.url, prefix) as app:
        answer = app.ask("POST", [(n.encode(), v.encode()) for n, v in headers.items()], [body])
    with redis_server.client() as client:
        clear(client, prefix)
    assert answer.status == 500
    assert answer.headers[b"access-control-allow-origin"] == b"http://localhost:1"
    error = json.loads(answer.body)["error"]
    assert (error["code"], "secret" in error["message"]) == (-32603, False)


@pytest.mark.requirement("message.concurrent")
async def test_many_requests_on_one_connection_are_answered_in_order(fleet: Fleet, ask: Asking) -> None:
    async with connected(fleet[0].address) as line:
        for number in range(20):
            body = json.dumps(modern_request("server/discover", number)).encode()
            lines = {"host": "localhost", "content-type": "application/json",
                     "content-length": str(len(body)), **modern_headers("server/discover")}  # fmt: skip
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            await line.write(b"POST /mcp HTTP/1.1\r\n" + head.encode() + b"\r\n" + body)
            answer = await line.answer()
            assert json.loads(answer.body)["id"] == number
            line.next()
