"""The raw checks of both eras: against one replica, and behind the balancer while replicas crash."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from tests.http.asking import Asking
from tests.http.raw_checks import HANDSHAKE_STEPS, MODERN_STEPS, TEXT, WATCHED, Checks, Step
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from workers import Publisher

pytestmark = pytest.mark.requirement("client.raw")


@pytest.fixture
async def change(publisher: Publisher) -> Callable[[], Awaitable[object]]:
    """Publish what the checks read, and give a way to let it change."""
    await publisher.publish(TEXT, "This is the content of the static text resource.")
    await publisher.publish(WATCHED, "0")
    counter = itertools.count(1)
    return lambda: publisher.publish(WATCHED, str(next(counter)))


@pytest.mark.parametrize("step", HANDSHAKE_STEPS + MODERN_STEPS, ids=lambda step: step.__name__)
async def test_a_replica_passes(
    step: Step, fleet: Fleet, http: httpx.AsyncClient, tenant: str, change: Callable[[], Awaitable[object]]
) -> None:
    await step(Checks(Asking(http, fleet[0].url, tenant), change))


@pytest.fixture
async def own_publisher(redis_server: RedisServer, prefix: str) -> AsyncIterator[Publisher]:
    """Give a publisher for a fleet of the test's own."""
    async with Publisher(redis_server.url, tenant="default", prefix=prefix) as publisher:
        yield publisher


@pytest.mark.timeout(300)
@pytest.mark.parametrize("per_crash", [7, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("steps", [HANDSHAKE_STEPS, MODERN_STEPS], ids=["handshake", "modern"])
async def test_a_fleet_passes_while_its_replicas_crash_and_return_between_the_steps(
    steps: list[Step],
    *,
    per_crash: int,
    new_fleet: Callable[..., Fleet],
    redis_server: RedisServer,
    http: httpx.AsyncClient,
    own_publisher: Publisher,
) -> None:
    fleet = await asyncio.to_thread(new_fleet, redis_server.url, 2)
    await own_publisher.publish(TEXT, "This is the content of the static text resource.")
    await own_publisher.publish(WATCHED, "0")
    counter = itertools.count(1)
    checks = Checks(
        Asking(http, fleet.url, "default"), lambda: own_publisher.publish(WATCHED, str(next(counter)))
    )
    for number, step in enumerate(steps):
        if number % per_crash == 0:
            crashing = fleet[number // per_crash % 2]
            await asyncio.to_thread(crashing.restart)
        await step(checks)
