"""A Redis Cluster that the tests of a process share: each heals what it has hurt."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from broker.core.identity import TenantId
from broker.store.client import Client, Connect, commands, keys_at
from broker.store.slots import slot_of
from tests.support.redis_cluster import Node, RedisCluster


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


class Place:
    """An installation of one test on the cluster."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.cluster = cluster
        self.prefix = f"t{secrets.token_hex(4)}"
        self.keys = keys_at(cluster.url, self.prefix)

    def connect(self) -> Connect:
        return Connect(self.cluster.url, self.keys, log_length=20_000)

    def tenant_on(self, node: Node, but: str = "") -> TenantId:
        """Return a tenant whose shard is on `node` now."""
        for number in range(10_000):
            tenant = TenantId(f"tenant{number}")
            if tenant != but and self.cluster.primary(self.log(tenant)) is node:
                return tenant
        raise AssertionError(f"no shard of ours is on {node}")

    def log(self, tenant: str) -> str:
        return self.keys.log(self.keys.log_number(TenantId(tenant)))

    def head(self, tenant: str) -> str:
        return self.keys.head(self.keys.log_number(TenantId(tenant)))

    def slot(self, tenant: str) -> int:
        return slot_of(self.log(tenant))

    def tenants(self, count: int = 4) -> list[str]:
        """Return tenants of different shards."""
        found: dict[int, str] = {}
        for number in range(10_000):
            tenant = f"tenant{number}"
            found.setdefault(self.keys.log_number(TenantId(tenant)), tenant)
            if len(found) == count:
                break
        return list(found.values())


@pytest.fixture
def place(shared_cluster: RedisCluster) -> Iterator[Place]:
    """Give an installation on a cluster that is whole, and leave the cluster whole."""
    yield Place(shared_cluster)
    shared_cluster.heal()


@pytest.fixture
async def redis(place: Place) -> AsyncIterator[Client]:
    """Give the client that brokers and publishers use."""
    client = commands(place.connect())
    yield client
    await client.aclose()
