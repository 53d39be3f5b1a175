"""Reading a log on a held connection (store/line.py), against real servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from broker.store.client import Connect, commands, disconnect, reader
from broker.store.keys import Keys
from broker.store.line import Line, RawEntry
from tests.support.redis_server import RedisServer
from tests.support.wait import until, within

FIELDS = {"k": "c", "u": "docs://1"}
READ = [b"k", b"c", b"u", b"docs://1"]


@pytest.fixture
def how(redis_server: RedisServer, prefix: str) -> Connect:
    return Connect(redis_server.url, Keys(prefix))


@pytest.fixture
async def redis(how: Connect) -> AsyncIterator[Any]:
    client = commands(how)
    yield client
    await client.aclose()


@pytest.fixture
async def client(how: Connect) -> AsyncIterator[Redis]:
    client = reader(how)
    yield client
    await client.aclose()


@pytest.fixture
def line(client: Redis, how: Connect) -> Line:
    return Line(client, how.keys.log(0), block_ms=1000, timeout=2.0)


class Stranger:
    """A client of another make, of which only the call itself is known."""

    def __init__(self, client: Redis) -> None:
        self.xread = client.xread


async def test_entries_come_as_they_were_added_and_an_idle_log_is_answered(
    redis: Any, line: Line, how: Connect
) -> None:
    log = how.keys.log(0)
    added = [await redis.xadd(log, FIELDS) for _ in range(3)]
    assert [tuple(entry) for entry in await line.read(b"0-0", 2)] == [(each, READ) for each in added[:2]]
    assert [tuple(entry) for entry in await line.read(added[1], 10)] == [(added[2], READ)]
    assert await line.read(added[2], 10) == []


async def test_a_client_of_another_make_is_asked_its_own_way(redis: Any, client: Redis, how: Connect) -> None:
    log = how.keys.log(0)
    added = await redis.xadd(log, FIELDS)
    line = Line(Stranger(client), log, block_ms=10, timeout=2.0)  # type: ignore[arg-type] # so it is
    assert await line.read(b"0-0", 10) == [(added, READ)]


async def test_a_waiting_reader_is_woken_by_an_entry(redis: Any, line: Line, how: Connect) -> None:
    waiting = asyncio.create_task(line.read(b"0-0", 10))
    await until(lambda: "open" in repr(line), "it waits")
    added = await redis.xadd(how.keys.log(0), FIELDS)
    assert [tuple(entry) for entry in await within(waiting, "the entry")] == [(added, READ)]


async def test_what_was_cancelled_leaves_no_answer_to_the_next(redis: Any, line: Line, how: Connect) -> None:
    """The answer to an abandoned read must not be taken for that of the next one."""
    log = how.keys.log(0)
    first = await redis.xadd(log, FIELDS)
    for _ in range(20):
        reading: asyncio.Task[list[RawEntry]] = asyncio.create_task(line.read(first, 10))
        await until(lambda: "open" in repr(line), "it waits")
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        assert "closed" in repr(line)
    second = await redis.xadd(log, FIELDS)
    assert [entry_id for entry_id, _ in await line.read(b"0-0", 10)] == [first, second]


async def test_a_connection_that_was_given_up_is_replaced(
    redis: Any, line: Line, client: Redis, how: Connect
) -> None:
    """The heartbeat drops a deaf reader's connection: amid a read that fails, else the next opens another."""
    log = how.keys.log(0)
    added = await redis.xadd(log, FIELDS)
    assert len(await line.read(b"0-0", 10)) == 1
    await disconnect(client)
    assert len(await line.read(b"0-0", 10)) == 1
    waiting = asyncio.create_task(line.read(added, 10))
    await until(lambda: "open" in repr(line), "it waits")
    await disconnect(client)
    with pytest.raises((RedisError, OSError)):
        await within(waiting, "the read's end")
    assert len(await line.read(b"0-0", 10)) == 1


async def test_a_server_that_says_nothing_is_given_up(own_redis: RedisServer, prefix: str) -> None:
    how = Connect(own_redis.url, Keys(prefix))
    client = reader(how)
    line = Line(client, how.keys.log(0), block_ms=50, timeout=0.3)
    assert await line.read(b"0-0", 10) == []
    own_redis.process.pause()
    try:
        with pytest.raises(TimeoutError):
            await line.read(b"0-0", 10)
    finally:
        own_redis.process.resume()
    assert await line.read(b"0-0", 10) == []
    await client.aclose()


async def test_an_error_of_the_server_is_raised_and_the_connection_goes_on(
    redis: Any, line: Line, how: Connect
) -> None:
    await redis.set(how.keys.log(0), "no stream")
    for _ in range(2):
        with pytest.raises(RedisError, match="WRONGTYPE"):
            await line.read(b"0-0", 10)
    await redis.delete(how.keys.log(0))
    assert await line.read(b"0-0", 10) == []
