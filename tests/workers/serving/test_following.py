"""Other jobs follow a tenant's changes, miss none, and hear when they must look at everything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from broker.store.keys import Keys
from tests.support.redis_server import RedisServer
from tests.support.wait import stays, until, within
from workers import InvalidDeclaration, Publisher, Worker
from workers.following import Change, Relist


class Job:
    """A job that follows in the background and keeps what it was told."""

    def __init__(self, publisher: Publisher, group: str) -> None:
        self.told: list[Change | Relist] = []
        self._changes = publisher.changes(group)
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async with contextlib.aclosing(self._changes) as changes:
            async for change in changes:
                self.told.append(change)

    @property
    def uris(self) -> list[str]:
        return [change.uri for change in self.told if isinstance(change, Change)]

    @property
    def relists(self) -> list[str]:
        return [change.why for change in self.told if isinstance(change, Relist)]

    async def hears(self, uri: str) -> None:
        await until(lambda: uri in self.uris, lambda: f"{uri} in {self.told}", 20)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@pytest.fixture
async def publisher(own_redis: RedisServer, tenant: str) -> AsyncIterator[Publisher]:
    async with Publisher(own_redis.url, tenant=tenant) as publisher:
        yield publisher


def trimmed(server: RedisServer) -> None:
    with server.client() as client:
        cast("Any", client).xtrim(Keys("mrb").log(), maxlen=0, approximate=False)


async def test_a_newcomer_lists_first_and_then_misses_nothing(publisher: Publisher) -> None:
    await publisher.publish("doc://before", "1")
    job = Job(publisher, "indexer")
    await until(lambda: job.relists == ["new"], "told to list")
    for number in range(250):
        await publisher.publish(f"doc://{number:03}", str(number))
    await publisher.remove("doc://000")
    await publisher.touch("doc://touched")
    await job.hears("doc://touched")
    assert set(job.uris) == {f"doc://{number:03}" for number in range(250)} | {"doc://touched"}
    last = {change.uri: change for change in job.told if isinstance(change, Change)}
    assert last["doc://000"].is_removed
    stored = last["doc://249"].stored
    assert stored is not None
    assert b'"249"' in stored.contents
    assert job.relists == ["new"]
    await job.end()


async def test_a_job_goes_on_where_its_group_stopped(publisher: Publisher) -> None:
    first = Job(publisher, "indexer")
    await until(lambda: first.relists, "told to list")
    await publisher.publish("doc://1", "1")
    await first.hears("doc://1")
    await publisher.publish("doc://2", "2")
    await first.hears("doc://2")
    await first.end()
    await publisher.publish("doc://3", "3")
    second = Job(publisher, "indexer")
    await second.hears("doc://3")
    assert second.relists == []
    assert "doc://1" not in second.uris
    await second.end()


async def test_of_a_group_one_follows_and_another_takes_over(publisher: Publisher) -> None:
    one = Job(publisher, "indexer")
    await until(lambda: one.relists, "told to list")
    two = Job(publisher, "indexer")
    other = Job(publisher, "mirror")
    await until(lambda: other.relists, "told to list")
    await publisher.publish("doc://1", "1")
    await one.hears("doc://1")
    await other.hears("doc://1")
    await stays(lambda: not two.told, "a standby that is told nothing", 0.5)
    await one.end()
    await publisher.publish("doc://2", "2")
    await two.hears("doc://2")
    assert two.relists == []
    await two.end()
    await other.end()


async def test_what_was_trimmed_meanwhile_is_a_gap_and_means_list_again(
    publisher: Publisher, own_redis: RedisServer
) -> None:
    job = Job(publisher, "indexer")
    await until(lambda: job.relists, "told to list")
    await job.end()
    for number in range(10):
        await publisher.publish(f"doc://{number}", "1")
    trimmed(own_redis)
    await publisher.publish("doc://after", "1")
    again = Job(publisher, "indexer")
    await until(lambda: again.relists == ["gap"], lambda: again.told)
    await publisher.publish("doc://later", "1")
    await again.hears("doc://later")
    assert again.relists == ["gap"]
    await again.end()


async def test_a_redis_that_began_anew_means_list_again_and_outages_are_waited_for(
    publisher: Publisher, own_redis: RedisServer
) -> None:
    job = Job(publisher, "indexer")
    await until(lambda: job.relists, "told to list")
    await publisher.publish("doc://1", "1")
    await job.hears("doc://1")
    await asyncio.to_thread(own_redis.restart)
    await until(lambda: len(job.relists) == 2, lambda: f"told to list again: {job.told}", 20)
    assert job.relists[1] in ("epoch", "fork")
    await publisher.publish("doc://2", "2")
    await job.hears("doc://2")
    await job.end()


async def test_a_worker_follows_its_own_tenant(
    publisher: Publisher, own_redis: RedisServer, tenant: str
) -> None:
    worker = Worker("indexer", tenant=tenant)
    async with Publisher(own_redis.url, tenant="somebody-else") as other:
        await other.publish("doc://secret", "1")
    async with contextlib.aclosing(worker.follow(url=own_redis.url)) as changes:
        assert await within(anext(changes), "told to list") == Relist("new")
        await publisher.publish("doc://mine", "1")
        told = await within(anext(changes), "a change")
        assert isinstance(told, Change)
        assert told.uri == "doc://mine"
        assert told.stored is not None
    # The group is the worker's name: who follows under it goes on there.
    async with contextlib.aclosing(publisher.changes("indexer")) as changes:
        assert await within(anext(changes), "the change whose end was never said") == told
    worker.close()


async def test_a_worker_of_several_tenants_says_which_to_follow(own_redis: RedisServer) -> None:
    worker = Worker("indexer", tenants=["a", "b"])
    with pytest.raises(InvalidDeclaration, match="several tenants"):
        await anext(worker.follow(url=own_redis.url))
    with pytest.raises(InvalidDeclaration, match="does not serve the tenant 'c'"):
        await anext(worker.follow(url=own_redis.url, tenant="c"))
    async with contextlib.aclosing(worker.follow(url=own_redis.url, tenant="b")) as changes:
        assert await within(anext(changes), "told to list") == Relist("new")
    worker.close()


async def test_another_tenants_changes_are_never_told(publisher: Publisher, own_redis: RedisServer) -> None:
    job = Job(publisher, "indexer")
    await until(lambda: job.relists, "told to list")
    async with Publisher(own_redis.url, tenant="somebody-else") as other:
        await other.publish("doc://secret", "1")
    await publisher.publish("doc://mine", "1")
    await job.hears("doc://mine")
    assert job.uris == ["doc://mine"]
    await within(job.end(), "an end")


async def test_a_job_that_is_cancelled_ends_whatever_it_was_doing(publisher: Publisher) -> None:
    """A cancellation that came while a command was being sent was lost by the client, and the job went on."""
    for number in range(40):
        job = Job(publisher, f"group-{number}")
        await until(lambda job=job: job.relists, "told to list")
        for _ in range(number % 8):
            await asyncio.sleep(0)
        await within(job.end(), "an end", 5)
