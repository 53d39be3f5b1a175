"""The official conformance suite against a fleet that asks for credentials: the same baselines hold."""

import asyncio
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.core.access import READ
from broker.core.identity import TenantId
from broker.store.client import Connect, commands
from broker.store.control import Control
from broker.store.keys import Keys
from tests.suite.tcp_balancer import TcpBalancer
from tests.suite.test_conformance import REVISIONS, publish_fixture, run_suite
from tests.support.mcp import Modern, RpcError
from tests.support.process import Process
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.support.wait import until_sync
from tests.tenants.issuer import RESOURCE, Issuer
from workers import SyncPublisher


async def _key(fleet: Fleet) -> str:
    keys = Keys(fleet.prefix)
    redis = commands(Connect(fleet.redis_url, keys))
    control = Control(redis, keys)
    await control.create("test", "default")
    made, _ = await control.new_key("test", TenantId("default"), "suite", [READ])
    await redis.aclose()
    return made.text


def _is_served(fleet: Fleet, credential: str) -> bool:
    async def read() -> None:
        async with httpx.AsyncClient(
            headers={"authorization": f"Bearer {credential}"}, trust_env=False
        ) as http:
            for replica in fleet.replicas:
                await Modern(replica.url, http=http).read("test://template/1/data")

    try:
        asyncio.run(read())
    except RpcError:
        return False
    return True


@pytest.fixture(scope="module", params=["key", "token"])
def balancer(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TcpBalancer]:
    """Give the way to two replicas with the suite's resources, that adds a credential to each request."""
    prefix = f"suite{secrets.token_hex(3)}"
    command = [sys.executable, "-m", "workers", "run", "tests.suite.fixture:worker"]
    place = ["--redis-url", redis_server.url, "--prefix", prefix]
    worker = Process("worker", command + place, tmp_path_factory.mktemp("suite") / "worker.log")
    with Issuer() as issuer, Fleet(redis_server.url, prefix, **_asking(issuer)) as fleet:
        worker.start()
        fleet.add(2)
        key = asyncio.run(_key(fleet))
        credential = key if request.param == "key" else issuer.token()
        with SyncPublisher(redis_server.url, tenant="default", prefix=prefix) as publisher:
            publish_fixture(publisher)
        until_sync(
            lambda: _is_served(fleet, credential), lambda: f"the template is served\n{worker.tail()}", 20
        )
        with TcpBalancer([replica.address for replica in fleet.replicas], credential) as balancer:
            yield balancer
        worker.kill()
    with redis_server.client() as client:
        clear(client, prefix)


def _asking(issuer: Issuer) -> dict[str, str]:
    """Return the settings of a fleet that takes API keys, and this issuer's tokens."""
    return {
        "BROKER_AUTH__MODE": "keys+oauth",
        "BROKER_OAUTH__RESOURCE": RESOURCE,
        "BROKER_OAUTH__ISSUERS": json.dumps([issuer.settings(tenant="default")]),
    }


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_official_suite_passes_with_a_credential(
    revision: str, balancer: TcpBalancer, tmp_path: Path
) -> None:
    run_suite(balancer.url, revision, tmp_path)
