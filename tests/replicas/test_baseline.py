"""After load everything is back where it was: tasks, descriptors, gauges, and keys in Redis (a leak test)."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.replicas.conftest import Bench
from tests.support.mcp import Handshake, Modern, RpcError, new_http
from tests.support.replica import Replica
from tests.support.wait import until
from workers import Worker
from workers.calling import ServingRules
from workers.serving import serving

TENANTS = ("acme", "globex")
SHORT = {"BROKER_SESSION__IDLE_SECONDS": "10", "BROKER_WORKER__DEMAND_SECONDS": "1"}
LEVELS = (
    "broker_tasks_running",
    "broker_streams_open",
    "broker_streams_blocked",
    "broker_subscriptions_open",
    "broker_resources_watched",
    "broker_cues_waiting",
)
PASSING = {"token"}
"""Kinds of keys that outlive the load by design, each with a time to live: answers to resends."""

ENDING = {"session", "subs", "sessions", "claim", "watched"}
"""Of sessions that were left without a word, and of demand that lingers: at the end they have run out."""


def _levels(replica: Replica) -> dict[str, float]:
    """Return what must come back: gauges, and descriptors in a step that a pool of connections may take."""
    page = replica.health("metrics")[1]
    found = Counter[str]()
    for line in page.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in LEVELS:
            found[name] += int(float(line.rpartition(" ")[2]))
    return {name: found[name] for name in LEVELS}


def _descriptors(replica: Replica) -> int:
    return sum(1 for _ in (Path("/proc") / str(replica.process.pid) / "fd").iterdir())


def _kinds(bench: Bench) -> Counter[str]:
    """Return how many keys there are of each kind."""
    with bench.redis.client() as redis:
        names = [name.decode() for name in cast("Any", redis).scan_iter(f"{bench.prefix}:*", count=1000)]
    kinds = Counter(re.split(r"[{}]:?", name)[2].partition(":")[0] for name in names)
    return Counter({kind: count for kind, count in kinds.items() if kind not in PASSING})


@pytest.mark.timeout(180)
async def test_after_load_of_all_kinds_everything_is_back_at_the_baseline(
    bench: Bench, http: httpx.AsyncClient
) -> None:
    fleet = bench.fleet(2, **SHORT)
    workers = [_worker(tenant) for tenant in TENANTS]
    rules = ServingRules(repeat=5.0, linger=1.0)
    async with serving(*workers, url=bench.redis.url, prefix=bench.prefix, rules=rules):
        # Once through, so that pools, templates and groups are there; then what is there is the baseline.
        await until(lambda: _served(fleet[0], http), "the workers serve", 20)
        await _load(bench, fleet.replicas, 3)
        await _quiet(fleet.replicas)
        levels = [_levels(replica) for replica in fleet.replicas]
        descriptors = [_descriptors(replica) for replica in fleet.replicas]
        kinds = Counter({kind: count for kind, count in _kinds(bench).items() if kind not in ENDING})

        await _load(bench, fleet.replicas, 25)
        for replica, before, files in zip(fleet.replicas, levels, descriptors, strict=True):
            await until(
                lambda replica=replica, before=before: _levels(replica) == before,
                lambda replica=replica, before=before: f"{before} again, not {_levels(replica)}",
                30,
            )
            # Connections to Redis, at most a pool of them, may stay.
            assert _descriptors(replica) <= files + 20
        await until(lambda: _kinds(bench) == kinds, lambda: f"{kinds} again, not {_kinds(bench)}", 30)


def _worker(tenant: str) -> Worker:
    worker = Worker("baseline", tenant=tenant)

    @worker.resource("called://{number}")
    async def called(number: int) -> str:
        return str(number)

    @worker.resource("slow://{number}")
    async def slow(number: int) -> str:
        await asyncio.sleep(0.3 + number % 2)
        return str(number)

    @worker.on_watched("called://{number}")
    async def watched(uri: str) -> None:
        pass

    return worker


async def _served(replica: Replica, http: httpx.AsyncClient) -> bool:
    try:
        return [await Modern(replica.url, tenant, http).read("called://1") for tenant in TENANTS] != []
    except RpcError:
        return False


async def _quiet(replicas: list[Replica]) -> None:
    for replica in replicas:
        await until(lambda replica=replica: _levels(replica)["broker_streams_open"] == 0, "no stream is open")
        await until(lambda replica=replica: _levels(replica)["broker_resources_watched"] == 0, "none watched")


async def _load(bench: Bench, replicas: list[Replica], count: int) -> None:
    """Do everything `count` times on each replica: polite, rude, and cancelled in the middle."""
    async with new_http() as http:
        visits = (_visit(bench, replica, number, http) for replica in replicas for number in range(count))
        await asyncio.gather(*visits)


async def _visit(bench: Bench, replica: Replica, number: int, http: httpx.AsyncClient) -> None:
    tenant = TENANTS[number % 2]
    uri = f"called://{number}"
    modern = Modern(replica.url, tenant, http)
    listening = await modern.listen([uri, "docs://x"], wants_list=True)
    session = Handshake(replica.url, tenant, http)
    await session.initialize()
    await session.subscribe(uri)
    stream = await session.get_stream()
    assert (await modern.read(uri))[0]["text"] == str(number)
    assert (await session.read(uri))[0]["text"] == str(number)
    leaving = asyncio.create_task(modern.read(f"slow://{number}"))
    await bench.publisher.publish("docs://x", str(number))
    await asyncio.wait([leaving], timeout=0.1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await stream.close()
    if number % 3:
        await session.delete()
    await listening.close()
