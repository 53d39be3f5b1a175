"""Faults of the way between one replica of the broker and Redis. See fault.py for the rules.

They need a proxy before the server, so they are for one server alone: a cluster and sentinels tell their
clients where to go. There the same is done by stopping servers and by ending their connections.
"""

import asyncio
import random
from collections.abc import Callable

from tests.chaos.fault import ERROR, SILENT, Fault
from tests.chaos.shape import Standalone
from tests.chaos.storm import LIVE, NARROW, Storm
from tests.support.fault_proxy import READERS, FaultProxy
from tests.support.mcp import Handshake, RpcError
from tests.support.wait import until


def _way(storm: Storm, rng: random.Random) -> FaultProxy:
    assert isinstance(storm.shape, Standalone)
    return rng.choice(storm.shape.proxies)


async def refuse(storm: Storm, rng: random.Random) -> None:
    """End all connections and accept no new one for a while."""
    proxy = _way(storm, rng)
    async with storm.publishing(rng):
        proxy.refuse()
        proxy.reset()
    await storm.burst(rng)
    await asyncio.sleep(rng.uniform(0, 3))
    proxy.pass_all()


async def reset(storm: Storm, rng: random.Random) -> None:
    await _break(storm, rng, FaultProxy.reset)


async def close(storm: Storm, rng: random.Random) -> None:
    await _break(storm, rng, FaultProxy.cut)


async def _break(storm: Storm, rng: random.Random, how: Callable[[FaultProxy], None]) -> None:
    """End all connections while something is published."""
    proxy = _way(storm, rng)
    async with storm.publishing(rng):
        await asyncio.to_thread(how, proxy)


async def swallow_both(storm: Storm, rng: random.Random) -> None:
    await _swallow(storm, rng, up=True, down=True)


async def lose_replies(storm: Storm, rng: random.Random) -> None:
    """Let commands arrive, and none of the replies."""
    await _swallow(storm, rng, up=False, down=True)


async def lose_commands(storm: Storm, rng: random.Random) -> None:
    await _swallow(storm, rng, up=True, down=False)


async def _swallow(storm: Storm, rng: random.Random, *, up: bool, down: bool) -> None:
    """Forward nothing for a while; then end the connections, or let all of it come late."""
    proxy = _way(storm, rng)
    proxy.black_hole(up=up, down=down)
    for _ in range(2):
        await storm.burst(rng)
        await asyncio.sleep(rng.uniform(0, 1.5))
    if rng.random() < 0.5:
        proxy.cut()
    proxy.pass_all()


async def strand_reader(storm: Storm, rng: random.Random) -> None:
    """Leave the reader of the log on a connection that brings nothing any more; all others are well."""
    proxy = _way(storm, rng)
    held = proxy.held
    proxy.hold(b"XREAD")
    await until(lambda: proxy.held >= held + READERS, "the log's reader held back", 3)
    proxy.forget()
    await storm.burst(rng)


async def slow(storm: Storm, rng: random.Random) -> None:
    """Let each way take 50 to 200 ms."""
    proxy = _way(storm, rng)
    proxy.delay(rng.uniform(0.05, 0.2))
    await storm.burst(rng)
    await asyncio.sleep(rng.uniform(0, 1))
    await storm.burst(rng)
    proxy.pass_all()


async def exhaust_pool(storm: Storm, rng: random.Random) -> None:
    """Begin forty sessions at once on one replica, whose pool is small and whose Redis is slow."""
    assert isinstance(storm.shape, Standalone)
    proxy = storm.shape.proxies[NARROW]
    proxy.delay(0.4)
    url = storm.fleet.replicas[NARROW].url
    beginning = asyncio.gather(*(_is_refused(storm, url) for _ in range(40)))
    await storm.burst(rng)
    refused = await beginning
    proxy.pass_all()
    assert any(refused), "the pool was never exhausted"


async def _is_refused(storm: Storm, url: str) -> bool:
    """Begin a session and end it; whether that was refused, as something to be tried again."""
    client = Handshake(url, LIVE, storm.http)
    try:
        await client.initialize()
    except RpcError as error:
        status = error.status
    else:
        await client.close()
        return False
    assert status == 503, f"refused with HTTP {status}"
    return True


ALONE = ("standalone",)
FAULTS = [
    Fault("refused", refuse, ERROR, ALONE),
    Fault("reset", reset, ERROR, ALONE, weight=2),
    Fault("closed", close, ERROR, ALONE, weight=2),
    Fault("black-hole", swallow_both, SILENT, ALONE, weight=2),
    Fault("lost-replies", lose_replies, SILENT, ALONE),
    Fault("lost-commands", lose_commands, SILENT, ALONE),
    Fault("dead-end-reader", strand_reader, SILENT, ALONE),
    Fault("slow", slow, ERROR, ALONE),
    Fault("pool-exhausted", exhaust_pool, ERROR, ALONE),
]
