"""The faulty network and the balancer do what they say."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

import httpx
import pytest

from tests.support.balancer import Address, Balancer
from tests.support.fault_proxy import FaultProxy
from tests.support.process import free_port
from tests.support.redis_server import RedisServer, clear, keys_of, leaked
from tests.support.wait import until, until_sync

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def upstream(handler: Handler) -> AsyncGenerator[Address]:
    """Serve raw bytes as a replica would."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()


def answering(name: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        host = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:"))
        body = name + b" " + host
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    return handle


# -- the proxy


PING = b"PING\r\n"


def ask(proxy: FaultProxy, command: bytes = PING, seconds: float = 0.3) -> bytes:
    with socket.create_connection(("127.0.0.1", proxy.port), seconds) as connection:
        connection.sendall(command)
        return connection.recv(100)


def test_what_a_black_hole_held_arrives_when_it_ends(redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.address) as proxy:
        assert ask(proxy) == b"+PONG\r\n"
        with socket.create_connection(("127.0.0.1", proxy.port), 0.2) as connection:
            proxy.black_hole()
            connection.sendall(PING)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            proxy.pass_all()
            assert connection.recv(100) == b"+PONG\r\n"


def test_a_black_hole_may_swallow_one_way_only(redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.address) as proxy, redis_server.client() as client:
        proxy.black_hole(up=False, down=True)
        with pytest.raises(TimeoutError):
            ask(proxy, b"SET went-up 1\r\n")
        assert client.delete("went-up") == 1


def test_only_the_replies_to_one_kind_of_command_may_be_late(redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.address) as proxy:
        proxy.hold(b"ECHO")
        with socket.create_connection(("127.0.0.1", proxy.port), 0.2) as late:
            late.sendall(b"ECHO late\r\n")
            with pytest.raises(TimeoutError):
                late.recv(100)
            assert ask(proxy) == b"+PONG\r\n"
            proxy.release()
            assert late.recv(100) == b"$4\r\nlate\r\n"
        assert proxy.held == 1


def test_a_refusing_proxy_refuses_and_comes_back_on_its_port(redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.address) as proxy:
        port = proxy.port
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            ask(proxy)
        proxy.pass_all()
        assert proxy.port == port
        assert ask(proxy) == b"+PONG\r\n"


def test_open_connections_can_be_closed_or_reset(redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.address) as proxy:
        for fault in (proxy.cut, proxy.reset):
            with socket.create_connection(("127.0.0.1", proxy.port), 5) as connection:
                connection.sendall(PING)
                assert connection.recv(100) == b"+PONG\r\n"
                assert proxy.connections == 1
                fault()
                if fault == proxy.cut:
                    assert connection.recv(100) == b""
                else:
                    with pytest.raises(ConnectionResetError):
                        connection.recv(100)
            until_sync(lambda: proxy.connections == 0, "all connections closed")


def test_a_delay_delays_each_way(redis_server: RedisServer) -> None:
    with FaultProxy(redis_server.address) as proxy:
        proxy.delay(0.05)
        began = time.monotonic()
        assert ask(proxy, seconds=5) == b"+PONG\r\n"
        assert time.monotonic() - began >= 0.1


# -- the server


def test_a_server_with_a_disk_keeps_what_it_answered_and_without_data_is_empty() -> None:
    with RedisServer(appendonly=True) as server:
        with server.client() as client:
            client.set("kept", "1")
        server.restart()
        with server.client() as client:
            assert client.get("kept") == b"1"
        server.restart(keep_data=False)
        with server.client() as client:
            assert client.get("kept") is None


def test_a_key_that_nothing_removes_is_a_leak(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        try:
            client.set("leaks:{0.0}:session:acme:x", "1")
            client.set("leaks:{0.0}:token:acme:x", "1", ex=60)
            client.set("leaks:{0.0}:res:acme:docs://1", "1")
            assert leaked(client, "leaks") == ["leaks:{0.0}:session:acme:x"]
        finally:
            clear(client, "leaks")
        assert list(keys_of(client, "leaks")) == []


# -- the balancer


async def test_every_request_of_one_connection_goes_to_the_next_replica() -> None:
    async with upstream(answering(b"a")) as a, upstream(answering(b"b")) as b:
        with Balancer([a, b]) as balancer:
            async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1)) as client:
                said = [(await client.get(balancer.url)).text.split()[0] for _ in range(4)]
    assert sorted(said[:2]) == sorted(said[2:]) == ["a", "b"]
    assert said[:2] == said[2:]


async def test_the_host_of_a_request_stays_as_it_was() -> None:
    async with upstream(answering(b"a")) as a, httpx.AsyncClient() as client:
        with Balancer([a]) as balancer:
            answer = await client.get(balancer.url, headers={"host": "Evil.example"})
    assert answer.text == "a host: Evil.example"


async def test_a_dead_replica_is_passed_over() -> None:
    dead: Address = ("127.0.0.1", free_port())
    async with upstream(answering(b"a")) as a, httpx.AsyncClient() as client:
        with Balancer([dead, a]) as balancer:
            assert [(await client.get(balancer.url)).status_code for _ in range(4)] == [200] * 4
            assert {each.replica for each in balancer.served} == {a}
            balancer.replicas.remove(a)
            assert (await client.get(balancer.url)).status_code == 502


async def test_who_served_what_is_written_down() -> None:
    async with upstream(answering(b"a")) as a, httpx.AsyncClient() as client:
        with Balancer([a]) as balancer:
            headers = {"mcp-session-id": "S"}
            await client.post(balancer.url, json={"method": "resources/subscribe"}, headers=headers)
            await client.get(balancer.url, headers=headers)
            assert balancer.who_served("S", rpc="resources/subscribe") == [a]
            assert balancer.who_served("S", method="GET") == [a]
            assert balancer.who_served("other") == []


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_stream_is_not_buffered_and_its_clean_end_stays_clean() -> None:
    go = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"3\r\n:\n\n\r\n")
        await go.wait()
        writer.write(b"0\r\n\r\n")
        writer.close()

    async with upstream(handle) as a, httpx.AsyncClient() as client:
        with Balancer([a]) as balancer:
            async with client.stream("GET", balancer.url) as response:
                pieces = response.aiter_raw()
                assert await anext(pieces) == b":\n\n"
                go.set()
                assert [piece async for piece in pieces] == []


async def test_an_abrupt_end_stays_abrupt() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"3\r\n:\n\n\r\n")
        await writer.drain()
        writer.close()

    async with upstream(handle) as a, httpx.AsyncClient() as client:
        with Balancer([a]) as balancer:
            async with client.stream("GET", balancer.url) as response:
                with pytest.raises(httpx.TransportError):
                    [piece async for piece in response.aiter_raw()]


async def test_a_client_that_leaves_is_seen_to_leave_by_the_replica() -> None:
    left = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"3\r\n:\n\n\r\n")
        assert await reader.read() == b""
        left.set()
        writer.close()

    async with upstream(handle) as a:
        with Balancer([a]) as balancer:
            async with httpx.AsyncClient() as client, client.stream("GET", balancer.url) as response:
                await anext(response.aiter_raw())
            await until(left.is_set, "the replica saw its client leave")
