"""A task that is cancelled while it talks to Redis ends (broker/store/connection.py)."""

import asyncio
import contextlib
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from broker.store.client import Connect, commands, reader
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer

MOMENTS = 40


async def ask_for_ever(redis: Any) -> None:
    """Ask as the broker's loops do: no error of Redis ends them."""
    while True:
        try:
            await redis.ping()
        except RedisError:
            await asyncio.sleep(0)


@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_cancellation_ends_a_loop_at_whatever_moment_it_comes(
    is_connected: bool,  # noqa: FBT001 - a column of the matrix
    redis_server: RedisServer,
    keys: Keys,
) -> None:
    """On Python 3.11 one that came while a command was being sent was lost, and the loop went on.

    A replica that was told to leave at such a moment waited for its own loops until it was killed.
    """
    redis: Redis = commands(Connect(redis_server.url, keys, pool_size=1))
    survivors: list[int] = []
    for moment in range(MOMENTS):
        if is_connected:
            await ask_once(redis)
        else:
            await redis.connection_pool.disconnect()
        task = asyncio.create_task(ask_for_ever(redis))
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=1)
        if not done:
            survivors.append(moment)
            task.cancel()
            await asyncio.wait({task})
    await redis.aclose()
    assert survivors == []


async def ask_once(redis: Any) -> None:
    await redis.ping()


async def test_a_timeout_around_commands_is_never_lost(redis: Redis) -> None:
    for moment in range(MOMENTS):
        ceiling = asyncio.timeout(None)

        async def reach_it(ceiling: asyncio.Timeout = ceiling, moment: int = moment) -> None:
            for _ in range(moment):
                await asyncio.sleep(0)
            ceiling.reschedule(0)

        async def ask(ceiling: asyncio.Timeout = ceiling) -> None:
            async with ceiling:
                await ask_for_ever(redis)

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        await reach_it()
        done, _ = await asyncio.wait({asking}, timeout=2)
        asking.cancel()
        assert done, f"the timeout was lost at moment {moment}"
        assert isinstance(asking.exception(), TimeoutError)


async def test_a_connection_that_is_closed_at_whatever_moment_is_an_error_of_redis(
    redis_server: RedisServer, keys: Keys
) -> None:
    """The bug: closed between two steps of connecting, the client failed with an AttributeError."""
    redis: Redis = reader(Connect(redis_server.url, keys))
    for moment in range(MOMENTS):
        await redis.connection_pool.disconnect()
        asking = asyncio.create_task(ask_once(redis))
        for _ in range(moment):
            await asyncio.sleep(0)
        await redis.connection_pool.disconnect()
        with contextlib.suppress(RedisError):
            await asking
    await redis.aclose()
