"""Faults that move the primary, or a slot: of sentinels and of a cluster. See fault.py for the rules.

Replication is asynchronous, so a failover may lose what was acknowledged; what survived must be told.
"""

import asyncio
import random

from tests.chaos.fault import ERROR, SILENT, Fault
from tests.chaos.shape import Cluster, Sentinel
from tests.chaos.storm import TENANTS, Storm
from tests.support.redis_cluster import Node
from tests.support.redis_server import RedisServer

TENANT = TENANTS[0]


def _crash(storm: Storm) -> RedisServer:
    """Kill the primary; returns it."""
    shape = storm.shape
    if isinstance(shape, Sentinel):
        return shape.redis.kill()
    assert isinstance(shape, Cluster)
    return shape.redis.kill(shape.slot(TENANT))


def _stop(storm: Storm) -> RedisServer:
    """Stop the primary's clock; returns it."""
    shape = storm.shape
    if isinstance(shape, Sentinel):
        return shape.redis.pause()
    assert isinstance(shape, Cluster)
    return shape.redis.pause(shape.slot(TENANT))


def _until_moved(storm: Storm, old: RedisServer) -> RedisServer:
    """Wait until another server is the primary; returns it."""
    shape = storm.shape
    if isinstance(shape, Sentinel):
        return shape.redis.until_moved(old)
    assert isinstance(shape, Cluster)
    assert isinstance(old, Node)
    return shape.redis.until_moved(shape.slot(TENANT), old)


def _ask(storm: Storm) -> RedisServer:
    """Have another server made the primary; returns it."""
    shape = storm.shape
    if isinstance(shape, Sentinel):
        return shape.redis.failover()
    assert isinstance(shape, Cluster)
    return shape.redis.failover(shape.slot(TENANT))


async def fail_over_crashed(storm: Storm, rng: random.Random) -> None:
    async with storm.publishing(rng):
        old = await asyncio.to_thread(_crash, storm)
    await asyncio.to_thread(_until_moved, storm, old)


async def fail_over_stopped(storm: Storm, rng: random.Random) -> None:
    async with storm.publishing(rng):
        old = await asyncio.to_thread(_stop, storm)
    await asyncio.to_thread(_until_moved, storm, old)


async def fail_over_asked(storm: Storm, rng: random.Random) -> None:
    """Publish all the time: the old primary takes writes until it is told that it is none."""
    async with storm.publishing(rng):
        moving = asyncio.create_task(asyncio.to_thread(_ask, storm))
    await storm.burst(rng, 8)
    await moving


async def stop_briefly(storm: Storm, rng: random.Random) -> None:
    """Stop the primary's clock, and let it go on before anybody takes its place."""
    server = await asyncio.to_thread(storm.shape.server, TENANT)
    async with storm.publishing(rng):
        server.pause()
    await asyncio.sleep(rng.uniform(0.1, 0.7))
    server.resume()


async def reshard(storm: Storm, rng: random.Random) -> None:
    """Move the slot of a log, and all keys in it, to another primary, under publishes."""
    shape = storm.shape
    assert isinstance(shape, Cluster)
    async with storm.publishing(rng):
        await asyncio.to_thread(lambda: shape.redis.reshard(shape.slot(TENANT), _other(shape, rng)))


async def hold_migration(storm: Storm, rng: random.Random) -> None:
    """Leave a slot half-way: marked as moving on both sides, with its keys where they were."""
    shape = storm.shape
    assert isinstance(shape, Cluster)
    slot, target = shape.slot(TENANT), await asyncio.to_thread(_other, shape, rng)
    async with storm.publishing(rng):
        source = await asyncio.to_thread(shape.redis.begin_migration, slot, target)
    try:
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0.2, 2))
        await storm.burst(rng)
    finally:
        await asyncio.to_thread(shape.redis.move_keys, slot, source, target)
        await asyncio.to_thread(shape.redis.end_migration, slot, target)


def _other(shape: Cluster, rng: random.Random) -> Node:
    """Return a primary that does not serve the tenant."""
    serving = shape.redis.primary(shape.slot(TENANT))
    return rng.choice([node for node in shape.redis.primaries if node is not serving])


MANY = ("sentinel", "cluster")
FAULTS = [
    Fault("failover-crash", fail_over_crashed, ERROR, MANY, loses=True),
    Fault("failover-stopped", fail_over_stopped, SILENT, MANY, loses=True),
    Fault("failover-asked", fail_over_asked, SILENT, MANY, loses=True, weight=2),
    Fault("stopped-briefly", stop_briefly, SILENT, loses=True),  # on a busy machine it is not so brief
    Fault("reshard", reshard, ERROR, ("cluster",)),
    Fault("migrating", hold_migration, ERROR, ("cluster",)),
]
