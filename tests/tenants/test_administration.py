"""Acts of administration: in the store, from the shell, and what a deletion leaves."""

import asyncio
import inspect
import json
import os
import subprocess
import sys

import pytest
from redis.asyncio import Redis

from broker.core.errors import BadRequest, Conflict, TenantNotFound
from broker.core.identity import ReplicaId, ResourceKey, SessionId, TenantId
from broker.core.tenancy import Limits
from broker.store.control import Control
from broker.store.erasure import erase
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer, keys_of
from tests.tenants.yard import Caller, Yard

ODD = ("a", "a:b", "a*", "a{b}", "A", "a?", "[a]", "sweeper", "ä" * 32)
"""Names that would collide if they were joined, or act as patterns."""
NO_KEYS = {"shard", "log_number", "pattern_of", "tenant_of"}


def broker(server: RedisServer, prefix: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("BROKER_")}
    env |= {"BROKER_REDIS_URL": server.url, "BROKER_PREFIX": prefix}
    return subprocess.run(
        [sys.executable, "-m", "broker", *words], env=env, capture_output=True, text=True, check=False
    )


def test_every_key_of_a_tenant_is_told_from_every_other(prefix: str) -> None:
    """A method of the builder that is added later is covered here by its signature."""
    keys = Keys(prefix)
    for name in ODD:
        tenant = TenantId(name)
        given = {"tenant": tenant, "key": ResourceKey(tenant, "docs://x:y"), "session": SessionId("s")}
        for method_name, method in inspect.getmembers(keys, inspect.ismethod):
            if method_name.startswith("_") or method_name in {
                "by_log",
                "shard",
                "log_number",
                "pattern_of",
                "tenant_of",
            }:
                continue
            parameters = inspect.signature(method).parameters
            arguments = [given.get(each, 0 if each == "number" else "sweeper") for each in parameters]
            made = method(*arguments)
            is_a_tenants = bool({"tenant", "key"} & set(parameters))
            assert keys.tenant_of(made) == (tenant if is_a_tenants else None), method_name


async def test_deleting_a_tenant_with_an_odd_name_leaves_every_other_as_it_was(
    redis: Redis, keys: Keys
) -> None:
    for name in ODD:
        for number in range(3):
            await redis.set(keys.token(TenantId(name), f"t{number}"), "x", ex=60)
    left = set(ODD)
    for name in ODD:
        left.discard(name)
        async for progress in erase(redis, keys, TenantId(name)):
            assert progress.removed <= 3
        for other in ODD:
            found = await redis.exists(*(keys.token(TenantId(other), f"t{number}") for number in range(3)))
            assert found == (3 if other in left else 0), (name, other)


async def test_a_deleted_tenant_leaves_no_key_and_its_name_is_free_again(
    redis_server: RedisServer, yard: Yard, acme: str, caller: Caller
) -> None:
    for number in range(30):
        await caller.publish(f"docs://{number}", "x", expiresIn=100)
    async with caller.handshake() as session:
        await session.subscribe("docs://1")
        async with await caller.modern().listen(["docs://1"]) as stream:
            words = ("tenant", "delete", acme, "--yes")
            done = await asyncio.to_thread(broker, redis_server, yard.fleet.prefix, *words)
            assert done.returncode == 0, done.stderr
            assert await stream.end() == "clean"
    with redis_server.client() as client:
        left = [key for key, _ in keys_of(client, yard.fleet.prefix) if yard.keys.tenant_of(key) == acme]
    assert left == []
    assert (await caller.publish("docs://1", "x")).status_code == 401
    assert await yard.control.tenant(TenantId(acme)) is None
    assert (await yard.control.create("test", acme)).is_served


async def test_a_tenant_is_made_once(control: Control) -> None:
    await control.create("test", "acme")
    with pytest.raises(Conflict, match="already"):
        await control.create("test", "acme")


async def test_two_who_make_the_same_tenant_at_once_do_not_both_succeed(control: Control) -> None:
    made = await asyncio.gather(
        *(control.create(f"test {each}", "acme") for each in range(5)), return_exceptions=True
    )
    assert [type(each) for each in made].count(Conflict) == 4


async def test_a_key_needs_a_tenant_a_name_and_a_scope(control: Control) -> None:
    with pytest.raises(TenantNotFound):
        await control.new_key("test", TenantId("nobody"), "ci", ["resources:read"])
    tenant = (await control.create("test", "acme")).id
    for name, scopes in (("", ["a"]), ("a b", ["a"]), ("ci", []), ("ci", ["admin", "resources:read"])):
        with pytest.raises(BadRequest):
            await control.new_key("test", tenant, name, scopes)
    await control.new_key("test", tenant, "ci", ["resources:read"])
    with pytest.raises(Conflict, match="rotate"):
        await control.new_key("test", tenant, "ci", ["resources:read"])


async def test_a_limit_that_is_none_is_refused_before_anything_is_written(control: Control) -> None:
    await control.create("test", "acme", Limits(reads=5))
    before = await control.count()
    with pytest.raises(BadRequest, match="no limit 'raeds'"):
        await control.limit("test", TenantId("acme"), {"raeds": 1})
    with pytest.raises(BadRequest, match="whole number"):
        await control.limit("test", TenantId("acme"), {"reads": -1})
    assert await control.count() == before


async def test_every_act_is_in_the_audit_log_without_a_secret(control: Control) -> None:
    tenant = (await control.create("ann", "acme")).id
    key, _ = await control.new_key("ben", tenant, "ci", ["resources:read"])
    await control.rotate("cat", tenant, "ci", 60)
    await control.limit("dan", tenant, {"reads": 5})
    await control.suspend("eve", tenant)
    acts = await control.audit()
    assert [(act.actor, act.action) for act in reversed(acts)] == [
        ("ann", "tenant.create"),
        ("ben", "key.create"),
        ("cat", "key.rotate"),
        ("dan", "tenant.limit"),
        ("eve", "tenant.suspend"),
    ]
    assert all(act.tenant == "acme" for act in acts)
    assert key.text.split("_")[2] not in repr(acts)


async def test_nothing_stored_holds_the_text_of_a_key(control: Control, redis: Redis, keys: Keys) -> None:
    tenant = (await control.create("test", "acme")).id
    key, record = await control.new_key("test", tenant, "ci", ["resources:read"])
    stored = repr(await redis.hgetall(keys.credentials()))
    assert record.id in stored
    assert key.text.split("_")[2] not in stored


def test_the_shell_makes_a_tenant_a_key_and_ends_both(redis_server: RedisServer, prefix: str) -> None:
    assert broker(redis_server, prefix, "tenant", "create", "acme", "reads=5").returncode == 0
    made = broker(redis_server, prefix, "key", "create", "acme", "ci", "--scope", "resources:publish")
    assert made.returncode == 0
    assert made.stdout.startswith("mrb_")
    assert made.stdout.strip() not in made.stderr
    shown = json.loads(broker(redis_server, prefix, "tenant", "show", "acme").stdout)
    assert (shown["limits"], shown["keys"][0]["name"]) == ({"reads": 5}, "ci")
    assert broker(redis_server, prefix, "key", "rotate", "acme", "ci").stdout.startswith("mrb_")
    assert len(broker(redis_server, prefix, "key", "list", "acme").stdout.splitlines()) == 2
    assert broker(redis_server, prefix, "key", "revoke", "acme", "ci").stdout.count("revoked") == 2
    refused = broker(redis_server, prefix, "tenant", "delete", "acme")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert broker(redis_server, prefix, "tenant", "delete", "acme", "--yes").returncode == 0
    assert broker(redis_server, prefix, "tenant", "list").stdout == ""


def test_the_words_for_replicas_are_no_tenant(prefix: str) -> None:
    keys = Keys(prefix)
    assert keys.tenant_of(keys.inbox(ReplicaId("sweeper"))) is None
