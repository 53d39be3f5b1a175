"""Fixtures that every folder may use: a shared Redis, a prefix of one's own, raw clients, and fleets.

One Redis server serves all tests of a process that do not hurt it; a test that does starts its own
(`own_redis`). Each test has its own key prefix, and what it leaves there that nothing would ever remove
fails it.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import cast

import httpx
import hypothesis
import pytest

from tests.support.mcp import new_http
from tests.support.redis_server import RedisServer, clear, leaked
from tests.support.replica import Fleet
from workers import Publisher

# How long an example takes says something of the machine and nothing of the code: nothing here is timed.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")

FLEETS = pytest.StashKey[list[Fleet]]()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Give a server that all tests share: do not kill, pause or flush it."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """Give a server of this test alone, to hurt; it keeps what it acknowledged over a crash."""
    with RedisServer(appendonly=True) as server:
        yield server


@pytest.fixture
def prefix(redis_server: RedisServer) -> Iterator[str]:
    """Give a key prefix of this test alone on the shared server, and check what is left under it."""
    name = f"t{secrets.token_hex(4)}"
    yield name
    with redis_server.client() as client:
        left = leaked(client, name)
        clear(client, name)
    assert left == [], f"keys that nothing will ever remove: {left}"


@pytest.fixture(scope="session")
def shared_fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give three replicas for all tests of a process that leave a fleet as it was; take `fleet` instead."""
    name = f"shared{secrets.token_hex(3)}"
    with Fleet(redis_server.url, name) as fleet:
        fleet.add(3)
        yield fleet
    with redis_server.client() as client:
        left = leaked(client, name)
        clear(client, name)
    assert left == [], f"keys that nothing will ever remove: {left}"


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Iterator[Fleet]:
    """Give three replicas that other tests use as well, each with a tenant of its own."""
    shared_fleet.balancer.choose = None
    shared_fleet.balancer.served.clear()
    yield shared_fleet
    for replica in shared_fleet.replicas:
        if not replica.process.is_running:
            replica.start()


@pytest.fixture
async def publisher(fleet: Fleet, tenant: str) -> AsyncIterator[Publisher]:
    """Give a publisher of this test's tenant on the shared fleet."""
    async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
        yield publisher


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """Give an HTTP client that any number of raw MCP clients may share."""
    async with new_http() as client:
        yield client


@pytest.fixture
def tenant() -> str:
    """Give a tenant that no other test uses, for fleets that several tests share."""
    return f"tenant-{secrets.token_hex(4)}"


@pytest.fixture
def new_fleet(request: pytest.FixtureRequest, prefix: str) -> Iterator[Callable[..., Fleet]]:
    """Give a function that starts replicas behind a balancer; all end with the test.

    A replica that met something it did not expect (a traceback in its log) fails the test.
    """
    made: list[Fleet] = request.node.stash.setdefault(FLEETS, [])

    def make(redis_url: str, count: int = 3, **settings: str) -> Fleet:
        fleet = Fleet(redis_url, prefix, **settings)
        made.append(fleet)
        fleet.add(count)
        return fleet

    yield make
    for fleet in made:
        fleet.close()
    surprises = [surprise for fleet in made for surprise in fleet.surprises]
    made.clear()  # where the test is run once more, its item and what is stashed there stay
    assert surprises == [], "\n".join(surprises)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs of a failed test's replicas."""
    report = yield
    if report.failed and call.when == "call":
        none: list[Fleet] = []
        given = cast("dict[str, object]", getattr(item, "funcargs", {})).values()
        shared = [each for each in given if isinstance(each, Fleet)]
        for fleet in [*item.stash.get(FLEETS, none), *shared]:
            report.sections += [(f"log of {name}", text) for name, text in fleet.logs()]
    return report
