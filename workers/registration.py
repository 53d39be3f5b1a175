"""Keeps what a worker declares registered, and withdraws what it no longer declares.

Each process of a group registers everything, and repeats it: the same again is no change, what Redis lost
comes back, and what nobody repeats is swept by the brokers. Rules:

1. A URI that another living group has is a Conflict: the first time it ends the start; later it is logged,
   and the rest is served.
2. What this process withdraws at run time is gone at once, for the whole group: the repetitions of those that
   declared it before are refused. A process that starts later, or an explicit `enable`, brings it back.
"""

import asyncio
import logging
from collections.abc import Sequence

from broker.core.declaration import Declaration
from broker.core.errors import BrokerError
from broker.core.identity import TenantId
from broker.store import registry
from broker.store.batch import run_batch
from broker.store.client import Client
from broker.store.keys import Keys
from broker.store.registry import Registration
from broker.store.scripts import Call
from workers.served import Served

_log = logging.getLogger(__name__)

BATCH = 64

_Name = tuple[TenantId, bool, str]
"""A declaration for a tenant: whether it goes among the templates, and its text."""

_Item = tuple[TenantId, Declaration, bool]
"""A declaration for a tenant, and whether it goes among the templates."""


class Registrar:
    """The registrations of one worker process for tenants of one log."""

    def __init__(
        self, redis: Client, keys: Keys, worker: Served, tenants: Sequence[TenantId], repeat: float
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._group = worker.name
        self._tenants = tenants
        self._declarations = worker.declarations
        self._renewals = worker.renewals
        self._repeat = repeat
        self._registered: set[_Name] = set()
        self._said: dict[_Name, tuple[int, int]] = {}
        """Which renewal of each was said, and when by Redis' clock; what is not here is said anew."""
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Registrar {self._group!a} {len(self._registered)} registered>"

    @property
    def count(self) -> int:
        """How much this process has registered for each tenant."""
        return len(self._registered) // max(1, len(self._tenants))

    def change(self) -> None:
        """Register again soon: something changed. From any thread."""
        self._loop.call_soon_threadsafe(self._changed.set)

    async def start(self) -> None:
        """Register everything.

        Raises:
            Conflict: another living group has one of these URIs.
            StoreUnavailable, WrongStore: from the store.
        """
        for refusal in await self._register():
            raise refusal

    async def run(self) -> None:
        """Repeat the registrations, and bring in changes at once, for ever."""
        while True:
            try:
                async with asyncio.timeout(self._repeat):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                for refusal in await self._register():
                    _log.error("registration_refused", extra={"why": str(refusal)})
                await self._withdraw()
            except BrokerError as error:
                _log.warning("registration_postponed", extra={"error": str(error)})
                await asyncio.sleep(1)
                self._changed.set()

    async def _register(self) -> list[BrokerError]:
        wanted = self._wanted()
        refusals: list[BrokerError] = []
        for start in range(0, len(wanted), BATCH):
            refusals += await self._register_some(wanted[start : start + BATCH], [""] * BATCH)
        return refusals

    async def _register_some(self, items: list[_Item], assumed: list[str]) -> list[BrokerError]:
        # Before it is sent: what is renewed meanwhile is said once more.
        renewals = {item[1].uri: self._renewals(item[1].uri) for item in items}
        calls = [self._call(item, owner) for item, owner in zip(items, assumed, strict=False)]
        answers = await run_batch(self._redis, calls)
        again: list[tuple[_Item, str]] = []
        refusals: list[BrokerError] = []
        for item, answer in zip(items, answers, strict=True):
            tenant, declaration, is_template = item
            name = (tenant, is_template, declaration.uri)
            if isinstance(answer, BrokerError):
                if answer.retryable:
                    raise answer
                refusals.append(answer)
            elif answer.status == "owned":
                again.append((item, answer.group))
            elif answer.status == "conflict":
                refusals.append(registry.conflict(self._group, tenant, declaration, answer.group))
            elif answer.status == "withdrawn":
                if name in self._registered:
                    _log.info("registration_withdrawn", extra={"tenant": tenant, "uri": declaration.uri})
                self._registered.discard(name)
            else:
                self._registered.add(name)
                if self._said_ms(name) is None and answer.said_ms is not None:
                    self._said[name] = renewals[declaration.uri], answer.said_ms
        if again:
            # It changes hands at this moment if it still is another's; the next repetition knows more.
            refusals += await self._register_some([item for item, _ in again], [owner for _, owner in again])
        return refusals

    async def _withdraw(self) -> None:
        wanted = {(tenant, is_template, one.uri) for tenant, one, is_template in self._wanted()}
        for item in self._registered - wanted:
            tenant, is_template, uri = item
            decide = registry.unregister_template if is_template else registry.unregister
            for answer in await run_batch(self._redis, [decide(self._keys, tenant, self._group, uri)]):
                if isinstance(answer, BrokerError):
                    raise answer
            self._registered.discard(item)
            self._said.pop(item, None)

    def _wanted(self) -> list[_Item]:
        wanted: list[_Item] = []
        for declaration in self._declarations():
            for tenant in self._tenants:
                if not declaration.is_template:
                    wanted.append((tenant, declaration, False))
                if declaration.is_template or declaration.wants_demand:
                    wanted.append((tenant, declaration, True))
        return wanted

    def _call(self, item: _Item, assumed: str) -> Call[Registration]:
        tenant, declaration, is_template = item
        decide = registry.register_template if is_template else registry.register
        said_ms = self._said_ms((tenant, is_template, declaration.uri))
        return decide(self._keys, tenant, self._group, declaration, assumed=assumed, said_ms=said_ms)

    def _said_ms(self, name: _Name) -> int | None:
        """Return when this was said; None if it was not, or has been renewed since."""
        renewal, said_ms = self._said.get(name, (None, None))
        return said_ms if renewal == self._renewals(name[2]) else None
