"""Quotas over a fleet of two replicas: what is refused, how, and what a neighbour notices."""

import asyncio
from typing import Any, cast

import pytest

from broker.core.identity import Principal, ReplicaId, SessionId, TenantId
from broker.store.quotas import QuotaStore
from tests.support.mcp import RpcError
from tests.support.wait import until
from tests.tenants.yard import Caller, Yard

U = "docs://readme"
LIMIT_REACHED = -31429
ACME = TenantId("acme")


async def limit(yard: Yard, tenant: str, **limits: int) -> None:
    """Set the limits of a tenant that no replica has met: one that is known is believed for a second."""
    await yard.control.limit("test", TenantId(tenant), limits)


# -- publishing --------------------------------------------------------------------------------------------


async def test_a_tenant_that_publishes_too_fast_is_told_when_to_try_again(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await yard.control.limit("test", TenantId(acme), {"publishes": 5})
    answers = [await caller.publish(f"docs://{n}", "x") for n in range(12)]
    refused = [one for one in answers if one.status_code == 429]
    assert {one.status_code for one in answers} == {200, 429}
    assert refused[0].json()["error"]["reason"] == "limit"
    assert 1 <= int(refused[0].headers["retry-after"]) <= 2
    touched = await caller.http.post(f"{caller.api}/touch", json={"uri": U})
    assert touched.status_code == 429

    async def is_admitted() -> bool:
        return (await caller.publish(U, "again")).status_code == 200

    await until(is_admitted, "the rate to allow another", 5)


async def test_a_big_publish_is_paid_for_before_the_next(yard: Yard, acme: str, caller: Caller) -> None:
    await yard.control.limit("test", TenantId(acme), {"publish_bytes": 1000})
    assert (await caller.publish(U, "x" * 3000)).status_code == 200
    assert (await caller.publish(U, "y" * 3000)).status_code == 429


async def test_a_resource_too_many_and_bytes_too_many_are_refused_and_removing_makes_room(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await yard.control.limit(
        "test", TenantId(acme), {"resources": 2, "content_bytes": 1000, "resource_bytes": 700}
    )
    assert (await caller.publish("docs://1", "x")).status_code == 200
    assert (await caller.publish("docs://2", "x" * 600)).status_code == 200
    too_many = await caller.publish("docs://3", "x")
    assert (too_many.status_code, "2 resources" in too_many.text) == (429, True)
    too_big = await caller.publish("docs://1", "x" * 701)
    assert (too_big.status_code, "700 bytes" in too_big.text) == (429, True)
    too_full = await caller.publish("docs://1", "x" * 600)
    assert (too_full.status_code, "1000 bytes" in too_full.text) == (429, True)
    await caller.http.delete(f"{caller.api}/resources", params={"uri": "docs://2"})
    assert (await caller.publish("docs://1", "x" * 600)).status_code == 200
    assert (await caller.publish("docs://3", "x")).status_code == 200


async def test_the_bytes_of_a_tenant_are_what_is_stored(yard: Yard, acme: str, caller: Caller) -> None:
    redis: Any = yard.redis
    quota = yard.keys.quota(TenantId(acme))

    async def used() -> int:
        return int(await redis.hget(quota, "used") or 0)

    await caller.publish("docs://1", "x" * 100)
    one = await used()
    await caller.publish("docs://1", "x" * 150)
    assert await used() == one + 50
    await caller.publish("docs://1", "x" * 150, title="another")
    assert await used() == one + 50
    await caller.publish("docs://2", "x" * 100)
    await caller.http.delete(f"{caller.api}/resources", params={"uri": "docs://1"})
    assert await used() == one
    await caller.publish("docs://2", "x", expiresIn=0.3)

    async def is_nothing_left() -> bool:
        return await used() == 0

    await until(is_nothing_left, "the expired resource to be counted no more", 5)


# -- streams -----------------------------------------------------------------------------------------------


async def test_a_callers_fifth_stream_is_refused_wherever_it_comes_and_closing_one_makes_room(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await limit(yard, acme, principal_streams=4)
    far = yard.caller(caller.token, 1)
    streams = [await each.modern().listen([U]) for each in (caller, far, caller, far)]
    for each in (caller, far):
        with pytest.raises(RpcError) as refused:
            await each.modern().listen([U])
        assert (refused.value.status, refused.value.code) == (429, LIMIT_REACHED)
    another = yard.caller(await yard.key(acme, "another"))
    await (await another.modern().listen([U])).close()
    await streams[0].close()

    async def is_admitted() -> bool:
        try:
            await (await far.modern().listen([U])).close()
        except RpcError:
            return False
        return True

    await until(is_admitted, "a place to be free", 5)
    for stream in streams[1:]:
        await stream.close()


async def test_too_many_uris_in_one_listen_and_in_all_are_refused_before_the_acknowledgement(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await limit(yard, acme, stream_uris=5, uris=8)
    with pytest.raises(RpcError, match="5 resources on one stream"):
        await caller.modern().listen([f"docs://{n}" for n in range(6)])
    first = await caller.modern().listen([f"docs://{n}" for n in range(5)])
    with pytest.raises(RpcError, match="watches 8"):
        await caller.modern().listen([f"docs://{n}" for n in range(4)])
    await (await caller.modern().listen(["docs://1"])).close()
    await first.close()


async def test_a_get_stream_too_many_is_429_and_the_session_goes_on(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await limit(yard, acme, streams=1)
    await caller.publish(U, "x")
    async with caller.handshake() as session:
        stream = await session.get_stream()
        async with yard.caller(await yard.key(acme, "b")).handshake() as other:
            with pytest.raises(RpcError) as refused:
                await other.get_stream()
            assert refused.value.status == 429
            assert (await other.read(U))[0]["text"] == "x"
        await stream.close()


async def test_what_a_dead_replica_held_is_free_after_its_lease(yard: Yard) -> None:
    dead, live = (QuotaStore(yard.redis, yard.keys, ReplicaId(name)) for name in ("dead", "live"))
    assert await dead.hold(ACME, "streams", 10, 0, 10) == 10
    assert await live.hold(ACME, "streams", 1, 0, 10) == 0
    # As if its last renewal had been a minute ago.
    await cast("Any", yard.redis).hset(yard.keys.holdings(ACME, "streams"), "dead", "10:1")
    assert await live.hold(ACME, "streams", 1, 0, 10) == 1
    await live.hold(ACME, "streams", 0, 0, 10)


async def test_many_at_once_never_get_more_than_there_is(yard: Yard) -> None:
    stores = [QuotaStore(yard.redis, yard.keys, ReplicaId(f"r{n}")) for n in range(5)]
    held = await asyncio.gather(*(store.hold(ACME, "many", 4, 0, 10) for store in stores))
    assert sum(held) == 10
    for store in stores:
        await store.hold(ACME, "many", 0, 0, 10)


# -- sessions ----------------------------------------------------------------------------------------------


async def test_a_session_too_many_is_refused_and_an_ended_one_makes_room(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await limit(yard, acme, principal_sessions=2)
    one, two = caller.handshake(), yard.caller(caller.token, 1).handshake()
    await one.initialize()
    await two.initialize()
    with pytest.raises(RpcError) as refused:
        await caller.handshake().initialize()
    assert (refused.value.status, refused.value.code) == (429, LIMIT_REACHED)
    assert (await one.http.delete(one.url, headers=one.headers())).status_code == 204
    await caller.handshake().initialize()


async def test_sessions_that_ended_by_themselves_do_not_count_for_ever(yard: Yard) -> None:
    store = QuotaStore(yard.redis, yard.keys, ReplicaId("r"))
    who = Principal(ACME, "key:ann")
    for number in range(3):
        assert await store.open_session(who, SessionId(f"s{number}"), 1, 3, 0) is None
    # Of the three, whose time is over, one lives on by its own record.
    await cast("Any", yard.redis).set(yard.keys.session(ACME, SessionId("s1")), "x", px=60_000)

    async def is_counted() -> bool:
        return await store.open_session(who, SessionId("s4"), 60_000, 3, 0) is None

    await until(is_counted, "room for a session", 2)
    assert await store.open_session(who, SessionId("s5"), 60_000, 2, 0) == "sessions"
    await cast("Any", yard.redis).delete(yard.keys.session(ACME, SessionId("s1")))


# -- reads -------------------------------------------------------------------------------------------------


async def test_reads_too_many_are_refused_in_the_eras_form_over_both_replicas(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await limit(yard, acme, reads=20)
    await caller.publish(U, "x")
    far = yard.caller(caller.token, 1)

    async def reads(each: Caller, count: int) -> int:
        client, refusals = each.modern(), list[RpcError]()
        for _ in range(count):
            try:
                await client.read(U)
            except RpcError as refused:
                refusals.append(refused)
        assert {(one.status, one.code) for one in refusals} <= {(200, LIMIT_REACHED)}
        assert all(one.data["retryAfterMs"] > 0 for one in refusals)
        return count - len(refusals)

    loop = asyncio.get_running_loop()
    began = loop.time()
    done = sum(await asyncio.gather(reads(caller, 60), reads(far, 60)))
    # A second's worth at once, and what comes in meanwhile.
    assert 15 <= done <= 20 * (loop.time() - began + 1) + 2
    async with far.handshake() as session:
        refused = await asyncio.gather(*(session.read(U) for _ in range(60)), return_exceptions=True)
        errors = [one for one in refused if isinstance(one, RpcError)]
        assert {(one.status, one.code) for one in errors} == {(200, LIMIT_REACHED)}


async def test_a_noisy_tenant_takes_nothing_from_its_neighbour(yard: Yard, acme: str, caller: Caller) -> None:
    await limit(yard, acme, reads=5, publishes=5, streams=2)
    quiet = yard.caller(await yard.key(await yard.tenant(f"{acme}-quiet")))
    for number in range(30):
        await caller.publish(U, f"{number}")
        assert (await quiet.publish(U, f"{number}")).status_code == 200
        assert (await quiet.modern().read(U))[0]["text"] == f"{number}"
