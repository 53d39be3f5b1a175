"""The shapes of Redis that a run hurts, behind one face: what each can have done to it.

All servers are real and run here. Methods block: a coroutine calls them by `asyncio.to_thread`. The faults
that need only `server` and commands (faults.py) are the same for every shape.
"""

from typing import Any, Protocol, Self, cast

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from broker.core.identity import TenantId
from broker.store.keys import SHARDS, Keys
from tests.support.fault_proxy import FaultProxy
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinel
from tests.support.redis_server import RedisServer


class Shape(Protocol):
    """One set-up of Redis for one run."""

    name: str
    keys: Keys

    @property
    def url(self) -> str:
        """What publishers and workers are told."""
        ...

    def way(self, replica: int) -> str:
        """Return what a replica of the broker is told."""
        ...

    def server(self, tenant: str) -> RedisServer:
        """Return the server that holds a tenant's keys and log now."""
        ...

    def heal(self) -> None:
        """Bring back what is dead or stopped, and wait until a failover would succeed again."""
        ...

    def close(self) -> None: ...


def keys_of(shape: Shape, tenant: str) -> tuple[str, str]:
    """Return the names of a tenant's log and head."""
    number = shape.keys.log_number(TenantId(tenant))
    return shape.keys.log(number), shape.keys.head(number)


class Standalone:
    """One server that keeps what it acknowledged; each replica has a faulty way of its own to it."""

    name = "standalone"

    def __init__(self, prefix: str, replicas: int) -> None:
        self.keys = Keys(prefix)
        self.redis = RedisServer("--enable-debug-command", "yes", appendonly=True)
        self.redis.start()
        self.proxies = [FaultProxy(self.redis.address) for _ in range(replicas)]

    @property
    def url(self) -> str:
        return self.redis.url

    def way(self, replica: int) -> str:
        return self.proxies[replica].redis_url

    def server(self, tenant: str) -> RedisServer:
        del tenant
        return self.redis

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.pass_all()
        if not self.redis.process.is_running:
            self.redis.start()

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.redis.close()


class Sentinel:
    """A primary with two replicas, watched by three sentinels; nothing is on a disk."""

    name = "sentinel"

    def __init__(self, prefix: str, replicas: int) -> None:
        del replicas
        self.keys = Keys(prefix)
        self.redis = RedisSentinel()
        _begin(self.redis)

    @property
    def url(self) -> str:
        return self.redis.url

    def way(self, replica: int) -> str:
        del replica
        return self.redis.url

    def server(self, tenant: str) -> RedisServer:
        del tenant
        return self.redis.primary

    def heal(self) -> None:
        self.redis.heal()

    def close(self) -> None:
        self.redis.close()


class Cluster:
    """Three primaries with a replica each; nothing is on a disk."""

    name = "cluster"

    def __init__(self, prefix: str, replicas: int) -> None:
        del replicas
        self.keys = Keys(prefix, logs=SHARDS)
        self.redis = RedisCluster()
        _begin(self.redis)

    @property
    def url(self) -> str:
        return self.redis.url

    def way(self, replica: int) -> str:
        del replica
        return self.redis.url

    def slot(self, tenant: str) -> int:
        """Return where a tenant's keys and its log are."""
        return key_slot(keys_of(self, tenant)[0].encode())

    def server(self, tenant: str) -> RedisServer:
        return self.redis.primary(self.slot(tenant))

    def heal(self) -> None:
        self.redis.heal()

    def close(self) -> None:
        self.redis.close()


SHAPES: dict[str, type[Standalone] | type[Sentinel] | type[Cluster]] = {
    each.name: each for each in (Standalone, Sentinel, Cluster)
}


def version(server: RedisServer) -> str:
    """Return what a server calls itself."""
    with server.client() as client:
        info = cast("dict[str, Any]", cast("Any", client).info("server"))
    return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"


def command(server: RedisServer, *words: object) -> Any:
    """Run a command on one server, as an operator would: one attempt, and its error as it came."""
    once = Retry(NoBackoff(), 0)
    with redis.Redis(port=server.port, socket_timeout=5, retry=once, protocol=2) as client:
        return cast("Any", client).execute_command(*words)


def probe(shape: Shape, tenant: str) -> tuple[object, ...]:
    """Return a harmless write to where a tenant's keys are."""
    return ("SET", f"{keys_of(shape, tenant)[0]}:probe", "1", "EX", "60")


def until_synced(shape: Shape, tenant: str) -> None:
    """Wait until the replicas of the server that has a tenant's keys have all that it has."""
    with redis.Redis(port=shape.server(tenant).port, socket_timeout=5) as client:
        untyped = cast("Any", client)
        untyped.execute_command(*probe(shape, tenant))
        wanted = untyped.info("replication")["connected_slaves"]
        assert untyped.wait(wanted, 4000) >= wanted, f"{shape.name}: a replica does not follow"


class _Startable(Protocol):
    def __enter__(self) -> Self: ...


def _begin(redis: _Startable) -> None:
    redis.__enter__()
