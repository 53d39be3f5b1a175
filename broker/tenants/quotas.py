"""Who of this replica's callers may have one more: streams and their URIs, calls, reads, sessions.

Rules:

1. Limits are the fleet's. What is held is reserved from Redis in blocks, what is spent is taken in lots, so
   most decisions need no Redis; close to a limit each needs one call, and is exact.
2. A refusal is cheap: while a rate is known to be spent, nobody asks Redis about it.
3. While Redis is away this replica's own count against the whole limit decides: streams go on (promise 10),
   and everything else needs Redis anyway.
4. What was acquired is released exactly once, whatever ended it.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from broker.core.errors import BrokerError, LimitReached, StoreUnavailable
from broker.core.identity import Principal, SessionId, TenantId
from broker.core.tenancy import Limits
from broker.store.errors import quota_reached, rate_reached
from broker.store.quotas import LEASE_MS, QuotaStore, short
from broker.store.sessions import URIS
from broker.streams.connection import Connection
from broker.tenants.directory import Directory

_log = logging.getLogger(__name__)

RENEW_SECONDS = LEASE_MS / 3000
SETTLE_SECONDS = 1.0
"""How often what is reserved and not used is given back."""
BLOCKS = 50
"""A reservation is a fiftieth of the limit at most."""
LOTS = 20
"""What is taken of a rate lasts for a twentieth of a second."""

_Held = tuple[TenantId, str]


class _Holding:
    """How much of something this replica uses and has reserved."""

    __slots__ = ("limit", "renewed", "reserved", "used")

    def __init__(self) -> None:
        self.used = 0
        self.reserved = 0
        self.limit = 0
        self.renewed = 0.0


class _Lot:
    """What this replica has taken of a rate and not spent; `until` and `closed_until` in loop time."""

    __slots__ = ("closed_until", "left", "until")

    def __init__(self) -> None:
        self.left = 0
        self.until = 0.0
        self.closed_until = 0.0


class Quotas:
    """The quotas of one replica's callers; `defaults` are the installation's."""

    def __init__(self, store: QuotaStore, directory: Directory, defaults: Limits, *, is_on: bool) -> None:
        self._store = store
        self._directory = directory
        self._defaults = defaults
        self._is_on = is_on
        self._holdings: dict[_Held, _Holding] = {}
        self._lots: dict[_Held, _Lot] = {}
        self._streams: dict[Connection[Any], list[tuple[_Held, int]]] = {}
        self._dirty: set[_Held] = set()

    def __repr__(self) -> str:
        return f"<Quotas {len(self._holdings)} held, {len(self._lots)} rates, {len(self._streams)} streams>"

    async def limits(self, tenant: TenantId) -> Limits:
        """Return what a tenant may use."""
        record = await self._directory.tenant(tenant)
        return self._defaults if record is None else record.limits.over(self._defaults)

    # -- streams --------------------------------------------------------------------------------------------

    async def open(self, connection: Connection[Any], uris: int) -> None:
        """Count a stream that watches `uris` resources. Undone by `closed`.

        Raises:
            LimitReached: one too many; nothing is counted.
        """
        if not self._is_on:
            return
        who = connection.principal
        limits = await self._limits_or_defaults(who.tenant)
        if limits.stream_uris and uris > limits.stream_uris:
            raise quota_reached("stream_uris", limits.stream_uris)
        try:
            await self._open(connection, limits, uris)
        except LimitReached as error:
            if error.limit != URIS or not await self._store.recount_uris(who.tenant):
                raise
            await self._open(connection, limits, uris)

    async def _open(self, connection: Connection[Any], limits: Limits, uris: int) -> None:
        who = connection.principal
        acquired = self._streams.setdefault(connection, [])
        own = f"streams:{short(who.subject)}"
        try:
            for name, what, amount, limit in (
                ("streams", "streams", 1, limits.streams),
                ("principal_streams", own, 1, limits.principal_streams),
                ("uris", "uris", uris, limits.uris),
            ):
                await self._acquire(name, (who.tenant, what), amount, limit or 0)
                acquired.append(((who.tenant, what), amount))
        except BaseException:
            self.closed(connection)
            raise

    def closed(self, connection: Connection[Any]) -> None:
        """Count a stream no more. Twice is once."""
        for held, amount in self._streams.pop(connection, ()):
            self._release(held, amount)

    async def subscribe(
        self, who: Principal, most: int, work: Callable[[int, int], Awaitable[object]]
    ) -> None:
        """Do `work`, which subscribes in a session, with the most URIs of a session and of its tenant in all.

        Raises:
            LimitReached: too many, of one or the other, or too fast.
        """
        if not self._is_on:
            await work(most, 0)
            return
        # It is an entry of the log that every replica follows.
        await self.read(who)
        limits = await self._limits_or_defaults(who.tenant)
        most = min(most, limits.stream_uris) if limits.stream_uris else most
        try:
            await work(most, limits.uris or 0)
        except LimitReached as error:
            if error.limit != URIS or not await self._store.recount_uris(who.tenant):
                raise
            await work(most, limits.uris or 0)

    # -- calls ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def call(self, tenant: TenantId) -> AsyncGenerator[None]:
        """Count a call to a worker while it is under way.

        Raises:
            LimitReached: one too many.
        """
        if not self._is_on:
            yield
            return
        held = (tenant, "calls")
        await self._acquire("calls", held, 1, (await self._limits_or_defaults(tenant)).calls or 0)
        try:
            yield
        finally:
            self._release(held, 1)

    # -- rates ----------------------------------------------------------------------------------------------

    async def read(self, who: Principal) -> None:
        """Spend one read (or list, or completion).

        Raises:
            LimitReached: the tenant or the caller reads more than it may.
        """
        if not self._is_on:
            return
        limits = await self._limits_or_defaults(who.tenant)
        await self._spend("principal_reads", (who.tenant, short(who.subject)), limits.principal_reads or 0)
        await self._spend("reads", (who.tenant, "reads"), limits.reads or 0)

    async def _spend(self, name: str, held: _Held, rate: int) -> None:
        if rate == 0:
            return
        now = asyncio.get_running_loop().time()
        lot = self._lots.get(held)
        if lot is None:
            lot = self._lots[held] = _Lot()
        if lot.left > 0 and now < lot.until:
            lot.left -= 1
            return
        if now < lot.closed_until:
            raise rate_reached(name, jittered(lot.closed_until - now))
        wanted = max(1, rate // LOTS)
        taken, wait = await self._store.take(*held, rate, wanted)
        now = asyncio.get_running_loop().time()
        if taken == 0:
            lot.closed_until = now + wait
            raise rate_reached(name, jittered(wait))
        lot.left = taken - 1
        # Not for ever: what is hoarded here is missing elsewhere.
        lot.until = now + 1.0

    # -- sessions -------------------------------------------------------------------------------------------

    async def open_session(self, who: Principal, session: SessionId, idle_ms: int) -> None:
        """Count a session before it is opened. Undone by `close_session`.

        Raises:
            LimitReached: the tenant or the caller has too many.
            StoreUnavailable, WrongStore: from the store.
        """
        if not self._is_on:
            return
        limits = await self._limits_or_defaults(who.tenant)
        most, own = limits.sessions or 0, limits.principal_sessions or 0
        # For its URIs, too: they are found by their sessions.
        if not (most or own or limits.uris):
            return
        over = await self._store.open_session(who, session, idle_ms, most, own)
        if over is not None:
            raise quota_reached(over, most if over == "sessions" else own)

    async def close_session(self, who: Principal, session: SessionId) -> None:
        """Count a session no more; should that fail, its end is found when there are too many."""
        if self._is_on:
            try:
                await self._store.close_session(who, session)
            except BrokerError as error:
                _log.debug("session_not_uncounted", extra={"error": str(error)})

    # -- what is held ---------------------------------------------------------------------------------------

    async def _limits_or_defaults(self, tenant: TenantId) -> Limits:
        try:
            return await self.limits(tenant)
        except StoreUnavailable:
            return self._defaults

    async def _acquire(self, name: str, held: _Held, amount: int, limit: int) -> None:
        """Use `amount` more. Every path through here either counts it or raises."""
        if amount == 0:
            return
        holding = self._holdings.get(held)
        if holding is None:
            holding = self._holdings[held] = _Holding()
        holding.used += amount
        holding.limit = limit
        try:
            if limit and (holding.used > holding.reserved or holding.used > limit):
                block = max(amount, limit // BLOCKS)
                await self._reserve(held, holding, holding.used - amount + block)
                # Others may have acquired or released while we asked; the first to look gets what there is.
                if holding.used > holding.reserved:
                    raise quota_reached(name, limit)
        except BaseException:
            self._release(held, amount)
            raise

    async def _reserve(self, held: _Held, holding: _Holding, wanted: int) -> None:
        confirmed = min(holding.reserved, holding.used)
        try:
            holding.reserved = await self._store.hold(*held, wanted, confirmed, holding.limit)
        except StoreUnavailable:
            holding.reserved = holding.limit
        holding.renewed = asyncio.get_running_loop().time()

    def _release(self, held: _Held, amount: int) -> None:
        holding = self._holdings.get(held)
        if holding is not None:
            holding.used -= amount
            self._dirty.add(held)

    async def run(self) -> None:
        """Give back what is not used, and renew what is, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SETTLE_SECONDS * random.uniform(0.8, 1.0))
            dirty, self._dirty = self._dirty, set()
            due = loop.time() - RENEW_SECONDS
            old = {held for held, one in self._holdings.items() if one.reserved and one.renewed <= due}
            for held in dirty | old:
                try:
                    await self._settle(held)
                except BrokerError:
                    self._dirty.add(held)
                except Exception:  # a bug here must not end the replica
                    _log.exception("quota_not_settled")
            self._forget_lots(loop.time())

    async def _settle(self, held: _Held) -> None:
        holding = self._holdings.get(held)
        if holding is None:
            return
        wanted = holding.used
        if holding.limit:
            holding.reserved = await self._store.hold(*held, wanted, wanted, holding.limit)
            holding.renewed = asyncio.get_running_loop().time()
        if holding.used == 0 and holding.reserved == 0 and self._holdings.get(held) is holding:
            del self._holdings[held]

    def _forget_lots(self, now: float) -> None:
        old = [held for held, lot in self._lots.items() if lot.until < now and lot.closed_until < now]
        for held in old:
            del self._lots[held]


def jittered(seconds: float) -> float:
    """Return a time to wait that not everybody waits alike; at least a tenth of a second."""
    return max(0.1, seconds) * random.uniform(1.0, 1.5)
