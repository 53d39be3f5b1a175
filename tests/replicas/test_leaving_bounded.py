"""Leaving is bounded whatever is stuck, and a storm of clients that come back is served (promise 9)."""

import asyncio
import json
import socket
from typing import Any, cast

import pytest

from tests.replicas.conftest import SUBSCRIBED, TENANT, Bench
from tests.support.mcp import MODERN, Handshake, Modern
from tests.support.replica import Replica
from tests.support.wait import until

URI = "docs://guide"
DRAIN = 2.0
MARGIN = 8.0
"""Seconds on top of the drain: the last requests, the lifespan's end, and a machine with others at work."""


async def _left(replica: Replica) -> int:
    """Ask it to leave; its exit status, within the drain and a margin."""
    return await asyncio.to_thread(replica.leave, DRAIN + MARGIN)


async def test_a_client_that_reads_nothing_does_not_keep_a_replica(bench: Bench) -> None:
    fleet = bench.fleet(BROKER_DRAIN_SECONDS=str(DRAIN))
    await bench.publisher.publish(URI, "x" * 4_000_000)
    watch = await bench.watch(fleet.url)
    stuck = _request(fleet[0], "resources/read", {"uri": URI}, socket_buffer=4096)
    await until(lambda: asyncio.to_thread(_has_answer, stuck), "the answer has begun")
    try:
        assert await _left(fleet[0]) == 0
    finally:
        stuck.close()
    # The others were ended as ever.
    assert await watch.listening.end() == "clean"
    assert await watch.stream.end() == "clean"
    assert "Traceback" not in fleet[0].process.tail(1000)


@pytest.mark.parametrize("way", ["black hole", "refused"])
async def test_a_redis_that_is_away_does_not_keep_a_replica(bench: Bench, way: str) -> None:
    fleet = bench.fleet(BROKER_DRAIN_SECONDS=str(DRAIN))
    watch = await bench.watch(fleet.url)
    if way == "refused":
        bench.proxy.refuse()
    else:
        bench.proxy.black_hole()
    asking = asyncio.create_task(watch.session.ask("resources/list"))
    assert await _left(fleet[0]) == 0
    assert await watch.listening.end() == "clean"
    assert await watch.stream.end() == "clean"
    # Answered or refused, but not left hanging.
    await asyncio.wait_for(asyncio.wait([asking]), 5)
    assert "Traceback" not in fleet[0].process.tail(1000)


async def test_while_a_replica_leaves_each_answer_closes_its_connection(bench: Bench) -> None:
    fleet = bench.fleet(BROKER_DRAIN_SECONDS="5", BROKER_LINGER_SECONDS="5")
    client = Handshake(fleet[0].url, TENANT, bench.http)
    await client.initialize()
    leaving = asyncio.create_task(asyncio.to_thread(fleet[0].leave, 20))
    await until(lambda: asyncio.to_thread(_is_unready, fleet[0]), "not ready")
    answer = await client.post(
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        client.headers(accept="application/json, text/event-stream"),
    )
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    # Who comes all the same is let in, and sent away soon.
    await client.subscribe(SUBSCRIBED)
    stream = await client.get_stream()
    assert await stream.end() == "clean"
    assert await leaving == 0


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.full)])
async def test_clients_that_are_all_cut_at_once_are_all_back_and_told(bench: Bench, count: int) -> None:
    """A replica dies under `count` listens; all open anew at once on the other one."""
    fleet = bench.fleet(2)
    first, second = fleet.replicas
    await bench.publisher.publish(URI, "0")
    storm = [await _Raw.open(first) for _ in range(count)]
    before = _commands(bench)
    await asyncio.to_thread(first.kill)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(raw.ended() for raw in storm))
    back = await asyncio.gather(*(_Raw.open(second) for _ in range(count)))
    took = asyncio.get_running_loop().time() - began
    asked = _commands(bench) - before
    # One script each, and what the heartbeats and readers of both replicas ask meanwhile.
    assert asked <= count * 1.5 + 40 * (took + 2), f"{asked} commands for {count} clients in {took:.1f} s"
    client = Modern(second.url, TENANT, bench.http)
    assert (await client.read(URI))[0]["text"] == "0"
    await bench.publisher.publish(URI, "1")
    await asyncio.gather(*(raw.cued() for raw in back))
    for raw in (*storm, *back):
        raw.close()


class _Raw:
    """One listen on a bare connection: 2,000 of an HTTP client's would be the test's own storm."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, replica: Replica) -> "_Raw":
        """Listen, and wait for the acknowledgement."""
        raw = cls(*await asyncio.open_connection(*replica.address))
        notifications = {"resourceSubscriptions": [URI]}
        raw._writer.write(_bytes(replica, "subscriptions/listen", {"notifications": notifications}))
        await raw._until(b"notifications/subscriptions/acknowledged")
        return raw

    async def cued(self) -> None:
        await self._until(b"notifications/resources/updated")

    async def ended(self) -> None:
        """Wait for the end of the connection, however it comes."""
        try:
            async with asyncio.timeout(30):
                await self._reader.read()
        except ConnectionError:
            return

    async def _until(self, word: bytes) -> None:
        async with asyncio.timeout(60):
            await self._reader.readuntil(word)

    def close(self) -> None:
        self._writer.close()


def _bytes(replica: Replica, method: str, params: dict[str, Any]) -> bytes:
    """Return a request of the modern era as it stands on the wire."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    ).encode()
    head = (
        "POST /mcp HTTP/1.1",
        f"host: 127.0.0.1:{replica.port}",
        "accept: application/json, text/event-stream",
        "content-type: application/json",
        f"broker-tenant: {TENANT}",
        f"mcp-protocol-version: {MODERN}",
        f"mcp-method: {method}",
        *([f"mcp-name: {params['uri']}"] if "uri" in params else []),
        f"content-length: {len(body)}",
    )
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def _request(replica: Replica, method: str, params: dict[str, Any], *, socket_buffer: int) -> socket.socket:
    """Send a request from a socket that takes few bytes, and read nothing."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, socket_buffer)
    deaf.connect(replica.address)
    deaf.sendall(_bytes(replica, method, params))
    return deaf


def _has_answer(deaf: socket.socket) -> bool:
    deaf.settimeout(0.2)
    try:
        return deaf.recv(1, socket.MSG_PEEK) == b"H"
    except TimeoutError:
        return False


def _is_unready(replica: Replica) -> bool:
    return replica.health("readyz")[0] == 503


def _commands(bench: Bench) -> int:
    """How many commands Redis has been asked by clients, whatever scripts do inside."""
    info = cast("dict[str, dict[str, int]]", bench.run("INFO", "commandstats"))
    return sum(info.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval", "xread"))
