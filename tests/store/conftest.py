"""A client as brokers have it, and one to meddle with, both under this test's prefix."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis

from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.store.shelf import Shelf
from tests.support.redis_server import RedisServer


@pytest.fixture
def keys(prefix: str) -> Keys:
    return Keys(prefix)


@pytest.fixture
async def redis(redis_server: RedisServer, keys: Keys) -> AsyncIterator[Redis]:
    """Give the client that brokers and publishers use."""
    client = commands(Connect(redis_server.url, keys))
    yield client
    await client.aclose()


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator[Any]:
    """Give a client that adopts nothing and translates nothing."""
    with redis_server.client() as client:
        yield client


@pytest.fixture
def shelf(redis: Redis, keys: Keys) -> Shelf:
    """Give one tenant's resources, with the calls in short words."""
    return Shelf(redis, keys)
