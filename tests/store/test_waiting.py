"""A publish may wait until replicas of Redis have it, and never says so when they do not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.core.errors import BadRequest, NotReplicated
from tests.support.redis_server import RedisServer
from tests.support.wait import until_sync
from workers import Item, Publisher, SyncPublisher


@pytest.fixture
def pair() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Give a primary, and the replica that follows it."""
    with RedisServer("--repl-diskless-sync-delay", "0") as primary, RedisServer() as replica:
        with replica.client() as raw:
            untyped: Any = raw
            untyped.replicaof("127.0.0.1", primary.port)
            until_sync(lambda: untyped.info("replication")["master_link_status"] == "up", "it follows", 30)
        yield primary, replica


async def test_a_publish_says_how_many_replicas_have_it(pair: tuple[RedisServer, RedisServer]) -> None:
    primary, replica = pair
    async with Publisher(primary.url) as publisher:
        # Its script is not known there yet: the second round sends it.
        outcome = await publisher.publish("a:b", "one", wait_replicas=1, wait_ms=5000)
        assert (outcome.status, outcome.replicas) == ("published", 1)
        assert (await publisher.publish("a:b", "two")).replicas is None
        with replica.client() as raw:
            untyped: Any = raw
            assert [key for key in untyped.scan_iter("mrb:*") if b":res:default:a:b" in key]


async def test_too_few_replicas_are_an_error_and_the_publish_stays(
    pair: tuple[RedisServer, RedisServer],
) -> None:
    primary, replica = pair
    async with Publisher(primary.url) as publisher:
        await publisher.publish("a:b", "one", wait_replicas=1, wait_ms=5000)
        replica.pause()
        with pytest.raises(NotReplicated, match="only on 0 of 1 replicas") as refusal:
            await publisher.publish("a:b", "two", wait_replicas=1, wait_ms=700)
        assert refusal.value.retryable
        stored = await publisher.read("a:b")
        assert stored is not None
        assert b"two" in stored.contents
        with pytest.raises(NotReplicated):
            # It wrote nothing, and what it found is on no replica.
            await publisher.publish("a:b", "two", wait_replicas=1, wait_ms=200)
        replica.resume()
        again = await publisher.publish("a:b", "two", wait_replicas=1, wait_ms=10_000)
        assert (again.status, again.replicas) == ("unchanged", 1)
        assert again.stamp == stored.stamp


async def test_the_same_call_again_waits_again_and_does_nothing(
    pair: tuple[RedisServer, RedisServer],
) -> None:
    primary, replica = pair
    async with Publisher(primary.url) as publisher:
        await publisher.publish("a:b", "zero")
        replica.pause()
        with pytest.raises(NotReplicated):
            await publisher.publish("a:b", "one", idempotency_key="k", wait_replicas=1, wait_ms=600)
        after = await publisher.publish("a:b", "somebody else's")
        replica.resume()
        again = await publisher.publish("a:b", "one", idempotency_key="k", wait_replicas=1, wait_ms=10_000)
        assert (again.status, again.replicas) == ("replayed", 1)
        stored = await publisher.read("a:b")
        assert stored is not None
        assert stored.stamp == after.stamp


def test_a_plain_script_waits_too(pair: tuple[RedisServer, RedisServer]) -> None:
    primary, replica = pair
    with SyncPublisher(primary.url) as publisher:
        assert publisher.publish("a:b", "one", wait_replicas=1, wait_ms=5000).replicas == 1
        replica.pause()
        with pytest.raises(NotReplicated):
            publisher.publish("a:b", "two", wait_replicas=1, wait_ms=200)
        replica.resume()


def test_a_primary_without_replicas_is_not_believed(redis_server: RedisServer, prefix: str) -> None:
    with SyncPublisher(redis_server.url, prefix=prefix) as publisher:
        with pytest.raises(NotReplicated, match="0 of 2"):
            publisher.publish("a:b", "one", wait_replicas=2, wait_ms=50)
        assert publisher.read("a:b") is not None
        publisher.remove("a:b")


WRONG: dict[str, Callable[[SyncPublisher], object]] = {
    "no replicas": lambda p: p.publish("a:b", "x", wait_replicas=0),
    "too many": lambda p: p.publish("a:b", "x", wait_replicas=101),
    "no time": lambda p: p.publish("a:b", "x", wait_replicas=1, wait_ms=0),
    "for ever": lambda p: p.publish("a:b", "x", wait_replicas=1, wait_ms=3_600_000),
    "for whom": lambda p: p.publish("a:b", "x", wait_ms=10),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_waited_for_is_refused_before_anything_is_done(
    redis_server: RedisServer, prefix: str, what: str
) -> None:
    with SyncPublisher(redis_server.url, prefix=prefix) as publisher:
        with pytest.raises(BadRequest, match="wait"):
            WRONG[what](publisher)
        assert publisher.read("a:b") is None


def test_many_at_once_do_not_wait(redis_server: RedisServer, prefix: str) -> None:
    with SyncPublisher(redis_server.url, prefix=prefix) as publisher:
        [result] = publisher.publish_many([Item("a:b", "x", wait_replicas=1)])
        assert isinstance(result.error, BadRequest)
