"""Processes that stop, hang or do not want to end cost their group nothing but themselves."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from broker.core.identity import TenantId
from broker.store.keys import Keys
from tests.support.mcp import Modern, RpcError
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.workers.serving.conftest import serve
from tests.workers.serving.processes import Workers
from tests.workers.serving.test_demand import LINGER, Poller
from workers import Worker
from workers.demand import LEASE_MS

SHOWN = 20


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator[Any]:
    """Give a client that writes what it likes."""
    with redis_server.client() as client:
        yield cast("Any", client)


async def answers(client: Modern, uri: str) -> bool:
    try:
        return bool(await client.read(uri))
    except RpcError:
        return False


async def slow(client: Modern, number: int) -> list[str]:
    """Read a slow square; returns its number and the id of the process that answered."""
    return (await client.read(f"slow://{number}"))[0]["text"].split()


async def test_a_stopped_workers_calls_are_finished_by_another_and_its_late_answers_harm_nothing(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    client = Modern(fleet[0].url, tenant, http)
    calls = Keys(fleet.prefix).calls(TenantId(tenant), "squares")

    def taken() -> list[int]:
        """Return how many calls each process has taken."""
        return [each["pending"] for each in raw.xinfo_consumers(calls, "workers")]

    with Workers(fleet, "squares", tenant) as workers:
        stopped = workers.start()
        other = workers.start()
        await until(lambda: answers(client, "square://1"), lambda: "\n".join(workers.logs()), SHOWN)
        await until(lambda: len(taken()) == 2, lambda: "\n".join(workers.logs()), SHOWN)
        reads = [asyncio.create_task(slow(client, number)) for number in range(20)]
        await until(lambda: all(taken()) and sum(taken()) == 20, "both at work")
        stopped.pause()
        texts = [await read for read in reads]
        assert [int(number) for number, _ in texts] == list(range(20))
        assert {int(process) for _, process in texts} == {other.pid}
        # What it finishes now was answered long ago.
        stopped.resume()
        await until(lambda: raw.xpending(calls, "workers")["pending"] == raw.xlen(calls) == 0, "nothing left")

        async def serves_again() -> bool:
            found = await asyncio.gather(*(slow(client, number) for number in range(20)))
            assert [int(number) for number, _ in found] == list(range(20))
            return str(stopped.pid) in {process for _, process in found}

        await until(serves_again, lambda: "\n".join(workers.logs()), SHOWN)
        assert stopped.is_running


async def test_a_claim_moves_when_its_holder_is_silent_and_who_wakes_up_without_it_lets_go(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    """What a stopped process finds when it wakes, and what the others find while it hangs."""
    poller = Poller("prices", tenant)
    claim = Keys(hasty_fleet.prefix).claim(TenantId(tenant), "prices", "price://a")
    async with (
        serve(hasty_fleet, poller.worker, repeat=0.5, linger=LINGER),
        await Modern(hasty_fleet[0].url, tenant, http).listen(["price://a"]),
    ):
        await until(lambda: poller.polled == ["price://a"], "polled")
        # Its lease ran out while it was stopped, and another process has it now.
        raw.set(claim, "another", px=60_000)
        await until(lambda: poller.ended == ["price://a"] and not poller.polled, "let go")
        assert raw.get(claim) == b"another"
        # And that one hangs: it never renews, and its lease ends.
        raw.pexpire(claim, 1)
        await until(lambda: poller.polled == ["price://a"], "taken over", 5)
        assert len(poller.began) == 2


async def test_a_function_that_hangs_when_it_is_let_go_lets_no_other_lease_lapse(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    """The loop waited for it, and the process lost all it tended."""
    worker = Worker("prices", tenant=tenant)
    parting, go, watched = asyncio.Event(), asyncio.Event(), set[str]()

    @worker.resource("price://{symbol}")
    def price(symbol: str) -> str:
        return symbol

    @worker.on_watched("price://{symbol}")
    async def begin(uri: str) -> None:
        watched.add(uri)

    @worker.on_unwatched("price://{symbol}")
    async def end(_uri: str) -> None:
        parting.set()
        await go.wait()

    claim = Keys(hasty_fleet.prefix).claim(TenantId(tenant), "prices", "price://b")
    client = Modern(hasty_fleet[0].url, tenant, http)
    async with (
        serve(hasty_fleet, worker, repeat=0.5, linger=LINGER),
        await client.listen(["price://b"]),
    ):
        async with await client.listen(["price://a"]):
            await until(lambda: len(watched) == 2, "both watched")
        await asyncio.wait_for(parting.wait(), 10)
        for _ in range(2):
            await until(lambda: raw.pttl(claim) < LEASE_MS - 200, "a lease that runs")
            await until(lambda: raw.pttl(claim) > LEASE_MS - 200, "a renewed lease", 5)
        assert not go.is_set()
        go.set()


async def test_a_worker_with_functions_that_never_end_leaves_all_the_same(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """It was asked to leave, and stayed until it was killed."""
    client = Modern(hasty_fleet[0].url, tenant, http)
    with Workers(hasty_fleet, "stubborn", tenant) as workers:
        process = workers.start()

        async def is_late() -> bool:
            with pytest.raises(RpcError) as error:
                await client.read("stubborn://one")
            return error.value.data.get("reason") == "worker_late"

        await until(is_late, process.tail, SHOWN)
        await until(lambda: "function_ignores_cancellation" in process.tail(), process.tail)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 10) == 0
        assert "functions_ignore_the_end" in process.tail()
