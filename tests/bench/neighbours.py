"""What a quiet tenant notices of a loud one: p99 of cue and read, at the loud one's limits and at ten times.

    .venv/bin/python -m tests.bench.neighbours [pairs] [seconds]

Two replicas ask for API keys. The loud tenant offers publishes, reads, listens and subscribes, each at its
limit ("inside") or at ten times that ("over"); the quiet one publishes ten times a second and reads after
each cue.
Pairs alternate, since times drift; printed are the ratios over ÷ inside, whose median should be below 1.5.
(The load comes from a process of its own, so that what is measured is the broker's queue and not ours.)
"""

import asyncio
import contextlib
import json
import secrets
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from broker.core.access import PUBLISH, READ
from broker.core.identity import TenantId
from broker.core.tenancy import Limits
from broker.store.client import Connect, commands
from broker.store.control import Control
from broker.store.keys import Keys
from tests.support.mcp import RpcError
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.tenants.yard import Caller

LOUD = Limits(publishes=10, reads=20, streams=4, principal_streams=4, sessions=20)
OFFERED = {"publish": 10.0, "read": 20.0, "listen": 2.0, "subscribe": 2.0}
"""A second, inside the limits; ten times as much is over them."""
EVERY = 0.1
URI = "bench://quiet"


async def loud(urls: list[str], key: str, factor: float) -> None:
    """Offer load for ever, without waiting for answers."""
    callers = [Caller(url, key) for url in urls]
    clients = [caller.modern() for caller in callers]
    sessions = [caller.handshake() for caller in callers]
    for session in sessions:
        with contextlib.suppress(RpcError):
            await session.initialize()
    running: set[asyncio.Task[None]] = set()

    async def publish(turn: int) -> None:
        await callers[turn % 2].publish(f"bench://loud/{turn % 20}", f"{turn}")

    async def read(turn: int) -> None:
        await clients[turn % 2].read(f"bench://loud/{turn % 20}")

    async def listen(turn: int) -> None:
        async with await clients[turn % 2].listen([f"bench://loud/{turn % 20}"]):
            await asyncio.sleep(1)

    async def subscribe(turn: int) -> None:
        await sessions[turn % 2].subscribe(f"bench://loud/{turn % 20}")

    async def quietly(work: Awaitable[None]) -> None:
        # Refusals are the point; and connections that we gave up at the end.
        with contextlib.suppress(Exception):
            await work

    async def offer(work: Callable[[int], Awaitable[None]], rate: float) -> None:
        turn, due = 0, time.monotonic()
        while True:
            if len(running) < 500:  # an attacker's descriptors end somewhere, too
                task = asyncio.create_task(quietly(work(turn)))
                running.add(task)
                task.add_done_callback(running.discard)
            turn += 1
            due += 1 / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    works = {"publish": publish, "read": read, "listen": listen, "subscribe": subscribe}
    await asyncio.gather(*(offer(works[name], rate * factor) for name, rate in OFFERED.items()))


async def quiet(here: Caller, there: Caller, seconds: float) -> tuple[float, float]:
    """Return the p99 of cue and of read, in ms: published here, heard and read there."""
    cues: list[float] = []
    reads: list[float] = []
    client = there.modern()
    async with await client.listen([URI]) as stream:
        for turn in range(int(seconds / EVERY)):
            began = time.perf_counter()
            await here.publish(URI, f"{turn}")
            while len(stream.cues) <= turn:
                stream.stream.news.clear()
                if len(stream.cues) <= turn:
                    await stream.stream.news.wait()
            cued = time.perf_counter()
            await client.read(URI)
            cues.append((cued - began) * 1000)
            reads.append((time.perf_counter() - cued) * 1000)
            await asyncio.sleep(max(0.0, began + EVERY - time.perf_counter()))
    return _p99(cues), _p99(reads)


async def _loud_process(urls: list[str], key: str, factor: float) -> asyncio.subprocess.Process:
    words = ("-m", "tests.bench.neighbours", "loud", json.dumps([urls, key, factor]))
    return await asyncio.create_subprocess_exec(sys.executable, *words)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


async def measure(fleet: Fleet, pairs: int, seconds: float) -> None:
    """Run the pairs and print them."""
    redis = commands(Connect(fleet.redis_url, Keys(fleet.prefix)))
    control = Control(redis, Keys(fleet.prefix))
    texts: dict[str, str] = {}
    for name, limits in (("loud", LOUD), ("quiet", Limits())):
        await control.create("bench", name, limits)
        texts[name] = (await control.new_key("bench", TenantId(name), "both", [READ, PUBLISH]))[0].text
    urls = [replica.url for replica in fleet.replicas]
    here, there = (Caller(url, texts["quiet"]) for url in urls)
    await quiet(here, there, 2)
    ratios: list[tuple[float, float]] = []
    for pair in range(pairs):
        found: dict[float, tuple[float, float]] = {}
        for factor in (1.0, 10.0) if pair % 2 else (10.0, 1.0):
            load = await _loud_process(urls, texts["loud"], factor)
            try:
                await asyncio.sleep(2)
                found[factor] = await quiet(here, there, seconds)
            finally:
                load.kill()
                await load.wait()
        inside, over = found[1.0], found[10.0]
        ratios.append((over[0] / inside[0], over[1] / inside[1]))
        print(  # noqa: T201 # a benchmark's answer
            f"inside: cue {inside[0]:6.1f} ms, read {inside[1]:6.1f} ms   over: cue {over[0]:6.1f} ms, "
            f"read {over[1]:6.1f} ms   ratios {ratios[-1][0]:.2f}, {ratios[-1][1]:.2f}"
        )
    print(  # noqa: T201 # a benchmark's answer
        f"median ratios: cue {statistics.median(r[0] for r in ratios):.2f}, "
        f"read {statistics.median(r[1] for r in ratios):.2f} (bound 1.5)"
    )
    await redis.aclose()


def main() -> None:
    """Run the benchmark, or be the loud tenant."""
    if sys.argv[1:2] == ["loud"]:
        urls, key, factor = json.loads(sys.argv[2])
        asyncio.run(loud(urls, key, factor))
        return
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    prefix = f"bench{secrets.token_hex(3)}"
    with RedisServer() as server, Fleet(server.url, prefix, BROKER_AUTH__MODE="keys") as fleet:
        fleet.add(2)
        asyncio.run(measure(fleet, pairs, seconds))


if __name__ == "__main__":
    main()
