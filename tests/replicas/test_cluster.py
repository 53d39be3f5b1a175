"""A fleet on a Redis Cluster: the main paths of brokers, publishers and workers, and nodes that are hurt.

One cluster and one fleet for all; each test has tenants of its own, and leaves the cluster whole.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from broker.core.identity import TenantId
from broker.store.client import Connect, commands, keys_at
from broker.store.erasure import erase
from broker.store.slots import slot_of
from tests.support.mcp import Handshake, Listening, Modern, Stream
from tests.support.redis_cluster import RedisCluster
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.tenants.yard import yard_of
from tests.workers.serving.test_demand import Poller
from tests.workers.serving.test_following import Job
from workers import Publisher, Worker
from workers.calling import ServingRules
from workers.serving import serving

LISTENED, SUBSCRIBED = "docs://listened", "docs://subscribed"
AFTER_ERROR = 2.0
"""Promise 2: seconds from when Redis answers again, after an error or a reset."""
AFTER_SILENCE = 4.0
"""The same after a silent loss."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fleet(cluster: RedisCluster) -> Iterator[Fleet]:
    """Give two replicas on the cluster."""
    # The first commands to each node take a while on a busy machine; nothing here is about that.
    settings = {"BROKER_WORKER__DEMAND_SECONDS": "0.5", "BROKER_SESSION__REFUSAL_WAIT_MS": "5000"}
    with Fleet(cluster.url, f"c{secrets.token_hex(3)}", **settings) as fleet:
        fleet.add(2)
        yield fleet
    assert fleet.surprises == []


@pytest.fixture
async def publisher(fleet: Fleet, tenant: str) -> AsyncIterator[Publisher]:
    async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
        yield publisher


class Watch:
    """A watcher of each era, each on a replica of its own."""

    def __init__(self, listening: Listening, stream: Stream) -> None:
        self.listening = listening
        self.stream = stream

    @property
    def counts(self) -> tuple[int, int]:
        return self.listening.cues.count(LISTENED), self.stream.cues.count(SUBSCRIBED)

    async def cued_after(self, counts: tuple[int, int], seconds: float) -> None:
        await until(
            lambda: all(now > then for now, then in zip(self.counts, counts, strict=True)),
            lambda: f"both cued again: {counts} -> {self.counts}",
            seconds,
        )


async def watch(fleet: Fleet, tenant: str, http: httpx.AsyncClient) -> Watch:
    session = Handshake(fleet[1].url, tenant, http)
    await session.initialize()
    await session.subscribe(SUBSCRIBED)
    listening = await Modern(fleet[0].url, tenant, http).listen([LISTENED])
    return Watch(listening, await session.get_stream())


async def publish(publisher: Publisher, text: str) -> None:
    await publisher.publish(LISTENED, text)
    await publisher.publish(SUBSCRIBED, text)


async def test_tenants_of_every_shard_are_cued_in_both_eras_and_read_what_is_new(
    fleet: Fleet, http: httpx.AsyncClient
) -> None:
    keys = keys_at(fleet.redis_url, fleet.prefix)
    by_log = {keys.log_number(TenantId(name)): name for name in (f"shard{n}" for n in range(200))}
    assert len(by_log) == keys.logs

    async def path(tenant: str) -> None:
        async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
            watching = await watch(fleet, tenant, http)
            counts = watching.counts
            await publish(publisher, "new")
            await watching.cued_after(counts, 10)
            for replica in fleet.replicas:
                modern = Modern(replica.url, tenant, http)
                assert (await modern.read(LISTENED))[0]["text"] == "new"
                assert await modern.list() == [LISTENED, SUBSCRIBED]

    await asyncio.gather(*map(path, by_log.values()))


async def test_a_sessions_stream_moves_to_another_replica(
    fleet: Fleet, tenant: str, publisher: Publisher, http: httpx.AsyncClient
) -> None:
    session = Handshake(fleet[0].url, tenant, http)
    await session.initialize()
    await session.subscribe(SUBSCRIBED)
    first = await session.get_stream()
    second = await session.get_stream(url=fleet[1].url)
    await publisher.publish(SUBSCRIBED, "moved")
    await second.cue(SUBSCRIBED)
    assert first.cues == []
    assert await session.delete() < 300
    await second.end()


async def test_workers_of_many_tenants_answer_complete_and_hear_of_demand(
    fleet: Fleet, http: httpx.AsyncClient
) -> None:
    tenants = [f"worked{secrets.token_hex(2)}{n}" for n in range(6)]
    keys = keys_at(fleet.redis_url, fleet.prefix)
    assert len(keys.by_log(map(TenantId, tenants))) > 1
    worker = Worker("profiles", tenants=tenants)

    @worker.resource("users://{name}/profile")
    def profile(name: str) -> str:
        # Larger than fits into an inbox: an answer that is a key of its own.
        return name * 100_000 if name == "large" else name

    watched = Poller("prices", tenants[0])
    rules = ServingRules(linger=1.0)
    async with serving(worker, watched.worker, url=fleet.redis_url, prefix=fleet.prefix, rules=rules):
        for tenant in tenants:
            for replica in fleet.replicas:
                modern = Modern(replica.url, tenant, http)
                assert (await modern.read("users://ann/profile"))[0]["text"] == "ann"
        large = await Modern(fleet[0].url, tenants[0], http).read("users://large/profile")
        assert len(large[0]["text"]) == 500_000
        async with await Modern(fleet[0].url, tenants[0], http).listen(["price://a"]):
            await until(lambda: watched.polled == ["price://a"], "polled")
        await until(lambda: not watched.polled, "no more polled", 15)


async def test_a_job_follows_on_through_a_failover_of_its_log(
    cluster: RedisCluster, fleet: Fleet, tenant: str, publisher: Publisher
) -> None:
    job = Job(publisher, "indexer")
    await until(lambda: job.relists == ["new"], "following")
    await publisher.publish("docs://one", "1")
    await job.hears("docs://one")
    await asyncio.to_thread(cluster.failover, publisher.keys.order(publisher.tenant))
    await publisher.publish("docs://two", "2")
    await until(lambda: "epoch" in job.relists or "docs://two" in job.uris, lambda: f"{job.told}", 10)
    await publisher.publish("docs://three", "3")
    await job.hears("docs://three")
    await job.end()
    await asyncio.to_thread(cluster.until_whole)


@pytest.mark.parametrize("how", ["failover", "crash", "stop", "flush"])
async def test_live_subscribers_hear_of_the_last_change_whatever_becomes_of_a_node(
    how: str,
    *,
    cluster: RedisCluster,
    fleet: Fleet,
    tenant: str,
    publisher: Publisher,
    http: httpx.AsyncClient,
) -> None:
    await publish(publisher, "before")
    watching = await watch(fleet, tenant, http)
    log = publisher.keys.log(publisher.keys.log_number(publisher.tenant))
    old = cluster.primary(log)
    try:
        match how:
            case "failover":
                await asyncio.to_thread(cluster.failover, log)
            case "flush":
                old.run("FLUSHALL")
            case "crash":
                old.kill()
                await asyncio.to_thread(cluster.until_moved, log, old)
            case _:
                old.pause()
                await asyncio.to_thread(cluster.until_moved, log, old)
        bound = AFTER_SILENCE if how == "stop" else AFTER_ERROR
        counts = watching.counts
        began = time.monotonic()
        if how == "flush":
            # The session is gone with its node's memory, and its stream ends; the other era goes on.
            await publisher.publish(LISTENED, "after")
            await watching.listening.cue(LISTENED, counts[0] + 1, seconds=bound)
            await watching.stream.end()
        else:
            await publish(publisher, "after")
            await watching.cued_after(counts, bound)
        assert time.monotonic() - began < bound
        assert (await Modern(fleet[1].url, tenant, http).read(LISTENED))[0]["text"] == "after"
    finally:
        await asyncio.to_thread(cluster.heal)


async def test_subscribers_hear_of_changes_while_their_log_moves_to_another_node(
    cluster: RedisCluster, fleet: Fleet, tenant: str, publisher: Publisher, http: httpx.AsyncClient
) -> None:
    await publish(publisher, "before")
    watching = await watch(fleet, tenant, http)
    log = publisher.keys.log(publisher.keys.log_number(publisher.tenant))
    source = cluster.primary(log)
    target = next(node for node in cluster.primaries if node is not source)
    for text, to in (("there", target), ("back", source)):
        await asyncio.to_thread(cluster.reshard, slot_of(log), to)
        counts = watching.counts
        await publish(publisher, text)
        await watching.cued_after(counts, AFTER_ERROR)


async def test_an_administrator_makes_limits_and_removes_a_tenant(
    cluster: RedisCluster,
) -> None:
    keys = keys_at(cluster.url, f"k{secrets.token_hex(3)}")
    redis = commands(Connect(cluster.url, keys))
    with Fleet(cluster.url, keys.prefix, BROKER_AUTH__MODE="keys") as guarded:
        guarded.add(1)
        async with yard_of(guarded, redis) as yard:
            acme = await yard.tenant("acme")
            caller = yard.caller(await yard.key(acme))
            assert (await caller.publish("docs://a", "one")).status_code == 200
            assert await caller.modern().list() == ["docs://a"]
            listening = await caller.modern().listen(["docs://a"])
            await yard.control.limit("test", acme, {"resources": 1})
            assert (await caller.publish("docs://b", "two")).status_code == 429
            await yard.control.condemn("test", acme)
            await listening.end()
            assert (await caller.publish("docs://a", "late")).status_code == 401
            assert [step.removed async for step in erase(redis, keys, acme)][-1] > 0
            await yard.control.bury("test", acme)
    await redis.aclose()
