"""Fleets for the tests of serving; each test has a tenant of its own on them."""

import secrets
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from workers.calling import ServingRules
from workers.serving import serving
from workers.worker import Worker


def _fleet(server: RedisServer, count: int, **settings: str) -> Iterator[Fleet]:
    prefix = f"w{secrets.token_hex(4)}"
    with Fleet(server.url, prefix, **settings) as fleet:
        fleet.add(count)
        yield fleet
    with server.client() as client:
        clear(client, prefix)


@pytest.fixture(scope="package")
def fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give two replicas that all tests of this folder share."""
    yield from _fleet(redis_server, 2)


@pytest.fixture(scope="package")
def hasty_fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give two replicas that wait a second for an answer, and two for a registration's repetition."""
    settings = {
        "BROKER_WORKER__CALL_SECONDS": "1",
        "BROKER_WORKER__UNHEARD_SECONDS": "2",
        "BROKER_WORKER__DEMAND_SECONDS": "0.3",
    }
    yield from _fleet(redis_server, 2, **settings)


def serve(
    fleet: Fleet, *workers: Worker, repeat: float = 10.0, linger: float = 30.0
) -> AbstractAsyncContextManager[Any]:
    """Serve `workers` to a fleet from this process."""
    rules = ServingRules(repeat=repeat, linger=linger)
    return serving(*workers, url=fleet.redis_url, prefix=fleet.prefix, rules=rules)
