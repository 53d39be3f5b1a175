"""A replica that the tests of this folder share, for what only a client can see."""

import secrets
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet

# What is measured here is never how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="package")
def fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give one replica; each test serves its worker to it and watches what it likes."""
    prefix = f"d{secrets.token_hex(4)}"
    with Fleet(redis_server.url, prefix) as fleet:
        fleet.add(1)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)
