"""Tends watched URIs: tells a worker's functions that somebody watches, as long as somebody does.

Rules:

1. Each URI is tended by one process of the group, by a lease that it renews; when it dies, another takes
   over. So `on_watched` is called at least once, and by nobody for ever.
2. A function that is still running when its URI is let go is cancelled: it may simply poll in a loop.
3. The processes of a group share what is watched about evenly.
4. No function holds up the leases: one that hangs when its URI is let go hangs beside the loop, for
   `PARTING_SECONDS`, and the URI's next watcher is told after that.
"""

import asyncio
import logging
import math
import random
from collections.abc import Sequence

from broker.core.errors import BrokerError
from broker.core.identity import TenantId
from broker.store.demand import DemandStore
from workers.ending import end
from workers.served import Served

_log = logging.getLogger(__name__)

LEASE_MS = 6000
LOOK_SECONDS = 1.5
PARTING_SECONDS = 10.0
"""How long `on_unwatched` may take."""
HURRY_SECONDS = 0.2
"""How soon is looked again when something was left for the others to take."""


class Tending:
    """What one worker process tends for some tenants. `linger` in seconds."""

    def __init__(
        self, worker: Served, tenants: Sequence[TenantId], store: DemandStore, linger: float
    ) -> None:
        self._worker = worker
        self._tenants = tenants
        self._store = store
        self._linger_ms = int(linger * 1000)
        self._look_seconds = min(LOOK_SECONDS, linger / 3)
        self._tended: dict[tuple[TenantId, str], asyncio.Task[None]] = {}
        self._parting: dict[tuple[TenantId, str], asyncio.Task[None]] = {}
        """What is being let go."""
        self._wake = asyncio.Event()
        self.others = 0
        """How many other processes of the group live."""

    def __repr__(self) -> str:
        return f"<Tending {len(self._tended)}>"

    def wake(self) -> None:
        """Look at once: something is watched anew, or was let go."""
        self._wake.set()

    async def run(self) -> None:
        """Tend for ever."""
        seconds = 0.0
        while True:
            try:
                async with asyncio.timeout(seconds * random.uniform(0.8, 1.2)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            seconds = self._look_seconds
            if not self._tended and not any(one.wants_demand for one in self._worker.declarations()):
                continue
            try:
                for tenant in self._tenants:
                    if await self._look(tenant):
                        seconds = HURRY_SECONDS
            except BrokerError as error:
                # What we tend we keep: nobody else can take it either.
                _log.debug("demand_unknown", extra={"error": str(error)})

    async def leave(self) -> None:
        """Let go of everything, for the other processes to take. `run` must have ended."""
        held, self._tended = self._tended, {}
        for (tenant, uri), task in held.items():
            self._let_go(tenant, uri, task)
        if self._parting:
            await asyncio.wait([*self._parting.values()])
        for tenant in self._tenants:
            uris = [uri for owner, uri in held if owner == tenant]
            await self._store.release(tenant, uris)

    async def _look(self, tenant: TenantId) -> bool:
        """Renew, take and let go; return whether something was left to others."""
        watched = await self._store.watched(tenant, self._linger_ms)
        free = [uri for uri, holder in watched if holder is None and (tenant, uri) not in self._tended]
        random.shuffle(free)
        share = free[: math.ceil(len(free) / (self.others + 1))]
        wanted = [*(uri for owner, uri in self._tended if owner == tenant), *share]
        answers = await self._store.tend(tenant, wanted, lease_ms=LEASE_MS, linger_ms=self._linger_ms)
        for uri, answer in zip(wanted, answers, strict=True):
            task = self._tended.get((tenant, uri))
            if task is None and answer == "new":
                before = self._parting.get((tenant, uri))
                self._tended[tenant, uri] = asyncio.create_task(self._tend(tenant, uri, before))
            elif task is not None and answer in ("over", "none"):
                # None: our lease had run out, and another has it or nobody watches.
                del self._tended[tenant, uri]
                self._let_go(tenant, uri, task)
        return len(share) < len(free)

    async def _tend(self, tenant: TenantId, uri: str, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            # Told to go and to come in this order.
            await asyncio.wait({before})
        declared = self._worker.route(uri)
        if declared is not None:
            await self._worker.watched(declared, uri, tenant)

    def _let_go(self, tenant: TenantId, uri: str, task: "asyncio.Task[None]") -> None:
        key = (tenant, uri)
        parting = asyncio.create_task(self._part(tenant, uri, task, self._parting.get(key)))
        self._parting[key] = parting
        parting.add_done_callback(lambda done: self._parted(key, done))

    async def _part(
        self,
        tenant: TenantId,
        uri: str,
        task: "asyncio.Task[None]",
        before: "asyncio.Task[None] | None",
    ) -> None:
        await end({task})
        if before is not None:
            await asyncio.wait({before})
        declared = self._worker.route(uri)
        if declared is None:
            return
        try:
            async with asyncio.timeout(PARTING_SECONDS):
                await self._worker.unwatched(declared, uri, tenant)
        except TimeoutError:
            _log.error("unwatched_hangs", extra={"uri": uri, "seconds": PARTING_SECONDS})

    def _parted(self, key: tuple[TenantId, str], done: "asyncio.Task[None]") -> None:
        if self._parting.get(key) is done:
            del self._parting[key]
        if not done.cancelled() and done.exception() is not None:
            _log.error("demand_not_let_go", exc_info=done.exception(), extra={"uri": key[1]})
