"""Two tenants under siege, for every file of tricks."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.isolation.siege import Siege
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.tenants.yard import yard_of


@pytest.fixture(scope="package")
def besieged(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give two replicas that ask for keys, and list one resource a page: so there are cursors."""
    prefix = f"t{secrets.token_hex(4)}"
    settings = {"BROKER_AUTH__MODE": "keys", "BROKER_ADMIN__TOKEN": "x" * 40, "BROKER_LIST__PAGE_SIZE": "1"}
    with Fleet(redis_server.url, prefix, **settings) as fleet:
        fleet.add(2)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture
async def siege(besieged: Fleet, tenant: str) -> AsyncIterator[Siege]:
    redis = commands(Connect(besieged.redis_url, Keys(besieged.prefix)))
    async with yard_of(besieged, redis) as yard:
        victim, own = await yard.tenant(tenant), await yard.tenant(f"{tenant}-evil")
        # Both keys have the same name, so the same subject: only the tenant tells them apart.
        callers = yard.caller(await yard.key(victim)), yard.caller(await yard.key(own), 1)
        async with Siege(yard, *callers, victim, own) as siege:
            yield siege
    await redis.aclose()
