"""What an installation holds, read out for another one and taken in from one (core/transfer.py).

Rules:

1. Reading walks: it is no snapshot, and needs memory for a page of URIs and a few resources.
2. What workers declare and answer is theirs to declare again; sessions, logs and tombstones stay behind.
3. Taking in publishes by the ordinary script, so brokers may serve meanwhile. What is there already is left
   as it is, unless it is to be overwritten; so beginning again goes on where it stopped.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self, cast

from broker.core.errors import BrokerError, Conflict, LimitReached
from broker.core.identity import ResourceKey, TenantId
from broker.core.publication import CacheScope, Publication
from broker.core.transfer import ResourceLine
from broker.store import publishing
from broker.store.batch import run_batch
from broker.store.client import node_of
from broker.store.errors import translated
from broker.store.keys import Keys

if TYPE_CHECKING:
    from redis.asyncio import Redis

URIS = 500
"""URIs that are listed at once."""
BODIES = 50
BODY_BYTES = 1_000_000
"""Resources that are read or taken in at once, and their bytes; a single larger one goes alone."""
ATTEMPTS = 100
"""How often a publish waits for a tenant's own rate."""

_FIELDS = ("dig", "grp", "exp", "sc", "meta", "body", "ttl", "cs", "ver")


@dataclass(slots=True)
class Tally:
    """What became of the resources of an import."""

    added: int = 0
    same: int = 0
    """There already, byte for byte."""
    different: int = 0
    """Something else is there, and was left; or a newer version was."""
    expired: int = 0
    missing: int = 0
    """Not there, of a comparison."""
    refused: int = 0

    @property
    def total(self) -> int:
        """How many were looked at."""
        return sum(getattr(self, field.name) for field in fields(self))

    def add(self, other: Self) -> None:
        """Count another tally in."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


async def tenants(redis: "Redis", keys: Keys) -> list[TenantId]:
    """Return whoever has a list of resources, registered or not, by name. Walks all keys.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    found: set[TenantId] = set()
    nodes = [await node_of(redis, keys.expiry(number)) for number in range(keys.logs)]
    for node in {id(node.connection_pool): node for node in nodes}.values():
        cursor = 0
        while True:
            with translated():
                cursor, names = await cast("Any", node).scan(
                    cursor, match=f"{keys.prefix}:*:order:*", count=1000
                )
            for name in names:
                tenant = keys.tenant_of(name.decode())
                if tenant is not None and name.decode() == keys.order(tenant):
                    found.add(tenant)
            if int(cursor) == 0:
                break
    return sorted(found)


async def published(redis: "Redis", keys: Keys, tenant: TenantId) -> AsyncIterator[ResourceLine]:
    """Yield what is published of a tenant, in the order of the URIs; what a worker answers is not.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    client = cast("Any", redis)
    after = b"-"
    while True:
        with translated():
            uris: list[bytes] = await client.zrangebylex(keys.order(tenant), after, b"+", 0, URIS)
        listed = [ResourceKey(tenant, uri.decode()) for uri in uris]
        for named in _groups(listed, await _sizes(redis, keys, listed)):
            for key, row in zip(named, await _rows(redis, keys, named), strict=True):
                line = _line(key, row)
                if line is not None:
                    yield line
        if len(uris) < URIS:
            return
        after = b"(" + uris[-1]


async def _sizes(redis: "Redis", keys: Keys, named: Sequence[ResourceKey]) -> list[int]:
    pipeline = cast("Any", redis).pipeline(transaction=False)
    for key in named:
        pipeline.hstrlen(keys.resource(key), "body")
    with translated():
        return [int(size) for size in await pipeline.execute()]


def _groups(named: Sequence[ResourceKey], sizes: Sequence[int]) -> Iterator[list[ResourceKey]]:
    """Yield resources in groups that one answer may hold."""
    group: list[ResourceKey] = []
    weight = 0
    for key, size in zip(named, sizes, strict=True):
        if group and (len(group) == BODIES or weight + size > BODY_BYTES):
            yield group
            group, weight = [], 0
        group.append(key)
        weight += size
    if group:
        yield group


async def _rows(redis: "Redis", keys: Keys, named: Sequence[ResourceKey]) -> list[list[bytes | None]]:
    pipeline = cast("Any", redis).pipeline(transaction=False)
    for key in named:
        pipeline.hmget(keys.resource(key), _FIELDS)
    with translated():
        return await pipeline.execute()


def _line(key: ResourceKey, row: Sequence[bytes | None]) -> ResourceLine | None:
    digest, group, expires, rule, meta, body, ttl, cache_scope, version = row
    if not digest or group or meta is None or not body:
        return None
    publication = Publication(
        key,
        meta,
        body,
        tuple((rule or b"").decode().split()),
        _number(ttl),
        cast("CacheScope | None", (cache_scope or b"").decode() or None),
        digest.decode(),
    )
    line = ResourceLine(publication, _number(version), _number(expires))
    return None if _is_over(line) else line


def _number(text: bytes | None) -> int | None:
    return int(text) if text else None


def _is_over(line: ResourceLine) -> bool:
    return line.expires_ms is not None and line.expires_ms <= time.time() * 1000


async def take_in(
    redis: "Redis", keys: Keys, lines: Sequence[ResourceLine], *, overwrite: bool, check: bool
) -> tuple[Tally, list[tuple[str, BrokerError]]]:
    """Publish resources of one tenant that are not there; only compare them with `check`.

    Returns what became of them, and the refusals by URI.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    tally = Tally()
    wanted: list[ResourceLine] = []
    rows = await _digests(redis, keys, [line.publication.key for line in lines])
    for line, there in zip(lines, rows, strict=True):
        if _is_over(line):
            tally.expired += 1
        elif there == line.publication.digest:
            tally.same += 1
        elif there and not overwrite:
            tally.different += 1
        elif check:
            tally.missing += 1
        else:
            wanted.append(line)
    refused: list[tuple[str, BrokerError]] = []
    for _ in range(ATTEMPTS):
        wanted, pause = await _publish(redis, keys, wanted, tally, refused, overwrite=overwrite)
        if not wanted:
            break
        await asyncio.sleep(pause)
    tally.refused += len(wanted)
    return tally, refused


async def _digests(redis: "Redis", keys: Keys, named: Sequence[ResourceKey]) -> list[str]:
    pipeline = cast("Any", redis).pipeline(transaction=False)
    for key in named:
        pipeline.hget(keys.resource(key), "dig")
    with translated():
        return [(digest or b"").decode() for digest in await pipeline.execute()]


async def _publish(
    redis: "Redis",
    keys: Keys,
    lines: Sequence[ResourceLine],
    tally: Tally,
    refused: list[tuple[str, BrokerError]],
    *,
    overwrite: bool,
) -> tuple[list[ResourceLine], float]:
    """Publish, count, and return what the tenant's own rate holds back, and for how many seconds."""
    now = int(time.time() * 1000)
    calls = [
        publishing.publish(
            keys,
            line.publication,
            version=line.version,
            expect=None if overwrite else "absent",
            expires_in_ms=None if line.expires_ms is None else max(1, line.expires_ms - now),
        )
        for line in lines
    ]
    later: list[ResourceLine] = []
    pause = 0.0
    for line, answer in zip(lines, await run_batch(redis, calls), strict=True):
        match answer:
            case LimitReached(retry_after=seconds) if seconds is not None:
                later.append(line)
                pause = max(pause, seconds)
            case Conflict():
                # Somebody was faster.
                tally.different += 1
            case BrokerError() if answer.retryable:
                raise answer
            case BrokerError():
                tally.refused += 1
                refused.append((line.publication.key.uri, answer))
            case publishing.Outcome(status="superseded"):
                tally.different += 1
            case publishing.Outcome():
                tally.added += 1
    return later, pause
