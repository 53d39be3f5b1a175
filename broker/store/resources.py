"""The read side: one resource, a page of a tenant's list, and what is due to expire.

Everything is read from the primary (promise 3). A resource is one hash and read in one command, so its
contents and its revision belong together. What is past its `exp` counts as absent, swept or not: our clock
says when to ask for Redis' own, so a replica whose clock runs ahead hides nothing; one that runs behind
shows a resource until the sweep's entry, about a second.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker.core.identity import ResourceKey, TenantId
from broker.core.revision import Stamp
from broker.store.clock import clock
from broker.store.errors import meaning, translated
from broker.store.keys import Keys
from broker.store.publishing import key_of
from broker.store.scripts import run, run_sync

if TYPE_CHECKING:
    from redis import Redis as SyncRedis
    from redis.asyncio import Redis

SWEPT_AT_ONCE = 100
"""How many resources one call of `due` returns at most."""

_STORED = ("dig", "exp", "sc", "meta", "body", "e", "n", "m", "ttl", "cs", "ver", "grp", "opt")
_LISTED = ("dig", "exp", "sc", "meta")

PERSONAL = b"p"
"""In `opt`: what a worker answers depends on who asks (registry.py)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A resource that exists: what a read splices into its answer, and what decides who may read it."""

    contents: bytes
    """A JSON array of contents entries."""
    meta: bytes
    """A JSON object as resources/list shows it."""
    stamp: Stamp
    ttl_ms: int | None
    cache_scope: str | None
    scopes: frozenset[str]
    expires_ms: int | None
    """By Redis' clock, Unix time."""
    version: int | None


@dataclass(frozen=True, slots=True)
class Callback:
    """What a worker group answers when it is read: a fixed URI (registry.py) or a template's instance."""

    group: str
    declared: str
    """The URI or template, as the worker declared it."""
    is_personal: bool
    ttl_ms: int | None
    cache_scope: str | None
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Found:
    """What stands under a URI: contents, a callback, or neither; and when it last changed."""

    stamp: Stamp
    stored: Stored | None = None
    callback: Callback | None = None


class Listed(NamedTuple):
    """One resource of a list: `meta` is a JSON object as resources/list shows it."""

    uri: str
    meta: bytes
    scopes: frozenset[str]


async def read(redis: "Redis", keys: Keys, key: ResourceKey) -> Stored | None:
    """Return the resource, or None if it was never published, was removed, or is past its time.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    with translated():
        values = await cast("Any", redis).hmget(keys.resource(key), _STORED)
    now = await run(redis, clock(keys.resource(key))) if _is_past(values) else None
    return _stored(values, now)


async def look(redis: "Redis", keys: Keys, named: Sequence[ResourceKey]) -> list[Found | Exception]:
    """Return what a read of each is answered with, in one round trip. Of one shard only, on a cluster.

    What is only touched has a revision and nothing else. A key that cannot be read has its error there.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    pipeline = cast("Any", redis).pipeline(transaction=False)
    for key in named:
        pipeline.hmget(keys.resource(key), _STORED)
    with translated():
        rows = await pipeline.execute(raise_on_error=False)
    is_timed = any(not isinstance(row, Exception) and _is_past(row) for row in rows)
    now = await run(redis, clock(keys.resource(named[0]))) if is_timed else None
    return [
        meaning(row) if isinstance(row, Exception) else _found(key, row, now)
        for key, row in zip(named, rows, strict=True)
    ]


def read_sync(redis: "SyncRedis", keys: Keys, key: ResourceKey) -> Stored | None:
    """Do what `read` does, for plain scripts."""
    with translated():
        values = cast("Any", redis).hmget(keys.resource(key), _STORED)
    now = run_sync(redis, clock(keys.resource(key))) if _is_past(values) else None
    return _stored(values, now)


async def page(
    redis: "Redis", keys: Keys, tenant: TenantId, after: str | None, count: int
) -> tuple[list[Listed], bool]:
    """Return up to `count` resources whose URIs come after `after`, and whether there may be more.

    In the order of their UTF-8 bytes: whatever else comes and goes, what exists throughout a walk appears in
    it exactly once. O(log n + count).

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    found: list[Listed] = []
    while True:
        wanted = count + 1 - len(found)
        with translated():
            uris = await cast("Any", redis).zrangebylex(*_range(keys, tenant, after, wanted))
            rows = await _described(cast("Any", redis).pipeline(transaction=False), keys, tenant, uris)
        now = await run(redis, clock(keys.order(tenant))) if any(map(_is_past, rows)) else None
        found += _listed(uris, rows, now)
        # What is removed at this moment, or due, leaves a stretch short; then the next one is read.
        if len(uris) < wanted or len(found) > count:
            return found[:count], len(found) > count
        after = uris[-1].decode()


def page_sync(
    redis: "SyncRedis", keys: Keys, tenant: TenantId, after: str | None, count: int
) -> tuple[list[Listed], bool]:
    """Do what `page` does, for plain scripts."""
    found: list[Listed] = []
    while True:
        wanted = count + 1 - len(found)
        with translated():
            uris = cast("Any", redis).zrangebylex(*_range(keys, tenant, after, wanted))
            rows = _described(cast("Any", redis).pipeline(transaction=False), keys, tenant, uris)
        now = run_sync(redis, clock(keys.order(tenant))) if any(map(_is_past, rows)) else None
        found += _listed(uris, rows, now)
        if len(uris) < wanted or len(found) > count:
            return found[:count], len(found) > count
        after = uris[-1].decode()


async def due(
    redis: "Redis", keys: Keys, log_number: int = 0, now_ms: int | None = None
) -> list[ResourceKey]:
    """Return up to `SWEPT_AT_ONCE` resources whose time may be over; publishing.expire looks again.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    name = keys.expiry(log_number)
    if now_ms is None:
        now_ms = await run(redis, clock(name))
    with translated():
        named = await cast("Any", redis).zrangebyscore(name, "-inf", now_ms, start=0, num=SWEPT_AT_ONCE)
    return [key_of(each) for each in named]


def _range(keys: Keys, tenant: TenantId, after: str | None, count: int) -> tuple[Any, ...]:
    low = "-" if after is None else b"(" + after.encode()
    return keys.order(tenant), low, "+", 0, count


def _described(pipeline: Any, keys: Keys, tenant: TenantId, uris: Sequence[bytes]) -> Any:
    """Ask for what a list shows of each of `uris`, in one round trip; with an async pipeline, await it."""
    for uri in uris:
        pipeline.hmget(keys.resource(ResourceKey(tenant, uri.decode())), _LISTED)
    return pipeline.execute()


def _is_past(values: Sequence[bytes | None]) -> bool:
    """Whether our clock says that this is over; both `_STORED` and `_LISTED` begin with dig, exp."""
    return bool(values[0]) and bool(values[1]) and int(values[1] or 0) <= time.time() * 1000


def _is_there(values: Sequence[bytes | None], now: int | None) -> bool:
    return bool(values[0]) and not (now and values[1] and int(values[1]) <= now)


def _scopes(value: bytes | None) -> frozenset[str]:
    return frozenset(value.decode().split()) if value else frozenset()


def _integer(value: bytes | None) -> int | None:
    return int(value) if value else None


def _stored(values: Sequence[bytes | None], now: int | None) -> Stored | None:
    _, expires, scopes, meta, body, _, _, _, ttl, cache_scope, version, _, _ = values
    if not body or not _is_there(values, now):
        return None
    return Stored(
        contents=body,
        meta=meta or b"",
        stamp=_stamp(values),
        ttl_ms=_integer(ttl),
        cache_scope=cache_scope.decode() if cache_scope else None,
        scopes=_scopes(scopes),
        expires_ms=_integer(expires),
        version=_integer(version),
    )


def _found(key: ResourceKey, values: Sequence[bytes | None], now: int | None) -> Found:
    return Found(_stamp(values), _stored(values, now), _callback(key.uri, values))


def _callback(uri: str, values: Sequence[bytes | None]) -> Callback | None:
    digest, _, scopes, _, body, _, _, _, ttl, cache_scope, _, group, options = values
    if not digest or body or not group:
        return None
    return Callback(
        group=group.decode(),
        declared=uri,
        is_personal=PERSONAL in (options or b""),
        ttl_ms=_integer(ttl),
        cache_scope=cache_scope.decode() if cache_scope else None,
        scopes=_scopes(scopes),
    )


def _stamp(values: Sequence[bytes | None]) -> Stamp:
    epoch, n, mark = values[5:8]
    return Stamp((epoch or b"").decode(), int(n or 0), (mark or b"").decode())


def _listed(uris: Sequence[bytes], rows: Sequence[Sequence[bytes | None]], now: int | None) -> list[Listed]:
    return [
        Listed(uri.decode(), values[3] or b"", _scopes(values[2]))
        for uri, values in zip(uris, rows, strict=True)
        if _is_there(values, now)
    ]
