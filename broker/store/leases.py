"""Leases: claims with a holder and a time to live, for what one replica of the fleet does."""

from typing import TYPE_CHECKING

from broker.store.keys import Keys
from broker.store.scripts import Call, run, script

if TYPE_CHECKING:
    from redis.asyncio import Redis


async def lease(redis: "Redis", keys: Keys, name: str, holder: str, ttl_ms: int) -> bool:
    """Take or renew the lease `name` for `holder`; False if somebody else holds it.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    call: Call[bool] = Call(script("lease"), (keys.lease(name),), (holder, ttl_ms), bool)
    return await run(redis, call)
