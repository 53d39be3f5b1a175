"""One tenant's resources under test: the calls in short words, and the log as the reader sees it."""

from itertools import pairwise
from typing import Any, cast

from redis.asyncio import Redis

from broker.core.identity import LIST, ResourceKey, TenantId
from broker.core.log import Entry, decode
from broker.core.publication import Description, describe
from broker.core.revision import Stamp
from broker.store import publishing, resources, touching
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from broker.store.resources import Stored
from broker.store.scripts import Call, run

URI = "docs://readme"


class Shelf:
    def __init__(self, redis: Redis, keys: Keys, tenant: str = "acme") -> None:
        self.redis = redis
        self.keys = keys
        self.tenant = TenantId(tenant)
        self.rules = touching.Rules()

    def key(self, uri: str = URI) -> ResourceKey:
        return ResourceKey(self.tenant, uri)

    def publishing(
        self, text: Any, uri: str = URI, about: Description | None = None, **terms: Any
    ) -> Call[Outcome]:
        description = cast("dict[str, Any]", about or {})
        return publishing.publish(self.keys, describe(self.key(uri), text, **description), **terms)

    async def publish(
        self, text: Any, uri: str = URI, about: Description | None = None, **terms: Any
    ) -> Outcome:
        return await run(self.redis, self.publishing(text, uri, about, **terms))

    async def touch(self, uri: str = URI, **terms: Any) -> Outcome:
        return await touching.touch(self.redis, self.rules, self.keys, self.key(uri), **terms)

    async def remove(self, uri: str = URI, **terms: Any) -> Outcome:
        return await run(self.redis, publishing.remove(self.keys, self.key(uri), **terms))

    async def expire(self, uri: str = URI) -> Outcome | None:
        return await run(self.redis, publishing.expire(self.keys, self.key(uri)))

    async def read(self, uri: str = URI) -> Stored | None:
        return await resources.read(self.redis, self.keys, self.key(uri))

    async def text(self, uri: str = URI) -> str | None:
        """Return what a read returns, as JSON text."""
        stored = await self.read(uri)
        return stored.contents.decode() if stored else None

    async def uris(self) -> list[str]:
        listed, has_more = await resources.page(self.redis, self.keys, self.tenant, None, 1000)
        assert not has_more
        return [each.uri for each in listed]

    async def stamp(self, uri: str = URI) -> Stamp | None:
        """Return the revision as a resync reads it, whatever else is stored."""
        e, n, m = await cast("Any", self.redis).hmget(self.keys.resource(self.key(uri)), "e", "n", "m")
        return Stamp(e.decode(), int(n), m.decode()) if n else None

    async def list_stamp(self) -> Stamp | None:
        return await self.stamp(LIST)

    async def entries(self) -> list[Entry]:
        """Return the log, checked to be contiguous with each entry naming its predecessor."""
        raw = await cast("Any", self.redis).xrange(self.keys.log(self.keys.log_number(self.tenant)))
        entries = [decode(entry_id, fields) for entry_id, fields in raw]
        for before, after in pairwise(entries):
            if after.epoch == before.epoch:
                assert (after.n, after.previous) == (before.n + 1, before.mark)
        return entries
