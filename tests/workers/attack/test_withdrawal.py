"""What one process of a group withdraws stays withdrawn, whatever the others repeat."""

import asyncio

import httpx

from tests.support.mcp import Modern
from tests.support.replica import Fleet
from tests.support.wait import stays, until
from tests.workers.serving.conftest import serve
from workers import Worker

FIXED, SHAPED = "fixed://one", "shaped://{part}"
REPEAT = 0.1


def app(tenant: str) -> Worker:
    worker = Worker("app", tenant=tenant)

    @worker.resource(FIXED)
    def one() -> str:
        return "one"

    @worker.resource(SHAPED)
    def shaped(part: str) -> str:
        return part

    return worker


class Watch:
    """Whether clients are shown what the group declares, looked at again and again.

    By the lists and not by reading: a process that has disabled it refuses a read a moment earlier.
    """

    def __init__(self, client: Modern) -> None:
        self._client = client
        self.is_there = (True, True)

    async def look(self) -> tuple[bool, bool]:
        listed = await self._client.list()
        shown = (await self._client.ask("resources/templates/list"))["resourceTemplates"]
        self.is_there = FIXED in listed, any(each["uriTemplate"] == SHAPED for each in shown)
        return self.is_there

    async def becomes(self, fixed: int, shaped: int) -> None:
        async def so() -> bool:
            return await self.look() == (bool(fixed), bool(shaped))

        await until(so, f"shown: {fixed}, {shaped}")

    async def keeps_on(self, fixed: int, shaped: int) -> None:
        """Stay so over many repetitions of the other process."""

        async def looking() -> None:
            while True:
                await self.look()
                await asyncio.sleep(REPEAT / 2)  # between two looks

        task = asyncio.create_task(looking())
        try:
            await stays(
                lambda: self.is_there == (bool(fixed), bool(shaped)), f"{fixed}, {shaped}", 10 * REPEAT
            )
        finally:
            task.cancel()
            await asyncio.wait({task})


async def test_what_one_process_disables_or_removes_its_group_no_longer_serves(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """The next repetition of another process brought it back within ten seconds."""
    watch, one, other = Watch(Modern(fleet[0].url, tenant, http)), app(tenant), app(tenant)
    async with serve(fleet, one, repeat=REPEAT), serve(fleet, other, repeat=REPEAT):
        await watch.becomes(1, 1)
        one.disable(FIXED)
        one.remove(SHAPED)
        await watch.becomes(0, 0)
        await watch.keeps_on(0, 0)
        one.enable(FIXED)
        await watch.becomes(1, 0)
        await watch.keeps_on(1, 0)
        other.disable(FIXED)
        await watch.becomes(0, 0)
        await watch.keeps_on(0, 0)


async def test_another_process_may_bring_back_what_it_never_disabled_itself(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    watch, one, other = Watch(Modern(fleet[0].url, tenant, http)), app(tenant), app(tenant)
    async with serve(fleet, one, repeat=REPEAT), serve(fleet, other, repeat=REPEAT):
        one.disable(FIXED)
        one.disable(SHAPED)
        await watch.becomes(0, 0)
        other.enable(FIXED)
        other.enable(SHAPED)
        await watch.becomes(1, 1)
        await watch.keeps_on(1, 1)


async def test_a_process_that_starts_later_brings_back_what_it_declares(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    watch, one, other = Watch(Modern(fleet[0].url, tenant, http)), app(tenant), app(tenant)
    async with serve(fleet, one, repeat=REPEAT), serve(fleet, other, repeat=REPEAT):
        one.disable(FIXED)
        await watch.becomes(0, 1)
        async with serve(fleet, app(tenant), repeat=REPEAT):
            await watch.becomes(1, 1)
        # The others repeat it again: it is said anew for the group.
        await watch.keeps_on(1, 1)


async def test_what_is_withdrawn_and_declared_anew_at_once_is_served(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    watch, one, other = Watch(Modern(fleet[0].url, tenant, http)), app(tenant), app(tenant)
    async with serve(fleet, one, repeat=REPEAT), serve(fleet, other, repeat=REPEAT):
        for _ in range(20):
            one.disable(FIXED)
            one.enable(FIXED)
        await watch.becomes(1, 1)
        await watch.keeps_on(1, 1)
