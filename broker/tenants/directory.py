"""This replica's view of tenants and API keys: what a request asks of them, at most a second old.

A record that was revoked is dropped when its entry comes or the control count has risen (streams/guard.py);
the age is the bound if both are missed. While Redis is away a known record goes on being believed, however
old: nothing can be revoked then, and whatever such a caller could read or change needs Redis itself; but
discovery and open streams go on (promise 10). What is unknown is not remembered: a new key works at once.
"""

import asyncio
from collections import OrderedDict
from typing import Generic, TypeVar

from broker.core.errors import StoreUnavailable
from broker.core.identity import TenantId
from broker.core.tenancy import KeyRecord, Tenant
from broker.store.control import Control

MAX_AGE = 1.0
"""Seconds after which a record is asked for again."""
KEPT = 10_000
"""Records of each kind that are remembered."""

R = TypeVar("R", Tenant, KeyRecord)


class _Remembered(Generic[R]):
    """Records by name, with the loop time at which each was read; the longest unused is forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[R, float]] = OrderedDict()

    def get(self, name: str, now: float) -> R | None:
        """Return a record that is young enough."""
        found = self._known.get(name)
        if found is None or now - found[1] > MAX_AGE:
            return None
        self._known.move_to_end(name)
        return found[0]

    def last(self, name: str) -> R | None:
        """Return a record of any age."""
        found = self._known.get(name)
        return None if found is None else found[0]

    def put(self, name: str, record: R | None, now: float) -> None:
        if record is None:
            self._known.pop(name, None)
            return
        self._known[name] = (record, now)
        self._known.move_to_end(name)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def drop(self, name: str) -> None:
        self._known.pop(name, None)

    def records(self) -> list[tuple[str, R]]:
        """Return every record that is remembered."""
        return [(name, record) for name, (record, _) in self._known.items()]

    def age(self) -> None:
        """Let every record be asked for again, and keep it for when Redis is away."""
        for name, (record, _) in self._known.items():
            self._known[name] = (record, float("-inf"))


class Directory:
    """Tenants and keys, remembered for a moment."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._tenants: _Remembered[Tenant] = _Remembered()
        self._keys: _Remembered[KeyRecord] = _Remembered()

    async def tenant(self, tenant: TenantId) -> Tenant | None:
        """Return a tenant.

        Raises:
            StoreUnavailable: Redis is away, and we never met it.
        """
        now = asyncio.get_running_loop().time()
        found = self._tenants.get(tenant, now)
        if found is not None:
            return found
        try:
            found = await self._control.tenant(tenant)
        except StoreUnavailable:
            found = self._tenants.last(tenant)
            if found is None:
                raise
            return found
        self._tenants.put(tenant, found, now)
        return found

    async def key(self, digest: str) -> KeyRecord | None:
        """Return an API key's record.

        Raises:
            StoreUnavailable: Redis is away, and we never met it.
        """
        now = asyncio.get_running_loop().time()
        found = self._keys.get(digest, now)
        if found is not None:
            return found
        try:
            found = await self._control.credential(digest)
        except StoreUnavailable:
            found = self._keys.last(digest)
            if found is None:
                raise
            return found
        self._keys.put(digest, found, now)
        return found

    async def count(self) -> int:
        """Return how often anything was changed.

        Raises:
            StoreUnavailable, WrongStore: from the store.
        """
        return await self._control.count()

    def drop(self, tenant: TenantId) -> None:
        """Forget a tenant and its keys: something of them changed."""
        self._tenants.drop(tenant)
        for digest, record in self._keys.records():
            if record.tenant == tenant:
                self._keys.drop(digest)

    def age(self) -> None:
        """Ask for everything again when it is next needed."""
        self._tenants.age()
        self._keys.age()
