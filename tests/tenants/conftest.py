"""One fleet of two replicas that asks for API keys, for all tests here that do not hurt it."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from broker.store.client import Connect, commands
from broker.store.control import Control
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer, clear, leaked
from tests.support.replica import Fleet
from tests.tenants.yard import Caller, Yard, yard_of


@pytest.fixture(scope="package")
def keyed_fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    prefix = f"t{secrets.token_hex(4)}"
    with Fleet(redis_server.url, prefix, BROKER_AUTH__MODE="keys") as fleet:
        fleet.add(2)
        yield fleet
    with redis_server.client() as client:
        left = leaked(client, prefix)
        clear(client, prefix)
    assert left == [], f"keys that nothing will ever remove: {left}"


@pytest.fixture
async def yard(keyed_fleet: Fleet) -> AsyncIterator[Yard]:
    redis = commands(Connect(keyed_fleet.redis_url, Keys(keyed_fleet.prefix)))
    async with yard_of(keyed_fleet, redis) as made:
        yield made
    await redis.aclose()


@pytest.fixture
async def acme(yard: Yard, tenant: str) -> str:
    """Give a tenant that no other test uses."""
    return await yard.tenant(tenant)


@pytest.fixture
async def caller(yard: Yard, acme: str) -> Caller:
    """Give somebody who may read and publish for `acme`, at the first replica."""
    return yard.caller(await yard.key(acme))


@pytest.fixture
def keys(prefix: str) -> Keys:
    return Keys(prefix)


@pytest.fixture
async def redis(redis_server: RedisServer, keys: Keys) -> AsyncIterator[Redis]:
    """Give the client that brokers use, under this test's own prefix."""
    client = commands(Connect(redis_server.url, keys))
    yield client
    await client.aclose()


@pytest.fixture
def control(redis: Redis, keys: Keys) -> Control:
    return Control(redis, keys)
