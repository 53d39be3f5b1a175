"""Removes everything that a tenant has in Redis, in bounded steps.

A tenant's keys are found by walking the whole key space in steps (SCAN), since some of them are in no index
(tokens, sessions that nobody opens any more). On a cluster they are all on one node, and only that is walked;
should they move to another meanwhile, that is walked from its beginning. Rule: the pattern of the walk only
narrows it; what is removed is decided by taking each key apart (`Keys.tenant_of`), so no name can act as a
pattern for another's keys. Begun again it goes on with what is left.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from broker.core.identity import TenantId
from broker.store.client import node_of
from broker.store.errors import translated
from broker.store.keys import Keys

if TYPE_CHECKING:
    from redis.asyncio import Redis

STEP = 500
"""Keys that Redis looks at in one step, about."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: keys that were removed, and steps that were made."""

    removed: int
    steps: int


async def erase(redis: "Redis", keys: Keys, tenant: TenantId) -> AsyncIterator[Progress]:
    """Remove a tenant's keys and yield after each step; twice over, for what came meanwhile.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run; begin again.
    """
    client = cast("Any", redis)
    removed = steps = 0
    walks = 2
    while walks:
        cursor, walks = 0, walks - 1
        node = None
        while True:
            with translated():
                at = await node_of(redis, keys.order(tenant))
                if node is not None and at is not node:
                    # A cursor means nothing to another node.
                    walks += 1
                    break
                node = at
                cursor, found = await cast("Any", node).scan(
                    cursor, match=keys.pattern_of(tenant), count=STEP
                )
                ours = [key for key in found if keys.tenant_of(key.decode()) == tenant]
                if ours:
                    removed += await client.unlink(*ours)
            steps += 1
            yield Progress(removed, steps)
            if int(cursor) == 0:
                break
    async for gone in _erase_members(client, keys, tenant):
        removed, steps = removed + gone, steps + 1
        yield Progress(removed, steps)


async def _erase_members(client: Any, keys: Keys, tenant: TenantId) -> AsyncIterator[int]:
    """Remove a tenant's members from the sorted sets that all tenants share."""
    number = keys.log_number(tenant)
    begin = f"{quote(tenant, safe='')}:".encode()
    for name in (keys.expiry(number), keys.groups(number)):
        cursor = 0
        while True:
            with translated():
                cursor, pairs = await client.zscan(name, cursor, count=STEP)
                ours = [member for member, _ in pairs if member.startswith(begin)]
                if ours:
                    await client.zrem(name, *ours)
            yield len(ours)
            if int(cursor) == 0:
                break
