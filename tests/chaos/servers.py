"""Faults of the server itself: it dies, forgets, goes back, refuses, is slow. See fault.py for the rules."""

import asyncio
import contextlib
import random
import time
from typing import Any, cast

import redis

from broker.core.identity import ResourceKey, TenantId
from tests.chaos.fault import ERROR, SILENT, Fault
from tests.chaos.shape import Standalone, command, keys_of, probe
from tests.chaos.storm import TENANTS, Storm
from tests.support.process import free_port
from tests.support.redis_server import RedisServer
from tests.support.rollback import Snapshot
from tests.support.wait import until, until_sync

LOADING_KEYS = 2000


async def _server(storm: Storm, tenant: str = TENANTS[0]) -> RedisServer:
    return await asyncio.to_thread(storm.shape.server, tenant)


async def _do(server: RedisServer, *words: object) -> Any:
    return await asyncio.to_thread(command, server, *words)


async def _refused(server: RedisServer, word: str, *words: object) -> None:
    """Check that the server refuses a command with an error that begins with `word`."""
    try:
        answer = await _do(server, *words)
    except redis.RedisError as error:
        answer = f"{type(error).__name__} {error}"
    assert word.lower() in str(answer).lower(), f"{words[0]} was not refused with {word}: {answer!r}"


async def crash(storm: Storm, rng: random.Random) -> None:
    """Kill it under publishes, and start it with what was on its disk: all that it acknowledged."""
    server = await _server(storm)
    async with storm.publishing(rng):
        await asyncio.to_thread(server.kill)
    await asyncio.sleep(rng.uniform(0, 0.5))
    await asyncio.to_thread(server.start)


async def empty(storm: Storm, rng: random.Random) -> None:
    """Kill it, and start it with nothing, before anybody takes its place."""
    await storm.burst(rng)
    server = await _server(storm)
    await asyncio.to_thread(server.restart, keep_data=False)
    storm.is_touch_owed = True


async def flush(storm: Storm, rng: random.Random) -> None:
    await storm.burst(rng)
    await _do(await _server(storm), "FLUSHALL")
    storm.is_touch_owed = True


async def roll_back(storm: Storm, rng: random.Random) -> None:
    """Take all keys back to before some changes that were told already; others may follow: a fork."""
    server = await _server(storm)
    with server.client() as client:
        snapshot = await asyncio.to_thread(Snapshot, client, storm.fleet.prefix)
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0, 0.2))
        await asyncio.to_thread(snapshot.restore)
    if rng.random() < 0.5:
        await storm.burst(rng)
    storm.is_touch_owed = True


async def trim(storm: Storm, rng: random.Random) -> None:
    """Stop a replica, publish, and trim away what it has not read: a gap."""
    replica = rng.choice(storm.fleet.replicas)
    replica.process.pause()
    try:
        await storm.burst(rng)
        log, _ = keys_of(storm.shape, TENANTS[0])
        await _do(await _server(storm), "XTRIM", log, "MAXLEN", rng.choice((0, 1)))
    finally:
        replica.process.resume()


async def load(storm: Storm, rng: random.Random) -> None:
    """Restart it so that it takes a second to load, and answers LOADING meanwhile."""
    assert isinstance(storm.shape, Standalone)
    server = storm.shape.redis
    filling = f"for i=1,{LOADING_KEYS} do redis.call('SET','chaos-filling:'..i,'x','EX',3600) end"
    await _do(server, "EVAL", filling, 0)
    await _do(server, "BGREWRITEAOF")
    with server.client() as client:
        untyped = cast("Any", client)
        await until(lambda: not untyped.info("persistence")["aof_rewrite_in_progress"], "the log rewritten")
    options = server.options
    slowly = (
        "--key-load-delay",
        str(1_000_000 // LOADING_KEYS),
        "--loading-process-events-interval-bytes",
        "1024",
    )
    server.options = (*options, *slowly)
    async with storm.publishing(rng):
        await asyncio.to_thread(server.kill)
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    try:
        await until(lambda: asyncio.to_thread(_is_loading, server), "it says LOADING")
        publishing = asyncio.create_task(storm.burst(rng))
        await starting
        await until(lambda: not _is_loading(server), "loaded", 30)
        await publishing
    finally:
        server.options = options
        await starting
    await _do(server, "EVAL", f"for i=1,{LOADING_KEYS} do redis.call('UNLINK','chaos-filling:'..i) end", 0)


def _is_loading(server: RedisServer) -> bool:
    try:
        command(server, "GET", "anything")
    except redis.BusyLoadingError:
        return True
    except (redis.ConnectionError, redis.TimeoutError):
        return False
    return False


async def busy(storm: Storm, rng: random.Random) -> None:
    """Run somebody's endless script for a second, so that everybody else is told BUSY; then kill it."""
    server = await _server(storm)
    await _do(server, "CONFIG", "SET", "busy-reply-threshold", "100")
    async with storm.publishing(rng):
        script = asyncio.create_task(_do(server, "EVAL", "while true do end", 0))
    try:
        await until(lambda: asyncio.to_thread(_is_busy, server), "it says BUSY")
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0.2, 1.0))
    finally:
        with contextlib.suppress(redis.ResponseError):  # NOTBUSY: sentinels kill such a script, too
            await _do(server, "SCRIPT", "KILL")
        await asyncio.gather(script, return_exceptions=True)
    await _do(server, "CONFIG", "SET", "busy-reply-threshold", "5000")


def _is_busy(server: RedisServer) -> bool:
    try:
        command(server, "GET", "anything")
    except redis.RedisError as error:
        return "BUSY" in str(error)
    return False


async def out_of_memory(storm: Storm, rng: random.Random) -> None:
    server = await _server(storm)
    async with storm.publishing(rng):
        await _do(server, "CONFIG", "SET", "maxmemory", "1")
    try:
        await _refused(server, "memory", *probe(storm.shape, TENANTS[0]))
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0, 1.5))
    finally:
        await _do(server, "CONFIG", "SET", "maxmemory", "0")


async def read_only(storm: Storm, rng: random.Random) -> None:
    """Make it a replica of nobody, as a failover that went wrong; then a primary again."""
    server = await _server(storm)
    async with storm.publishing(rng):
        await _do(server, "REPLICAOF", "127.0.0.1", free_port())
    try:
        await _refused(server, "ReadOnly", *probe(storm.shape, TENANTS[0]))
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0, 1.5))
    finally:
        await _do(server, "REPLICAOF", "NO", "ONE")


async def no_replicas(storm: Storm, rng: random.Random) -> None:
    """Let it want more replicas than there are before it writes."""
    server = await _server(storm)
    async with storm.publishing(rng):
        await _do(server, "CONFIG", "SET", "min-replicas-to-write", "7")
    try:
        await _refused(server, "NOREPLICAS", *probe(storm.shape, TENANTS[0]))
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0, 1.5))
    finally:
        await _do(server, "CONFIG", "SET", "min-replicas-to-write", "0")


async def forget_scripts(storm: Storm, rng: random.Random) -> None:
    async with storm.publishing(rng):
        await _do(await _server(storm), "SCRIPT", "FLUSH")
    await storm.burst(rng)


async def wrong_type(storm: Storm, rng: random.Random) -> None:
    """Put a string where one resource of one tenant is: that one is refused, and everybody else served."""
    server = await _server(storm)
    [(tenant, uri)] = [key for key in storm.keys(rng, 16) if key[0] == TENANTS[0]][:1]
    name = storm.shape.keys.resource(ResourceKey(TenantId(tenant), uri))
    saved = name + ":saved"
    existed = await _do(server, "EXISTS", name)
    if existed:
        await _do(server, "RENAME", name, saved)
    await _do(server, "SET", name, "not a hash")
    try:
        refused = not await storm.publish((tenant, uri))
        assert refused, "a publish onto a string was acknowledged"
        for key in storm.keys(rng, 4):
            if key != (tenant, uri):
                assert await storm.publish(key), f"{key} was refused for {uri}"
    finally:
        await _do(server, "DEL", name)
        if existed:
            await _do(server, "RENAME", saved, name)


async def pause_clients(storm: Storm, rng: random.Random) -> None:
    """Let it answer nobody for a while, as under a heavy load or a fork of a large process."""
    server = await _server(storm)
    ms = rng.randint(300, 3000)
    async with storm.publishing(rng):
        began = time.monotonic()
        await _do(server, "CLIENT", "PAUSE", ms, "ALL")
    publishing = asyncio.create_task(storm.burst(rng))
    await asyncio.to_thread(until_sync, lambda: _answers(server), "it answers again")
    assert time.monotonic() - began > 0.5 * ms / 1000, "it never paused"
    await publishing


def _answers(server: RedisServer) -> bool:
    try:
        return bool(command(server, "PING"))
    except (redis.ConnectionError, redis.TimeoutError):
        return False


async def kill_clients(storm: Storm, rng: random.Random) -> None:
    """Let it close every connection that it has."""
    server = await _server(storm)
    async with storm.publishing(rng):
        await _do(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


# What answers nobody for long may be replaced by sentinels or a cluster, and then it may lose writes.
ALONE = ("standalone",)
FAULTS = [
    Fault("crash", crash, ERROR, ALONE),
    Fault("restart-empty", empty, ERROR, loses=True),
    Fault("flushall", flush, ERROR, loses=True),
    Fault("rollback", roll_back, SILENT, ("standalone", "sentinel"), loses=True, weight=3),
    Fault("trim-unread", trim, SILENT, weight=3),
    Fault("loading", load, ERROR, ALONE),
    Fault("busy", busy, ERROR, loses=True),
    Fault("oom", out_of_memory, ERROR),
    Fault("readonly", read_only, ERROR, ALONE),
    Fault("noreplicas", no_replicas, ERROR),
    Fault("noscript", forget_scripts, ERROR),
    Fault("wrongtype", wrong_type, ERROR),
    Fault("client-pause", pause_clients, SILENT, loses=True),
    Fault("client-kill", kill_clients, ERROR, weight=2),
]
