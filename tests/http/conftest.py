"""Two replicas that all tests of this folder share, each test in a tenant of its own."""

import secrets
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.http.asking import Asking
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from workers import Publisher


@pytest.fixture(scope="package")
def fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give two replicas behind the balancer. Do not hurt them, and start no others with their prefix."""
    prefix = f"http{secrets.token_hex(3)}"
    with Fleet(redis_server.url, prefix) as fleet:
        fleet.add(2)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture
async def publisher(fleet: Fleet, tenant: str) -> AsyncIterator[Publisher]:
    """Give a publisher of this test's tenant."""
    async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
        yield publisher


@pytest.fixture
def ask(fleet: Fleet, http: httpx.AsyncClient, tenant: str) -> Asking:
    """Give a way to send any request, on any replica, in this test's tenant."""
    return Asking(http, fleet.url, tenant)
