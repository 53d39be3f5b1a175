"""A fleet for the tests of serving: two replicas on the shared Redis, and raw clients on either."""

import secrets
from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet


@pytest.fixture(scope="package")
def fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give two replicas that all tests of this folder share; each test has a tenant of its own."""
    prefix = f"w{secrets.token_hex(4)}"
    with Fleet(redis_server.url, prefix) as fleet:
        fleet.add(2)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)
