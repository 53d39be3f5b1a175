"""What a principal can see of its tenant: pages of its lists, single resources, completions.

Published or answered by a worker: that makes no difference to who asks. Both are listed in the order of their
URIs, so pages are stable whatever else comes and goes.
"""

import secrets
from bisect import bisect_right
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from broker.callbacks.asking import Callbacks, Reading
from broker.core.access import may_read
from broker.core.declaration import Values
from broker.core.errors import InvalidCursor, ResourceNotFound
from broker.core.identity import Principal, ResourceKey, TenantId
from broker.gathering import Gathering
from broker.store import resources
from broker.store.client import Client
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.telemetry.metrics import Metrics
from broker.telemetry.tracing import Tracing
from broker.tenants.quotas import Quotas
from broker.wire.cursor import CursorCodec
from broker.wire.operations import Complete

SECRET_BYTES = 32

T = TypeVar("T")


class Attend(Protocol):
    """How a worker's answer is waited for: only as long as somebody is there to have it."""

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """A page of resources/list: JSON objects, and the cursor of the next page if there is one."""

    items: list[bytes]
    next_cursor: str | None


class Catalog:
    """The read side of the broker, for both eras and for HTTP publishers."""

    def __init__(
        self,
        redis: Client,
        keys: Keys,
        page_size: int,
        callbacks: Callbacks,
        *,
        metrics: Metrics,
        quotas: Quotas,
        traces: Tracing,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._page_size = page_size
        self._callbacks = callbacks
        self._looks: Gathering[ResourceKey, resources.Found] = Gathering(
            self._look, lambda key: keys.log_number(key.tenant)
        )
        self._metrics = metrics
        self._quotas = quotas
        self._traces = traces
        self._codec: CursorCodec | None = None

    async def read(self, principal: Principal, uri: str, attend: Attend) -> Reading:
        """Return a resource.

        Raises:
            ResourceNotFound: unknown, or not for this principal; the same, at the same cost.
            BadRequest, WorkerFailed, WorkerUnavailable, WorkerLate, LimitReached: as Callbacks.read.
            StoreUnavailable, WrongStore: from the store.
        """
        await self._quotas.read(principal)
        found = await self._looks.ask(ResourceKey(principal.tenant, uri))
        stored = found.stored
        if stored is not None and may_read(principal, stored.scopes):
            self._metrics.resource_read("stored")
            self._traces.shows(str(stored.stamp.revision))
            # What not everybody may read is nothing for a cache that everybody shares.
            is_public = stored.cache_scope == "public" and not stored.scopes
            scope = "public" if is_public else "private"
            return Reading(stored.contents, stored.stamp, stored.ttl_ms or 0, scope)
        callback = await self._callbacks.find(principal, uri, found)
        if callback is None:
            self._metrics.resource_read("absent")
            raise ResourceNotFound(uri)
        self._metrics.resource_read("callback")
        return await attend(self._callbacks.read(principal, uri, callback, found.stamp))

    async def _look(self, named: Sequence[ResourceKey]) -> list[resources.Found | Exception]:
        return await resources.look(self._redis, self._keys, named)

    async def complete(self, principal: Principal, asked: Complete, attend: Attend) -> Values:
        """Return completions; none for prompts, and for what the principal cannot see.

        Raises:
            WorkerFailed, WorkerUnavailable, WorkerLate, LimitReached: as Callbacks.complete.
            StoreUnavailable, WrongStore: from the store.
        """
        await self._quotas.read(principal)
        if asked.ref_type != "ref/resource":
            return Values(())
        return await attend(
            self._callbacks.complete(principal, asked.ref, asked.argument, asked.value, dict(asked.arguments))
        )

    async def templates(self, principal: Principal, cursor: str | None) -> Page:
        """Return the page of resources/templates/list that `cursor` names, or the first one.

        Raises:
            InvalidCursor: not one of ours for this tenant.
            StoreUnavailable, WrongStore: from the store.
        """
        await self._quotas.read(principal)
        tenant = principal.tenant
        after = await self._after(tenant, cursor) if cursor is not None else None
        every = await self._callbacks.templates(principal)
        start = 0 if after is None else bisect_right(every, after, key=lambda each: each[0])
        shown = every[start : start + self._page_size]
        if start + len(shown) == len(every):
            return Page([meta for _, meta in shown], None)
        codec = await self._cursors()
        return Page([meta for _, meta in shown], codec.encode(tenant, shown[-1][0]))

    async def page(self, principal: Principal, cursor: str | None, attend: Attend) -> Page:
        """Return the page that `cursor` names, or the first one.

        Raises:
            InvalidCursor: not one of ours for this tenant.
            StoreUnavailable, WrongStore: from the store.
        """
        await self._quotas.read(principal)
        tenant = principal.tenant
        first = after = await self._after(tenant, cursor) if cursor is not None else None
        codec = await self._cursors()
        listing = await self._callbacks.listing(principal)
        instances: Mapping[str, bytes] = {}
        if listing:
            instances = await attend(self._callbacks.instances(principal, listing))
        shown: list[resources.Listed] = []
        passed: set[str] = set()
        while True:
            wanted = self._page_size - len(shown)
            listed, has_more = await resources.page(self._redis, self._keys, tenant, after, wanted)
            passed.update(one.uri for one in listed)
            shown += [one for one in listed if may_read(principal, one.scopes)]
            if not has_more or len(shown) >= self._page_size:
                break
            after = listed[-1].uri
        # What is stored under an instance's URI stands for it, hidden or not.
        merged = [(one.uri, one.meta) for one in shown] + [
            each for each in instances.items() if each[0] not in passed and each[0] > (first or "")
        ]
        merged.sort()
        has_more = has_more or len(merged) > self._page_size
        merged = merged[: self._page_size]
        # The cursor holds the last URI that was shown: never the name of one that was hidden.
        next_cursor = codec.encode(tenant, merged[-1][0]) if has_more else None
        return Page([meta for _, meta in merged], next_cursor)

    async def _after(self, tenant: TenantId, cursor: str) -> str:
        try:
            return (await self._cursors()).decode(tenant, cursor)
        except InvalidCursor:
            # Redis may have lost the secret since, and another replica made a new one.
            self._codec = None
            return (await self._cursors()).decode(tenant, cursor)

    async def _cursors(self) -> CursorCodec:
        """Return the codec with the fleet's secret, made by whoever needs it first."""
        if self._codec is None:
            name = self._keys.secret()
            redis = cast("Any", self._redis)
            with translated():
                await redis.set(name, secrets.token_bytes(SECRET_BYTES), nx=True)
                secret = await redis.get(name)
            self._codec = CursorCodec(secret)
        return self._codec
