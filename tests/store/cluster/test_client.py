"""Brokers' and publishers' clients on a real cluster: redirected, held up, and never writing unadopted."""

import asyncio
import time
from typing import Any, cast

import pytest

from broker.core.errors import NotReplicated, Unavailable
from broker.core.identity import ResourceKey, TenantId
from broker.store import demand, erasure, resources
from broker.store.client import Client, commands
from broker.store.cluster import Cluster
from broker.store.log import LogStore
from broker.store.publishing import expire
from broker.store.scripts import run
from tests.store.cluster.conftest import Place
from tests.store.shelf import URI, Shelf
from tests.support.wait import until
from workers import Publisher, SyncPublisher


async def epoch(redis: Client, place: Place, tenant: str) -> str:
    found: bytes = await cast("Any", redis).hget(place.head(tenant), "epoch")
    return found.decode()


async def test_publishers_of_either_kind_publish_list_and_remove_for_every_shard(place: Place) -> None:
    for tenant in place.tenants(16):
        async with Publisher(place.cluster.url, tenant=tenant, prefix=place.prefix) as publisher:
            many = await publisher.publish_many((f"docs://{n:03}", n) for n in range(70))
            assert [each.error for each in many] == [None] * 70
            assert (await publisher.remove("docs://000")).status == "removed"
            assert len([each.uri async for each in publisher.list()]) == 69

        def plainly(tenant: str = tenant) -> None:
            with SyncPublisher(place.cluster.url, tenant=tenant, prefix=place.prefix) as publisher:
                assert publisher.publish("docs://001", "plain").status == "published"
                assert publisher.touch("docs://001").status == "touched"
                many = publisher.publish_many([("docs://001", "again"), ("docs://x", "new")])
                assert [each.error for each in many] == [None, None]
                stored = publisher.read("docs://001")
                assert stored is not None
                assert b"again" in stored.contents
                assert sum(1 for _ in publisher.list()) == 70

        await asyncio.to_thread(plainly)


async def test_what_is_past_its_time_is_absent_and_swept_by_its_own_nodes_clock(
    place: Place, redis: Client
) -> None:
    for tenant in place.tenants(4):
        shelf = Shelf(redis, place.keys, tenant)
        await shelf.publish("soon gone", expires_in_ms=30)
        number = place.keys.log_number(TenantId(tenant))

        async def due(number: int = number) -> list[ResourceKey]:
            return await resources.due(redis, place.keys, number)

        assert await until(due, "due") == [shelf.key()]
        assert await shelf.read() is None
        outcome = await run(redis, expire(place.keys, shelf.key()))
        assert outcome is not None
        assert outcome.status == "removed"


async def test_a_tenant_is_erased_and_its_neighbour_on_the_same_node_stays(
    place: Place, redis: Client
) -> None:
    node = place.cluster.primaries[0]
    gone = place.tenant_on(node)
    stays = place.tenant_on(node, but=gone)
    for tenant in (gone, stays):
        shelf = Shelf(redis, place.keys, tenant)
        for number in range(30):
            await shelf.publish(number, f"docs://{number}", expires_in_ms=60_000)
        await demand.report(redis, place.keys, tenant, "group", [URI], is_new=True)
    steps = [each async for each in erasure.erase(redis, place.keys, gone)]
    assert steps[-1].removed > 60
    assert await Shelf(redis, place.keys, gone).uris() == []
    assert len(await Shelf(redis, place.keys, stays).uris()) == 30
    walk = cast("Any", await _node(redis, place, gone)).scan_iter(f"{place.prefix}:*", count=1000)
    assert [key async for key in walk if f":{gone}:".encode() in key] == []


async def _node(redis: Client, place: Place, tenant: str) -> Client:
    assert isinstance(redis, Cluster)
    return await redis.node_of(place.log(tenant))


async def test_a_resharded_slot_is_followed_and_nothing_is_lost(place: Place, redis: Client) -> None:
    source, target = place.cluster.primaries[:2]
    tenant = place.tenant_on(source)
    shelf = Shelf(redis, place.keys, tenant)
    before = await shelf.publish("before")
    await asyncio.to_thread(place.cluster.reshard, place.slot(tenant), target)
    try:
        assert await shelf.text() == '[{"uri":"docs://readme","text":"before"}]'
        after = await shelf.publish("after")
        assert before.stamp is not None
        assert after.stamp is not None
        assert after.stamp.n > before.stamp.n
        # Another server answers for the log, so another epoch has begun before the first write there.
        assert after.stamp.epoch != before.stamp.epoch
    finally:
        await asyncio.to_thread(place.cluster.reshard, place.slot(tenant), source)


async def test_a_slot_held_between_two_nodes_is_read_everywhere_and_written_again_afterwards(
    place: Place, redis: Client
) -> None:
    """The library's client followed ASK to and fro until it gave up ("TTL exhausted").

    A script whose keys are not all in one place cannot run: that is Redis' rule, and it is said in time.
    """
    cluster = place.cluster
    source, target = cluster.primaries[:2]
    tenant = place.tenant_on(source)
    slot = place.slot(tenant)
    shelf = Shelf(redis, place.keys, tenant)
    await shelf.publish("here")
    await asyncio.to_thread(cluster.begin_migration, slot, target)
    try:
        # What is there stays there; what is not is asked for at the other node.
        assert await shelf.text() == '[{"uri":"docs://readme","text":"here"}]'
        assert await shelf.read("docs://nowhere") is None
        found = await resources.look(redis, place.keys, [shelf.key(), shelf.key("docs://nowhere")])
        stored = [each.stored for each in found if isinstance(each, resources.Found)]
        assert [each is not None for each in stored] == [True, False]
        store = LogStore(place.connect(), redis, {})
        standings = await store.standings([shelf.key(), shelf.key("docs://nowhere")])
        assert [each.stamp.n > 0 for each in standings] == [True, False]
        began = time.monotonic()
        with pytest.raises(Unavailable) as refused:
            await shelf.publish("not now")
        assert refused.value.retryable
        assert time.monotonic() - began < 3
        await asyncio.to_thread(cluster.move_keys, slot, source, target)
        assert await shelf.text() == '[{"uri":"docs://readme","text":"here"}]'
        await asyncio.to_thread(cluster.end_migration, slot, target)
        assert (await shelf.publish("there")).status == "published"
    finally:
        if cluster.primary(slot) is not target:
            await asyncio.to_thread(cluster.move_keys, slot, source, target)
            await asyncio.to_thread(cluster.end_migration, slot, target)
        await asyncio.to_thread(cluster.reshard, slot, source)


async def test_a_publisher_that_was_idle_through_two_failovers_begins_an_epoch_before_it_writes(
    place: Place, redis: Client
) -> None:
    """Its connection was opened to a primary, which was a replica meanwhile and is the primary again."""
    cluster = place.cluster
    first = cluster.primaries[0]
    tenant = place.tenant_on(first)
    shelf = Shelf(redis, place.keys, tenant)
    before = await shelf.publish("one")
    for _ in range(2):
        await asyncio.to_thread(cluster.failover, place.log(tenant))
        await asyncio.to_thread(cluster.until_whole)
    assert cluster.primary(place.log(tenant)) is first
    after = await shelf.publish("two")
    assert before.stamp is not None
    assert after.stamp is not None
    assert after.stamp.epoch != before.stamp.epoch
    entries = await shelf.entries()
    assert [entry.epoch for entry in entries] == [before.stamp.epoch, after.stamp.epoch]


async def test_a_connection_to_a_replica_is_never_used(place: Place) -> None:
    primary = place.cluster.primaries[0]
    replica = place.cluster.replicas(primary)[0]
    tenant = place.tenant_on(primary)
    client = commands(place.connect())
    assert isinstance(client, Cluster)
    try:
        shelf = Shelf(client, place.keys, tenant)
        await shelf.publish("one")
        # As if the map were old: the promotion is still to come.
        client.topology.map.give(place.slot(tenant), ("127.0.0.1", replica.port))
        await shelf.publish("two")
        assert client.topology.map.owners[place.slot(tenant)] == ("127.0.0.1", primary.port)
        assert [entry.uri for entry in await shelf.entries()] == [URI, URI]
    finally:
        await client.aclose()


@pytest.mark.parametrize("how", ["failover", "crash", "stop"])
async def test_a_failover_begins_an_epoch_before_anything_is_written(
    how: str, place: Place, redis: Client
) -> None:
    cluster = place.cluster
    old = cluster.primaries[-1]
    tenant = place.tenant_on(old)
    shelf = Shelf(redis, place.keys, tenant)
    before = await shelf.publish("before")
    assert before.stamp is not None
    if how == "failover":
        await asyncio.to_thread(cluster.failover, place.log(tenant))
    else:
        getattr(old, "kill" if how == "crash" else "pause")()
        await asyncio.to_thread(cluster.until_moved, place.log(tenant), old)
    began = time.monotonic()
    after = await shelf.publish("after")
    # A client that had not noticed waits for its own timeout at most once; it asks the others meanwhile.
    assert time.monotonic() - began < 2.5
    assert after.stamp is not None
    assert after.stamp.epoch != before.stamp.epoch
    assert after.stamp.n > before.stamp.n
    assert await epoch(redis, place, tenant) == after.stamp.epoch


async def test_a_node_that_was_flushed_begins_anew_and_the_others_go_on(place: Place, redis: Client) -> None:
    hurt, spared = place.cluster.primaries[:2]
    one, other = (Shelf(redis, place.keys, place.tenant_on(node)) for node in (hurt, spared))
    for shelf in (one, other):
        await shelf.publish("before")
    hurt.run("FLUSHALL")
    store = LogStore(place.connect(), redis, {})
    head, _ = await store.head(place.keys.log_number(one.tenant))
    assert head.epoch
    after = await one.publish("after")
    assert after.stamp is not None
    assert after.stamp.epoch == head.epoch
    assert await other.text() == '[{"uri":"docs://readme","text":"before"}]'


async def test_a_publish_waits_for_the_replica_of_its_own_node(place: Place) -> None:
    for tenant in place.tenants(3):
        async with Publisher(place.cluster.url, tenant=tenant, prefix=place.prefix) as publisher:
            outcome = await publisher.publish("docs://a", "kept", wait_replicas=1, wait_ms=5000)
            assert (outcome.status, outcome.replicas) == ("published", 1)
            with pytest.raises(NotReplicated):
                await publisher.publish("docs://a", "more", wait_replicas=2, wait_ms=50)
