"""Credentials while Redis is away (promise 10): who was known goes on, who was not is told to try again."""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.tenants.yard import Yard

U = "docs://readme"


async def test_a_key_that_is_known_goes_on_and_one_that_is_not_is_told_to_try_again(
    own_redis: RedisServer, new_fleet: Callable[..., Fleet]
) -> None:
    fleet = new_fleet(own_redis.url, 1, BROKER_AUTH__MODE="keys")
    redis = commands(Connect(own_redis.url, Keys(fleet.prefix)))
    yard = Yard(fleet, redis)
    tenant = await yard.tenant("acme")
    known, stranger = yard.caller(await yard.key(tenant)), yard.caller(await yard.key(tenant, "stranger"))
    stream = await known.modern().listen([U])
    await asyncio.to_thread(own_redis.kill)

    async def status(caller: Any) -> int:
        message, headers = caller.modern()._request("server/discover", {}, 1)
        return (await caller.http.post(caller.url, json=message, headers=headers)).status_code

    assert await status(known) == 200
    assert await status(stranger) == 503
    await asyncio.to_thread(own_redis.start)

    async def is_back() -> bool:
        return (await known.publish(U, "after")).status_code == 200

    await until(is_back, "publishing again", 15)
    await stream.cue(U)
    assert stream.ended is None
    assert await status(stranger) == 200
    await stream.close()
    await yard.close()
    await redis.aclose()


async def test_a_replica_that_missed_a_revocations_entry_finds_out_by_itself(
    own_redis: RedisServer, new_fleet: Callable[..., Fleet]
) -> None:
    """The control data is changed as by somebody who died before announcing it."""
    fleet = new_fleet(own_redis.url, 1, BROKER_AUTH__MODE="keys")
    redis: Any = commands(Connect(own_redis.url, Keys(fleet.prefix)))
    yard = Yard(fleet, redis)
    tenant = await yard.tenant("acme")
    caller = yard.caller(await yard.key(tenant))
    stream = await caller.modern().listen([U])
    (digest,) = await yard.control.keys(tenant)
    await redis.hdel(yard.keys.credentials(), digest)
    await redis.incr(yard.keys.control())
    assert await stream.end(3) == "clean"
    await yard.close()
    await redis.aclose()
