"""No part of a replica dies quietly: the end of any is the end of the app, which the process reports."""

import asyncio
from typing import Any, cast

import pytest

from broker.app import build
from broker.callbacks.calls import Calls
from broker.callbacks.demand import Demand
from broker.callbacks.inbox import Inbox
from broker.http.lifespan import Lifespan
from broker.inspection import Inspection
from broker.sessions.ownership import Sessions
from broker.settings import Settings
from broker.shedding import Shedding
from broker.streams.guard import Guard
from broker.streams.wheel import Wheel
from broker.sweeper import Sweeper
from broker.tailing.heart import Heart
from broker.tailing.resync import Resync
from broker.tailing.tail import Tail
from broker.telemetry import loop_lag
from broker.tenants.quotas import Quotas
from tests.support.redis_server import RedisServer

PARTS: list[Any] = [
    Inspection,
    Tail,
    Heart,
    Resync,
    Wheel,
    Sessions,
    Guard,
    Sweeper,
    Shedding,
    Calls,
    Inbox,
    Demand,
    Quotas,
]


async def _die(*_: object) -> None:
    raise RuntimeError("a bug of ours")


async def _ends(settings: Settings) -> BaseException:
    """Run the app until it ends by itself; what ended it."""
    lifespan = Lifespan(build(settings).public)
    try:
        async with asyncio.timeout(10):
            await lifespan.start()
            await lifespan.died()
    except TimeoutError:
        lifespan.cancel()
        raise
    except Exception as error:
        return error
    raise AssertionError("it ended without a reason")


def _says(error: BaseException, word: str) -> bool:
    if isinstance(error, BaseExceptionGroup):
        errors = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return any(_says(each, word) for each in errors)
    return word in str(error)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
async def test_a_part_that_dies_takes_the_app_with_it(
    part: Any, redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "run", _die)
    assert _says(await _ends(Settings(redis_url=redis_server.url, prefix=prefix)), "a bug of ours")


async def test_the_sampler_of_the_loop_does_so_as_well(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_lag, "sample", _die)
    assert _says(await _ends(Settings(redis_url=redis_server.url, prefix=prefix)), "a bug of ours")


async def test_every_lasting_task_of_a_replica_is_one_of_these(
    redis_server: RedisServer, prefix: str
) -> None:
    """What is not named here would not be tested above."""
    before = asyncio.all_tasks()
    broker = build(Settings(redis_url=redis_server.url, prefix=prefix))
    lifespan = Lifespan(broker.public)
    await lifespan.start()
    try:
        names = {task.get_name().rstrip(" 0123456789") for task in asyncio.all_tasks() - before}
        lasting = {part.__name__.lower() for part in PARTS}
        # The other names: the app itself, and what asks for the primary where there is one to be asked for.
        assert {name for name in names if not name.startswith("Task-")} - {
            "lifespan",
            "replica",
            "primary",
        } == (lasting | {"loop lag"})
    finally:
        await lifespan.stop()
