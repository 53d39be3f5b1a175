"""Any number of worker processes share the load, and what one drops another picks up."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any, cast

import httpx

from broker.core.identity import TenantId
from broker.store.keys import Keys
from tests.support.mcp import Modern, RpcError
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.workers.serving.processes import Workers

DEADLINE = 10.0


async def _answers(client: Modern, uri: str) -> bool:
    try:
        await client.read(uri)
    except RpcError:
        return False
    return True


async def test_a_killed_workers_call_is_finished_by_another(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    client = Modern(fleet[0].url, tenant, http)
    with Workers(fleet, "squares", tenant) as workers:
        workers.start()
        workers.start()
        await until(lambda: _answers(client, "square://1"), lambda: "\n".join(workers.logs()), 20)
        reads = [asyncio.create_task(client.read(f"slow://{number}")) for number in range(20)]
        await asyncio.sleep(0.5)  # mid-flight
        workers.processes[0].kill()
        texts = [(await read)[0]["text"].split() for read in reads]
        assert [int(number) for number, _ in texts] == list(range(20))


async def test_no_answer_is_wrong_or_lost_while_workers_come_and_go(
    redis_server: RedisServer, new_fleet: Callable[..., Fleet], tenant: str, http: httpx.AsyncClient
) -> None:
    """Three replicas, about three workers, 200 clients; each kill finds calls that were taken."""
    fleet = new_fleet(redis_server.url, 3)
    numbers = itertools.count()
    latencies: list[float] = []
    over = asyncio.Event()

    async def read_on(client: Modern) -> int:
        reads = 0
        while not over.is_set():
            number = next(numbers)
            started = time.monotonic()
            contents = await client.read(f"square://{number}")
            latencies.append(time.monotonic() - started)
            assert contents[0]["text"] == str(number * number)
            reads += 1
        return reads

    with Workers(fleet, "squares", tenant) as workers:
        for _ in range(3):
            workers.start()
        first = Modern(fleet[0].url, tenant, http)
        await until(lambda: _answers(first, "square://1"), lambda: "\n".join(workers.logs()), 30)
        urls = itertools.cycle(replica.url for replica in fleet.replicas)
        clients = [asyncio.create_task(read_on(Modern(next(urls), tenant, http))) for _ in range(200)]
        for killed in range(4):
            before = len(latencies)
            await until(lambda seen=before: len(latencies) > seen + 150, "150 reads more", 20)
            workers.processes[killed].kill()
            workers.start()
        over.set()
        counts = await asyncio.gather(*clients)
        assert min(counts) > 0
        assert max(latencies) < DEADLINE
        await until(lambda: _pending(redis_server, fleet, tenant) == (0, 0), "nothing pending", 10)


def _pending(server: RedisServer, fleet: Fleet, tenant: str) -> tuple[int, int]:
    """Return how many calls are in the stream, and how many of them somebody has taken."""
    name = Keys(fleet.prefix).calls(TenantId(tenant), "squares")
    with server.client() as client:
        redis = cast("Any", client)
        return redis.xlen(name), redis.xpending(name, "workers")["pending"]
