"""The Redis users of docs/security.md, as it has them, on a real server: enough, and no more."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from broker.core.identity import TenantId
from broker.store.client import Connect, commands
from broker.store.control import Control
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.tenants.yard import Yard
from workers import Publisher, Worker
from workers.serving import serving

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def rules(name: str, prefix: str) -> list[str]:
    block = re.search(rf"```redis-acl {name}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    return block[1].replace("~mrb:", f"~{prefix}:").split()


@pytest.fixture
def guarded(own_redis: RedisServer, prefix: str) -> Callable[[str], str]:
    """Give the URLs of a broker's and of a worker's user."""
    with own_redis.client() as raw:
        untyped: Any = raw
        for name in ("broker", "worker"):
            untyped.execute_command("ACL", "SETUSER", name, *rules(name, prefix))

    def url(name: str) -> str:
        return f"redis://{name}:{name.upper()}-PASSWORD@127.0.0.1:{own_redis.port}/0"

    return url


async def test_brokers_and_workers_do_their_work_with_these_users(
    guarded: Callable[[str], str], prefix: str, new_fleet: Callable[..., Fleet]
) -> None:
    fleet = new_fleet(guarded("broker"), 1, BROKER_AUTH__MODE="keys")
    keys = Keys(prefix)
    admin = commands(Connect(guarded("broker"), keys))
    yard = Yard(fleet, admin)
    tenant = await yard.tenant("acme")
    caller = yard.caller(await yard.key(tenant))
    worker = Worker("clock", tenant="acme")

    @worker.resource("clock://{zone}")
    def clock(zone: str) -> str:
        return f"noon in {zone}"

    async with Publisher(guarded("worker"), tenant=tenant, prefix=prefix) as publisher:
        async with await caller.modern().listen(["docs://1"]) as stream:
            await publisher.publish("docs://1", "x", expires_in=60)
            await stream.cue("docs://1")
        await publisher.touch("docs://1")
        assert [one.uri async for one in publisher.list()] == ["docs://1"]
        assert (await caller.modern().read("docs://1"))[0]["text"] == "x"
        await publisher.remove("docs://1")
    async with serving(worker, url=guarded("worker"), prefix=prefix):
        assert (await caller.modern().read("clock://rome"))[0]["text"] == "noon in rome"
    async with caller.handshake() as session:
        await session.subscribe("docs://1")
    await yard.control.condemn("test", tenant)
    await yard.close()
    await admin.aclose()


FORBIDDEN: dict[str, tuple[Any, ...]] = {
    "key hashes": ("HGETALL", "{p}:{{{t}}}:credentials"),
    "tenants": ("HSET", "{p}:{{{t}}}:tenants", "evil", "{{}}"),
    "the audit log": ("XRANGE", "{p}:{{{t}}}:audit", "-", "+"),
    "sessions": ("HGETALL", "{p}:{{{t}}}:session:acme:x"),
    "the secret of cursors": ("GET", "{p}:{{{t}}}:secret"),
    "other applications' keys": ("GET", "theirs"),
    "the whole key space": ("SCAN", "0"),
    "all keys at once": ("KEYS", "*"),
    "everything": ("FLUSHALL",),
    "this database": ("FLUSHDB",),
    "the configuration": ("CONFIG", "SET", "dir", "/tmp"),
    "users": ("ACL", "LIST"),
    "scripts of others": ("SCRIPT", "FLUSH"),
    "functions": ("FUNCTION", "LIST"),
    "commands of others": ("MONITOR",),
    "connections of others": ("CLIENT", "KILL", "TYPE", "normal"),
    "replication": ("REPLICAOF", "NO", "ONE"),
    "modules": ("MODULE", "LIST"),
    "a script over foreign keys": ("EVAL", "return redis.call('GET', KEYS[1])", "1", "theirs"),
    "a script over undeclared keys": ("EVAL", "return redis.call('GET', 'theirs')", "0"),
}


def user(server: RedisServer, name: str) -> Redis:
    return Redis(port=server.port, username=name, password=f"{name.upper()}-PASSWORD")


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_worker_does_not_get_at(
    own_redis: RedisServer, guarded: Callable[[str], str], prefix: str, name: str
) -> None:
    words = [str(word).format(p=prefix, t=Keys(prefix).tags[0]) for word in FORBIDDEN[name]]
    with user(own_redis, "worker") as client:
        untyped: Any = client
        with pytest.raises(ResponseError, match=r"permission|NOPERM|No permissions"):
            untyped.execute_command(*words)


async def test_even_a_broker_does_not_leave_its_prefix(
    own_redis: RedisServer, guarded: Callable[[str], str], prefix: str
) -> None:
    with user(own_redis, "broker") as raw:
        untyped: Any = raw
        for line in ("GET theirs", "FLUSHALL", "CONFIG GET *", "KEYS *", "ACL LIST"):
            with pytest.raises(ResponseError):
                untyped.execute_command(*line.split())
    client = commands(Connect(guarded("broker"), Keys(prefix)))
    assert (await Control(client, Keys(prefix)).create("test", "acme")).id == TenantId("acme")
    await client.aclose()
