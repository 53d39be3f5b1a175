"""What a principal can see of its tenant: pages of the list, and single resources."""

import secrets
from dataclasses import dataclass
from typing import Any, cast

from broker.core.access import may_read
from broker.core.errors import InvalidCursor, ResourceNotFound
from broker.core.identity import Principal, ResourceKey, TenantId
from broker.store import resources
from broker.store.client import Client
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.wire.cursor import CursorCodec

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Page:
    """A page of resources/list: JSON objects, and the cursor of the next page if there is one."""

    items: list[bytes]
    next_cursor: str | None


class Catalog:
    """The read side of the broker, for both eras and for HTTP publishers."""

    def __init__(self, redis: Client, keys: Keys, page_size: int) -> None:
        self._redis = redis
        self._keys = keys
        self._page_size = page_size
        self._codec: CursorCodec | None = None

    async def read(self, principal: Principal, uri: str) -> resources.Stored:
        """Return a resource.

        Raises:
            ResourceNotFound: unknown, or not for this principal; the same, at the same cost.
            StoreUnavailable, WrongStore: from the store.
        """
        stored = await resources.read(self._redis, self._keys, ResourceKey(principal.tenant, uri))
        if stored is None or not may_read(principal, stored.scopes):
            raise ResourceNotFound(uri)
        return stored

    async def page(self, principal: Principal, cursor: str | None) -> Page:
        """Return the page that `cursor` names, or the first one.

        Raises:
            InvalidCursor: not one of ours for this tenant.
            StoreUnavailable, WrongStore: from the store.
        """
        tenant = principal.tenant
        after = await self._after(tenant, cursor) if cursor is not None else None
        codec = await self._cursors()
        shown: list[resources.Listed] = []
        while True:
            wanted = self._page_size - len(shown)
            listed, has_more = await resources.page(self._redis, self._keys, tenant, after, wanted)
            shown += [one for one in listed if may_read(principal, one.scopes)]
            if not has_more or len(shown) >= self._page_size:
                break
            after = listed[-1].uri
        # The cursor holds the last URI that was shown: never the name of one that was hidden.
        next_cursor = codec.encode(tenant, shown[-1].uri) if has_more else None
        return Page([one.meta for one in shown], next_cursor)

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
