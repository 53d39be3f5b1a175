"""The official clients against a fleet that asks for credentials: OAuth tokens, and API keys."""

import asyncio
import json
import secrets
import sys
from collections.abc import Callable, Iterator

import httpx
import pytest

from broker.core.access import READ
from broker.core.identity import TenantId
from broker.store.client import Connect, commands
from broker.store.control import Control
from broker.store.keys import Keys
from tests.clients.conftest import COMMANDS, Run
from tests.clients.fixture import TENANT
from tests.clients.test_official import STEPS
from tests.support.mcp import Modern, RpcError
from tests.support.process import Process
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.support.wait import until_sync
from tests.tenants.issuer import RESOURCE, Issuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def fleet(redis_server: RedisServer, issuer: Issuer) -> Iterator[Fleet]:
    prefix = f"keyed{secrets.token_hex(3)}"
    settings = {
        "BROKER_AUTH__MODE": "keys+oauth",
        "BROKER_OAUTH__RESOURCE": RESOURCE,
        "BROKER_OAUTH__ISSUERS": json.dumps([issuer.settings(tenant=TENANT)]),
    }
    with Fleet(redis_server.url, prefix, **settings) as fleet:
        fleet.add(2)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture(scope="module")
def key(fleet: Fleet) -> str:
    """Make the tenant, and a key of it."""

    async def make() -> str:
        keys = Keys(fleet.prefix)
        redis = commands(Connect(fleet.redis_url, keys))
        control = Control(redis, keys)
        await control.create("test", TENANT)
        made, _ = await control.new_key("test", TenantId(TENANT), "app", [READ])
        await redis.aclose()
        return made.text

    return asyncio.run(make())


@pytest.fixture
def credentials(key: str, issuer: Issuer) -> dict[str, str]:
    return {"key": key, "token": issuer.token()}


@pytest.fixture(scope="module")
def worker(fleet: Fleet, key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    command = [sys.executable, "-m", "workers", "run", "tests.clients.fixture:worker"]
    place = ["--redis-url", fleet.redis_url, "--prefix", fleet.prefix]
    worker = Process("worker", command + place, tmp_path_factory.mktemp("keyed") / "worker.log")
    worker.start()
    try:
        until_sync(lambda: _is_served(fleet, key), lambda: f"the template is served\n{worker.tail()}", 20)
        yield worker
    finally:
        worker.kill()


def _is_served(fleet: Fleet, key: str) -> bool:
    async def read() -> None:
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, trust_env=False) as http:
            for replica in fleet.replicas:
                await Modern(replica.url, TENANT, http).read("test://template/1/data")

    try:
        asyncio.run(read())
    except RpcError:
        return False
    return True


@pytest.mark.parametrize(("name", "kind"), [*((name, "token") for name in COMMANDS), ("py2-auto", "key")])
def test_an_official_client_works_with_a_credential_alone(
    name: str, kind: str, credentials: dict[str, str], run_client: Callable[..., Run]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROKER_TEST_TOKEN", credentials[kind])
        run = run_client(name)
    assert run.failed == {}
    assert set(run.states) >= STEPS
