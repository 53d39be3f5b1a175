"""Quotas in Redis: limits where the scripts read them."""

from typing import TYPE_CHECKING, Any

from broker.core.identity import TenantId
from broker.core.tenancy import Limits
from broker.store.keys import Keys
from broker.store.scripts import Call, run, script

if TYPE_CHECKING:
    from redis.asyncio import Redis

IN_SCRIPTS = ("resources", "content_bytes", "resource_bytes", "publishes", "publish_bytes")
"""Limits that the publishing scripts check; the names are the fields of the tenant's hash."""


def in_scripts(defaults: Limits) -> str:
    """Return the installation's limits as the publishing scripts take them."""
    given = defaults.given()
    return ",".join(str(given.get(name, 0)) for name in IN_SCRIPTS)


async def set_limits(redis: "Redis", keys: Keys, tenant: TenantId, limits: Limits) -> None:
    """Let the publishing scripts see a tenant's own limits.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    given = limits.given()
    args: list[str | bytes | int] = []
    for name in IN_SCRIPTS:
        args += [name, given.get(name, "")]
    call: Call[Any] = Call(script("set_limits"), (keys.quota(tenant),), args, lambda reply: reply)
    await run(redis, call)
