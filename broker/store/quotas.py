"""Quotas in Redis: limits where the scripts read them, and what the fleet holds and spends.

What is held (streams, URIs, calls) is a value of each replica under a lease, never a bare counter: a replica
that dies must not leak it. What is spent (reads) is taken in small lots from one rate for the fleet.
"""

import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from broker.core.identity import Principal, ReplicaId, SessionId, TenantId
from broker.core.tenancy import Limits
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.scripts import Call, run, script
from broker.store.sessions import URIS

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


RECOUNT_MS = 10_000
"""How often what a tenant's sessions watch is counted anew at most."""
LEASE_MS = 60_000
"""How long what a dead replica held is counted."""
LOOKED_AT = 100
"""Sessions that are looked at when there seem to be too many."""


class QuotaStore:
    """What the fleet holds and spends. Methods raise StoreUnavailable and WrongStore as scripts.run."""

    def __init__(self, redis: "Redis", keys: Keys, replica: ReplicaId) -> None:
        self._redis = redis
        self._keys = keys
        self._replica = replica

    async def hold(self, tenant: TenantId, what: str, wanted: int, used: int, limit: int) -> int:
        """Hold up to `wanted` of something for this replica, at least `used`; return how much it is."""
        args = (self._replica, wanted, used, limit, LEASE_MS)
        # Resources are watched by sessions, too, and those are counted in Redis.
        beside = (self._keys.quota(tenant),) if what == URIS else ()
        call: Call[int] = Call(script("hold"), (self._keys.holdings(tenant, what), *beside), args, int)
        return await run(self._redis, call)

    async def take(self, tenant: TenantId, what: str, rate: int, wanted: int) -> tuple[int, float]:
        """Take up to `wanted` of a rate per second; return how much, and when (s) there is more."""
        call: Call[tuple[int, float]] = Call(
            script("take"),
            (self._keys.bucket(tenant, what),),
            (rate, wanted),
            lambda reply: (int(reply[0]), int(reply[1]) / 1000),
        )
        return await run(self._redis, call)

    async def charge(self, tenant: TenantId, what: str, rate: int, amount: int) -> float:
        """Charge a rate per second; return 0, or in how many seconds (s) there is room for more."""
        call: Call[float] = Call(
            script("charge"),
            (self._keys.bucket(tenant, what),),
            (rate, amount),
            lambda reply: int(reply) / 1000,
        )
        return await run(self._redis, call)

    async def open_session(
        self, who: Principal, session: SessionId, idle_ms: int, limit: int, own_limit: int
    ) -> str | None:
        """Count a session before it is opened; return the limit that is reached, None if it was counted."""
        names = self._sessions(who)
        call: Call[int] = Call(script("session_count"), names, (session, idle_ms, limit, own_limit), int)
        over = await run(self._redis, call)
        if over and await self._prune(who, names[over - 1]):
            over = await run(self._redis, call)
        return (None, "sessions", "principal_sessions")[over]

    async def close_session(self, who: Principal, session: SessionId) -> None:
        """Count a session no more."""
        with translated():
            for name in self._sessions(who):
                await cast("Any", self._redis).zrem(name, session)

    async def recount_uris(self, tenant: TenantId) -> bool:
        """Count anew what a tenant's sessions watch; False if that was done a moment ago.

        Sessions that expired were not taken off when they did. What is subscribed meanwhile is counted once
        or twice.
        """
        redis = cast("Any", self._redis)
        with translated():
            lease = self._keys.lease(f"recount:{quote(tenant, safe='')}")
            if not await redis.set(lease, self._replica, nx=True, px=RECOUNT_MS):
                return False
            before = int(await redis.hget(self._keys.quota(tenant), "subs") or 0)
            sessions: list[bytes] = await redis.zrange(self._keys.sessions(tenant), 0, -1)
            found = 0
            for start in range(0, len(sessions), LOOKED_AT):
                pipeline = redis.pipeline(transaction=False)
                for session in sessions[start : start + LOOKED_AT]:
                    pipeline.hlen(self._keys.subscriptions(tenant, SessionId(session.decode())))
                # One field is the list's.
                found += sum(max(0, fields - 1) for fields in await pipeline.execute())
            if found != before:
                await redis.hincrby(self._keys.quota(tenant), "subs", found - before)
        return found < before

    async def _prune(self, who: Principal, name: str) -> int:
        """Remove sessions that have ended by themselves, and say of those that live when they may end."""
        redis = cast("Any", self._redis)
        now = int(time.time() * 1000)
        with translated():
            due: list[bytes] = await redis.zrangebyscore(name, "-inf", now, start=0, num=LOOKED_AT)
            gone = 0
            for session in due:
                left = await redis.pttl(self._keys.session(who.tenant, SessionId(session.decode())))
                if left > 0:
                    await redis.zadd(name, {session: now + left})
                else:
                    gone += await redis.zrem(name, session)
        return gone

    def _sessions(self, who: Principal) -> tuple[str, str]:
        return self._keys.sessions(who.tenant), self._keys.sessions(who.tenant, short(who.subject))


def short(subject: str) -> str:
    """Return a name of fixed length for a subject, whatever is in it."""
    return blake2b(subject.encode(), digest_size=12).hexdigest()
