"""The client follows the primary that the sentinels name, and never stays with one that is none any more."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.errors import StoreUnavailable, WrongStore
from broker.core.revision import Stamp
from broker.store.client import Connect, commands, commands_sync, follow, reader
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.sentinel import Answer, best, is_enough
from tests.store.shelf import Shelf
from tests.support.redis_sentinel import RedisSentinel
from tests.support.redis_server import RedisServer
from tests.support.wait import until, until_sync, within

PREFIX = "sentinel"
RECOVERY = 2.0
"""Seconds from when the new primary answers (promise 2), for whoever waits on the old one."""


@pytest.fixture(scope="module")
def setup() -> Iterator[RedisSentinel]:
    """Give a set-up that the tests of this file hurt, each leaving it healed."""
    with RedisSentinel() as sentinel:
        yield sentinel


@pytest.fixture
def sentinel(setup: RedisSentinel) -> Iterator[RedisSentinel]:
    yield setup
    setup.heal()


@pytest.fixture
def how(sentinel: RedisSentinel) -> Connect:
    return Connect(sentinel.url, Keys(PREFIX))


def test_the_newest_configuration_wins_over_a_sentinel_that_was_cut_off() -> None:
    old, new = ("a", 1), ("b", 2)
    assert best([Answer(1, old), Answer(2, new)]) == new
    assert best([Answer(0, None), Answer(1, old)]) == old
    assert best([Answer(0, None)]) is None
    assert best([]) is None


def test_a_majority_is_more_than_half() -> None:
    assert [is_enough(answers, 3) for answers in range(4)] == [False, False, True, True]
    assert not is_enough(1, 2)
    assert is_enough(1, 1)


async def test_the_primary_is_found_and_written_to(sentinel: RedisSentinel, how: Connect) -> None:
    client = commands(how)
    shelf = Shelf(client, how.keys)
    assert (await shelf.publish("hello")).status == "published"
    with sentinel.primary.client() as raw:
        untyped: Any = raw
        assert untyped.exists(how.keys.resource(shelf.key()))
    await client.aclose()


def test_plain_scripts_find_it_too_though_a_sentinel_is_stuck(sentinel: RedisSentinel, how: Connect) -> None:
    stuck = sentinel.sentinels[0]
    stuck.pause()
    client = commands_sync(how)
    try:
        untyped: Any = client
        assert untyped.ping()
    finally:
        stuck.resume()
        client.close()


async def test_a_stuck_sentinel_holds_up_nobody(sentinel: RedisSentinel, how: Connect) -> None:
    stuck = sentinel.sentinels[1]
    stuck.pause()
    client: Any = commands(how)
    try:
        assert await within(client.ping(), "an answer", 0.9)
    finally:
        stuck.resume()
        await client.aclose()


async def test_an_unknown_service_is_named(sentinel: RedisSentinel) -> None:
    client: Any = commands(Connect(sentinel.url.replace("/main", "/nobody"), Keys(PREFIX)))
    with pytest.raises(StoreUnavailable, match="know no service nobody"), translated():
        await client.ping()
    await client.aclose()


async def test_sentinels_that_are_not_there_are_named() -> None:
    client: Any = commands(Connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", Keys(PREFIX)))
    with (
        pytest.raises(StoreUnavailable, match=r"No sentinel of 127\.0\.0\.1:1, 127\.0\.0\.1:2"),
        translated(),
    ):
        await client.ping()
    await client.aclose()


async def test_a_sentinel_taken_for_a_redis_is_told_so(sentinel: RedisSentinel) -> None:
    client: Any = commands(Connect(sentinel.sentinels[0].url.removesuffix("/0"), Keys(PREFIX)))
    with pytest.raises(WrongStore, match=r"a sentinel's.*redis\+sentinel://"), translated():
        await client.ping()
    await client.aclose()


async def test_a_replica_is_never_written_to(sentinel: RedisSentinel) -> None:
    """Not even one whose promotion comes later: its connection fails in its first words."""
    client: Any = commands(Connect(sentinel.replicas[0].url, Keys(PREFIX)))
    with pytest.raises(StoreUnavailable, match="read-only replica of 127"), translated():
        await client.ping()
    await client.aclose()


@pytest.mark.parametrize("way", ["kill", "pause", "failover"])
async def test_commands_and_readers_move_with_the_primary(
    sentinel: RedisSentinel, how: Connect, way: str
) -> None:
    client, tail = commands(how), reader(how)
    shelf = Shelf(client, how.keys)
    watch = asyncio.create_task(follow(client, tail))
    first = (await shelf.publish(f"before {way}")).stamp
    old = sentinel.primary
    waiting = asyncio.create_task(until_it_fails(tail, how))
    # In its queue, or the crash may come first.
    await until(lambda: is_blocked(old), "the reader waits")
    if way == "failover":
        new = await asyncio.to_thread(sentinel.failover)
    else:
        await asyncio.to_thread(getattr(sentinel, way))
        new = await asyncio.to_thread(sentinel.until_moved, old)
    outcome = await within(patiently(shelf, way, first), "a publish to the new primary", RECOVERY)
    await within(waiting, "the reader's error", RECOVERY)
    assert first is not None
    assert outcome.n > first.n
    with new.client() as raw:
        untyped: Any = raw
        head = untyped.hgetall(how.keys.head())
        assert head[b"run"].decode() == untyped.info("server")["run_id"]
    found = await within(patiently_read(tail, how), "what the new primary has", RECOVERY)
    assert found
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    await tail.aclose()
    await client.aclose()


async def patiently(shelf: Shelf, text: str, before: Stamp | None) -> Stamp:
    """Publish until the log is another one: the new primary has another run id."""
    count = 0
    while True:
        count += 1
        with contextlib.suppress(StoreUnavailable):
            stamp = (await shelf.publish(f"{text} {count}")).stamp
            if stamp is not None and before is not None and stamp.epoch != before.epoch:
                return stamp
        await asyncio.sleep(0.02)


async def until_it_fails(tail: Any, how: Connect) -> None:
    with contextlib.suppress(StoreUnavailable), translated():
        while True:
            await tail_from(tail, how, "$")


async def tail_from(tail: Any, how: Connect, after: str) -> Any:
    return await tail.xread({how.keys.log(0): after}, count=10, block=1000)


async def patiently_read(tail: Any, how: Connect) -> Any:
    while True:
        try:
            with translated():
                return await tail_from(tail, how, "0-0")
        except StoreUnavailable:
            await asyncio.sleep(0.02)


def is_blocked(server: RedisServer) -> bool:
    with server.client() as raw:
        untyped: Any = raw
        return untyped.info("clients")["blocked_clients"] > 0


async def test_a_connection_from_before_is_not_used_after_a_demotion_by_hand(own_redis: RedisServer) -> None:
    """Nobody closes it there, and it would write without having seen that the log is another one."""
    how = Connect(own_redis.url, Keys(PREFIX), pool_size=3)
    client = commands(how)
    shelf = Shelf(client, how.keys)
    before = (await shelf.publish("one")).stamp
    pool: Any = client.connection_pool
    held = await pool.get_connection()
    with own_redis.client() as raw:
        untyped: Any = raw
        untyped.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnavailable):
            await shelf.publish("two")
        untyped.replicaof("no", "one")
        # As the other primary's writes would have left it.
        untyped.hset(how.keys.head(), "run", "another")
    await pool.release(held)
    after = [(await shelf.publish(f"three {n}")).stamp for n in range(3)]
    assert before is not None
    assert {stamp.epoch for stamp in after if stamp} != {before.epoch}
    assert len({stamp.epoch for stamp in after if stamp}) == 1
    await client.aclose()


def test_a_script_that_publishes_moves_with_the_primary(sentinel: RedisSentinel, how: Connect) -> None:
    client: Any = commands_sync(how)
    assert client.set(f"{PREFIX}:x", 1, ex=60)
    new = sentinel.failover()

    with new.client() as raw:
        there: Any = raw

        def written() -> bool:
            # The old one takes writes, which are lost, until it is told that it is a replica.
            try:
                with translated():
                    client.set(f"{PREFIX}:y", 1, ex=60)
            except StoreUnavailable:
                return False
            return bool(there.exists(f"{PREFIX}:y"))

        until_sync(written, "a write to the new primary", RECOVERY)
    client.close()
