"""What one process takes on is bounded in all, for each tenant and by its threads; no clock decides."""

import asyncio
import secrets
import threading
import time

import httpx
import pytest

from tests.support.mcp import Modern
from tests.support.replica import Fleet
from tests.support.wait import stays, until, within
from tests.workers.serving.conftest import serve
from workers import Context, Worker
from workers.calling import ServingRules
from workers.serving import serving


class Held:
    """A worker whose calls of `hold://…` stay until the test lets them go."""

    def __init__(self, *tenants: str) -> None:
        self.worker = Worker("held", tenants=tenants)
        self.running: list[str] = []
        self.most = 0
        self.go = asyncio.Event()

        @self.worker.resource("hold://{number}", personal=False)
        async def hold(number: str, ctx: Context) -> str:
            self.running.append(ctx.tenant)
            self.most = max(self.most, len(self.running))
            await self.go.wait()
            self.running.remove(ctx.tenant)
            return number

        @self.worker.resource("quick://{number}")
        async def quick(number: str) -> str:
            return number


async def text(client: Modern, uri: str) -> str:
    return (await client.read(uri))[0]["text"]


async def texts(client: Modern, scheme: str, count: int) -> list[str]:
    return await asyncio.gather(*(text(client, f"{scheme}://{number}") for number in range(count)))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


async def test_a_tenant_that_fills_its_share_holds_up_no_other(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """By default one tenant could take all there was, and one read took as many of its calls as fitted."""
    other = f"{tenant}-other"
    held = Held(tenant, other)
    full, free = Modern(fleet[0].url, tenant, http), Modern(fleet[1].url, other, http)
    rules = ServingRules(concurrency=4)
    async with serving(held.worker, url=fleet.redis_url, prefix=fleet.prefix, rules=rules):
        reads = asyncio.create_task(texts(full, "hold", 8))
        await until(lambda: held.running == [tenant] * 2, "a full share")
        assert await within(texts(free, "quick", 8), "the other tenant's answers", 5) == numbers(8)
        await stays(lambda: held.running == [tenant] * 2, "no more than its share", 0.3)
        held.go.set()
        assert await reads == numbers(8)


async def test_a_share_is_kept_where_there_is_room_for_more(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    held = Held(tenant)
    client = Modern(fleet[0].url, tenant, http)
    rules = ServingRules(concurrency=64, per_tenant=3)
    # What waits already is taken in one read.
    async with serving(held.worker, url=fleet.redis_url, prefix=fleet.prefix, rules=rules):
        reads = asyncio.create_task(texts(client, "hold", 12))
        await until(lambda: len(held.running) == 3, "a full share")
        await stays(lambda: len(held.running) == 3, "no more than its share", 0.3)
        held.go.set()
        assert await reads == numbers(12)
    assert held.most == 3


async def test_more_tenants_than_places_take_turns(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """A call of each was taken, however few places there were."""
    tenants = [f"{tenant}-{number}" for number in range(5)]
    held = Held(*tenants)
    rules = ServingRules(concurrency=2)
    async with serving(held.worker, url=fleet.redis_url, prefix=fleet.prefix, rules=rules):
        reads = [asyncio.create_task(texts(Modern(fleet[0].url, each, http), "hold", 2)) for each in tenants]
        await until(lambda: len(held.running) == 2, "every place taken")
        await stays(lambda: len(held.running) == 2, "no more than there is room for", 0.3)
        held.go.set()
        assert await asyncio.gather(*reads) == [numbers(2)] * 5
    assert held.most == 2


class Blocking:
    """A process with one thread, whose function may hang in it."""

    def __init__(self, tenant: str) -> None:
        self.worker = Worker("blocking", tenant=tenant, threads=1)
        self.hangs = False
        self.ends = threading.Event()

        @self.worker.resource("block://{number}")
        def block(number: str) -> str:
            if number == "hang":
                self.hangs = True
                self.ends.wait(60)
            return number


async def test_a_process_whose_threads_all_hang_leaves_sync_calls_to_an_idle_one(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """It took them, and they waited behind what hung until their deadline."""
    pair = [Blocking(tenant), Blocking(tenant)]
    client = Modern(fleet[0].url, tenant, http)
    try:
        async with serve(fleet, pair[0].worker) as one, serve(fleet, pair[1].worker) as two:
            for server in (*one, *two):
                await until(lambda server=server: server.others == 1, "each knows of the other")
            hanging = asyncio.create_task(text(client, "block://hang"))
            await until(lambda: any(each.hangs for each in pair), "one that hangs")
            answers = await within(texts(client, "block", 12), "answers of the other process", 8)
            assert answers == numbers(12)
            assert not hanging.done()
            assert sum(each.hangs for each in pair) == 1
            for each in pair:
                each.ends.set()
            assert await hanging == "hang"
    finally:
        for each in pair:
            each.ends.set()


async def test_the_only_process_keeps_the_sync_calls_that_it_cannot_start_yet(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    alone = Blocking(tenant)
    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, alone.worker):
        hanging = asyncio.create_task(text(client, "block://hang"))
        await until(lambda: alone.hangs, "one that hangs")
        waiting = asyncio.create_task(texts(client, "block", 4))
        alone.ends.set()
        assert await hanging == "hang"
        assert await within(waiting, "the rest, at once", 5) == numbers(4)


@pytest.mark.parametrize("ahead", [3600.0, -3600.0], ids=["ahead", "behind"])
async def test_the_clock_of_the_workers_machine_decides_nothing(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that was set dropped what came within the next second, and ended what ran, as too late."""
    worker = Worker("clock", tenant=tenant)
    began, go = asyncio.Event(), asyncio.Event()
    real = time.time

    @worker.resource("held://{part}")
    async def held(part: str, ctx: Context) -> str:
        began.set()
        await go.wait()
        assert 0 < ctx.seconds_left < 11
        return f"{part} {ctx.is_cancelled}"

    def wrong() -> float:
        return real() + ahead

    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, worker):
        # Set while a call runs; and what comes next comes before Redis is asked for the time again.
        running = asyncio.create_task(text(client, "held://1"))
        await began.wait()
        monkeypatch.setattr(time, "time", wrong)
        go.set()
        assert await running == "1 False"
        assert await text(client, f"held://{secrets.token_hex(4)}")
    # Wrong from the start.
    async with serve(fleet, worker):
        assert await text(client, "held://2") == "2 False"
