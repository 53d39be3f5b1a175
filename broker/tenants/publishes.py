"""How fast callers may publish over HTTP: each caller's own rates, and what Redis has said of its tenant's.

Rules:

1. A tenant's rates are charged by the scripts that publish, in one step with the change. While a refusal of
   theirs holds, this replica repeats it without asking: nothing could have been admitted meanwhile.
2. A caller's own rates are charged here, before that, from one bucket for the fleet: changes in lots, so most
   need no Redis. What the script then refuses has been charged.
3. Whoever is admitted last may go into debt by what it brings, so a big publish goes through and is paid for
   before the next one.
"""

import asyncio

from broker.core.errors import LimitReached, StoreUnavailable
from broker.core.identity import Principal, TenantId
from broker.core.tenancy import Limits
from broker.store.errors import rate_reached
from broker.store.quotas import QuotaStore, short
from broker.tenants.directory import Directory
from broker.tenants.quotas import jittered

LOTS = 20
"""What is taken of a rate lasts for a twentieth of a second."""
OF_TENANTS = ("publishes", "publish_bytes")
OF_CALLERS = ("principal_publishes", "principal_publish_bytes")
FORGET_ABOVE = 10_000
"""Rates that are remembered before the old ones are looked for."""

_Rate = tuple[TenantId, str, str]
"""Tenant, short name of the caller or "", name of the limit."""


class Publishes:
    """The rates of one replica's publishers; `defaults` are the installation's limits."""

    def __init__(self, store: QuotaStore, directory: Directory, defaults: Limits, *, is_on: bool) -> None:
        self._store = store
        self._directory = directory
        self._defaults = defaults
        self._is_on = is_on
        self._closed: dict[_Rate, float] = {}
        """Until when (loop time) a rate admits nothing."""
        self._lots: dict[_Rate, tuple[int, float]] = {}
        """What was charged and is not spent, and until when that counts."""

    def __repr__(self) -> str:
        return f"<Publishes {len(self._closed)} closed, {len(self._lots)} lots>"

    @property
    def has_closed(self) -> bool:
        """Whether anybody at all is being refused: if not, there is nothing to check."""
        return bool(self._closed)

    def check(self, who: Principal) -> None:
        """Refuse whom Redis would refuse now, without asking it.

        Raises:
            LimitReached: a rate of the tenant or the caller admits nothing yet.
        """
        now = asyncio.get_running_loop().time()
        for rate in _rates(who):
            until = self._closed.get(rate)
            if until is None:
                continue
            if until > now:
                raise rate_reached(rate[2], jittered(until - now))
            del self._closed[rate]

    def note(self, who: Principal, error: BaseException) -> None:
        """Remember what Redis has refused, if it was for the tenant's rate of changes or bytes."""
        if isinstance(error, LimitReached) and error.limit in OF_TENANTS and error.retry_after is not None:
            self._close((who.tenant, "", error.limit), error.retry_after)

    async def charge(self, who: Principal, changes: int, size: int) -> None:
        """Charge a caller for changes of `size` bytes together.

        Raises:
            LimitReached: it publishes more than it may; nothing is charged of the rate that refused.
            StoreUnavailable, WrongStore: from the store.
        """
        if not self._is_on:
            return
        limits = await self._limits(who.tenant)
        rates = zip(OF_CALLERS, (limits.principal_publishes, limits.principal_publish_bytes), strict=True)
        for (name, limit), amount in zip(rates, (changes, size), strict=True):
            if limit and amount:
                await self._charge((who.tenant, short(who.subject), name), limit, amount)

    async def _charge(self, rate: _Rate, limit: int, amount: int) -> None:
        loop = asyncio.get_running_loop()
        left, until = self._lots.get(rate, (0, 0.0))
        if amount <= left and loop.time() < until:
            self._lots[rate] = (left - amount, until)
            return
        wanted = max(amount, limit // LOTS)
        # Another one's lot may come meanwhile; what both have charged is both's.
        wait = await self._store.charge(rate[0], f"{rate[2]}:{rate[1]}", limit, wanted)
        if wait:
            self._close(rate, wait)
            raise rate_reached(rate[2], jittered(wait))
        now = loop.time()
        left, until = self._lots.get(rate, (0, 0.0))
        kept = left if now < until else 0
        self._lots[rate] = (kept + wanted - amount, now + 1.0)
        self._forget(now)

    def _close(self, rate: _Rate, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self._closed[rate] = now + seconds
        self._forget(now)

    def _forget(self, now: float) -> None:
        if len(self._closed) + len(self._lots) > FORGET_ABOVE:
            self._closed = {rate: until for rate, until in self._closed.items() if until > now}
            self._lots = {rate: lot for rate, lot in self._lots.items() if lot[1] > now}

    async def _limits(self, tenant: TenantId) -> Limits:
        try:
            record = await self._directory.tenant(tenant)
        except StoreUnavailable:
            record = None
        return self._defaults if record is None else record.limits.over(self._defaults)


def _rates(who: Principal) -> list[_Rate]:
    own = short(who.subject)
    return [(who.tenant, "", name) for name in OF_TENANTS] + [(who.tenant, own, name) for name in OF_CALLERS]
