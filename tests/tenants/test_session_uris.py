"""What the sessions of a tenant watch counts with what its listen streams watch, over the fleet."""

from typing import Any, cast

import pytest

from broker.core.identity import TenantId
from broker.store.quotas import QuotaStore
from tests.support.mcp import Handshake, RpcError
from tests.support.wait import until
from tests.tenants.yard import Caller, Yard

LIMIT_REACHED = -31429


async def counted(yard: Yard, tenant: str) -> int:
    """Return how many resources the sessions of a tenant are said to watch."""
    redis = cast("Any", yard.redis)
    return int(await redis.hget(yard.keys.quota(TenantId(tenant)), "subs") or 0)


async def refused(work: Any) -> RpcError:
    with pytest.raises(RpcError) as refusal:
        await work
    assert refusal.value.code == LIMIT_REACHED
    assert "streams and in its sessions" in refusal.value.message
    return refusal.value


@pytest.fixture
async def far(yard: Yard, caller: Caller) -> Caller:
    return yard.caller(caller.token, 1)


async def test_sessions_and_listens_share_what_a_tenant_may_watch_whatever_replica_they_ask(
    yard: Yard, acme: str, caller: Caller, far: Caller
) -> None:
    """Subscriptions of sessions were not counted at all: a session more was a thousand resources more."""
    await yard.control.limit("test", TenantId(acme), {"uris": 5})
    async with caller.handshake() as here, far.handshake() as there:
        await here.subscribe("a://1")
        await here.subscribe("a://1")
        await there.subscribe("a://1")
        async with await far.modern().listen(["b://1", "b://2"]):
            await here.subscribe("a://2")
            assert (await refused(there.subscribe("a://3"))).status == 200
            assert (await refused(caller.modern().listen(["b://3"]))).status == 429
            await here.unsubscribe("a://2")
            await here.unsubscribe("a://2")
            assert await counted(yard, acme) == 2
            await there.subscribe("a://3")
            await refused(here.subscribe("a://2"))

        async def has_room() -> bool:
            try:
                await here.subscribe("a://2")
            except RpcError:
                return False
            return True

        # What a stream that ended held is given back within a second or two.
        await until(has_room, "room for another", 8)
        assert await counted(yard, acme) == 4
        for session in (here, there):
            assert await session.delete() == 204
    assert await counted(yard, acme) == 0


async def test_sessions_that_ended_by_themselves_are_found_when_the_limit_is_reached(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await yard.control.limit("test", TenantId(acme), {"uris": 3})
    gone: Handshake = caller.handshake()
    await gone.initialize()
    for number in range(3):
        await gone.subscribe(f"a://{number}")
    redis = cast("Any", yard.redis)
    tenant, session = TenantId(acme), cast("Any", gone.session)
    # As its time to live would.
    await redis.delete(yard.keys.session(tenant, session), yard.keys.subscriptions(tenant, session))
    async with caller.handshake() as session:
        await session.subscribe("b://1")
        await session.subscribe("b://2")
        assert await counted(yard, acme) == 2
        store = QuotaStore(yard.redis, yard.keys, cast("Any", "r9"))
        assert not await store.recount_uris(tenant), "it was done a moment ago"
        await session.subscribe("b://3")
        await refused(session.subscribe("b://4"))


async def test_subscribing_is_paid_for_like_a_read(yard: Yard, acme: str, caller: Caller) -> None:
    """Each is an entry of the log that all replicas follow: a storm of them was bounded by nothing."""
    await yard.control.limit("test", TenantId(acme), {"reads": 5})
    async with caller.handshake() as session:
        refusals: list[RpcError] = []
        for number in range(20):
            try:
                await (session.subscribe, session.unsubscribe)[number % 2]("a://1")
            except RpcError as refusal:
                refusals.append(refusal)
        assert {(one.status, one.code) for one in refusals} == {(200, LIMIT_REACHED)}
        assert all(one.data["retryAfterMs"] > 0 for one in refusals)
