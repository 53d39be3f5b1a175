"""What worker groups answer, in Redis: fixed URIs as resources without contents, and a tenant's templates.

Decided calls as in publishing.py. Rules:

1. What a live group has registered, no other group gets: the second hears Conflict. Of a group without a live
   worker anybody may take it.
2. Published contents under the same URI win, always; the registration waits until they are removed.
3. Each registration is one script and announced by one entry. It is also noted among what its group declared,
   with the time: a worker repeats its registrations, and what nobody has repeated for a while is swept,
   whether its group died or its next release does not have it.
4. What a process withdraws at run time is withdrawn for its group: a repetition of what was said before that
   is refused. Whoever says it for the first time after that, or anew, brings it back for all.
"""

import logging
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import quote, unquote

from broker.core.declaration import Declaration
from broker.core.errors import Conflict, Misconfigured
from broker.core.identity import LIST, TEMPLATES, ResourceKey, TenantId
from broker.core.publication import fingerprint
from broker.store.client import Client
from broker.store.clock import clock
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.publishing import TOMBSTONE_MS, member
from broker.store.resources import PERSONAL
from broker.store.scripts import Call, Value, fresh, run, script

_events = logging.getLogger(__name__)

LAPSE_MS = 3000
"""A worker process whose heartbeat is older is gone."""

STREAM_MS = 10 * 60 * 1000
"""How long a group's streams outlive its last heartbeat and call."""

CONSUMERS = "workers"
"""The consumer group on each call stream."""

MAX_GROUP = 64
"""Characters of a worker group's name."""


SWEPT_AT_ONCE = 100

WITHDRAWN_MS = 24 * 60 * 60 * 1000
"""How long a withdrawal is known once nobody repeats what was withdrawn."""

Status = Literal["registered", "unchanged", "published", "owned", "conflict", "withdrawn"]


class Registration(NamedTuple):
    """What became of a registration, and which group has the URI."""

    status: Status
    group: str
    said_ms: int | None = None
    """When it was said, by Redis' clock: for the next repetition."""


class WorkerBeat(NamedTuple):
    """What a worker's heartbeat brought."""

    live: int
    """Worker processes of the group, this one included."""
    declared: int
    """How much the group has registered."""
    server_ms: int
    epoch: str


@dataclass(frozen=True, slots=True)
class Declared:
    """A template of a tenant, and the worker group that answers it."""

    group: str
    declaration: Declaration


def check_group(name: str) -> str:
    """Return `name` if a worker group can have it.

    Raises:
        Misconfigured: empty, too long, or with control characters.
    """
    if not 0 < len(name) <= MAX_GROUP or not name.isprintable():
        raise Misconfigured(
            f"A worker's name has 1 to {MAX_GROUP} printable characters; {name[:MAX_GROUP]!a} has not."
        )
    return name


def register(
    keys: Keys,
    tenant: TenantId,
    group: str,
    declaration: Declaration,
    *,
    assumed: str = "",
    said_ms: int | None = None,
) -> Call[Registration]:
    """Decide to register a fixed URI. `assumed` is the group that an earlier answer said has it.

    `said_ms` is for a repetition: what the group has withdrawn since then stays withdrawn.
    """
    key = ResourceKey(tenant, declaration.uri)
    scopes = " ".join(sorted(declaration.scopes))
    options = PERSONAL if declaration.is_personal else b""
    args: list[Value] = [
        *fresh(), tenant, declaration.uri, group, assumed, LAPSE_MS,
        _digest(group, declaration, scopes, options), declaration.meta, scopes, _text(declaration.ttl_ms),
        declaration.cache_scope or "", options, _text(said_ms), WITHDRAWN_MS,
    ]  # fmt: skip
    names = [
        *_log(keys, tenant),
        keys.resource(key),
        keys.resource(ResourceKey(tenant, LIST)),
        keys.order(tenant),
        keys.declared(tenant, group),
        keys.workers(tenant, assumed or group),
        keys.withdrawn(tenant, group),
    ]
    return Call(script("register"), names, args, _registration)


def register_template(
    keys: Keys,
    tenant: TenantId,
    group: str,
    declaration: Declaration,
    *,
    assumed: str = "",
    said_ms: int | None = None,
) -> Call[Registration]:
    """Decide to register a template, or the wish for demand of a fixed URI; the rest is as of `register`."""
    args: list[Value] = [
        *fresh(), tenant, declaration.uri, group, assumed, LAPSE_MS, declaration.encode(), _text(said_ms),
        WITHDRAWN_MS,
    ]  # fmt: skip
    names = [
        *_template(keys, tenant),
        keys.declared(tenant, group),
        keys.workers(tenant, assumed or group),
        keys.withdrawn(tenant, group),
    ]
    return Call(script("register_template"), names, args, _registration)


def unregister(
    keys: Keys, tenant: TenantId, group: str, uri: str, *, unheard_ms: int | None = None
) -> Call[int]:
    """Decide to remove a fixed URI; with `unheard_ms` only if nobody has declared it for so long."""
    key = ResourceKey(tenant, uri)
    args: list[Value] = [
        *fresh(), tenant, uri, member(key), TOMBSTONE_MS, group, _text(unheard_ms), WITHDRAWN_MS,
    ]  # fmt: skip
    names = [
        *_log(keys, tenant),
        keys.resource(key),
        keys.resource(ResourceKey(tenant, LIST)),
        keys.order(tenant),
        keys.expiry(keys.log_number(tenant)),
        keys.declared(tenant, group),
        keys.withdrawn(tenant, group),
    ]
    return Call(script("unregister"), names, args, int)


def unregister_template(
    keys: Keys, tenant: TenantId, group: str, template: str, *, unheard_ms: int | None = None
) -> Call[int]:
    """Decide to remove a template; with `unheard_ms` only if nobody has declared it for so long."""
    args: list[Value] = [*fresh(), tenant, template, group, _text(unheard_ms), WITHDRAWN_MS]
    names = [*_template(keys, tenant), keys.declared(tenant, group), keys.withdrawn(tenant, group)]
    return Call(script("unregister_template"), names, args, int)


def beat(keys: Keys, tenant: TenantId, group: str, worker: str) -> Call[WorkerBeat]:
    """Decide to say that `worker` lives; makes the group's consumer group where it is missing."""
    number = keys.log_number(tenant)
    names = [
        keys.workers(tenant, group),
        keys.groups(number),
        keys.calls(tenant, group),
        keys.notes(tenant, group),
        keys.declared(tenant, group),
        keys.head(number),
    ]
    args: list[Value] = [worker, _member(tenant, group), LAPSE_MS, CONSUMERS, STREAM_MS]
    return Call(script("worker_beat"), names, args, _beat)


def leave(keys: Keys, tenant: TenantId, group: str, worker: str, *, is_done: bool = False) -> Call[int]:
    """Decide to be given no more calls; the answer is how many workers the group has besides.

    Until it is said again with `is_done`, and once a second, those who wait for this worker's answers hear
    that it is still at work.
    """
    names = [keys.workers(tenant, group), keys.leaving(tenant, group)]
    return Call(script("worker_leave"), names, [worker, LAPSE_MS, int(is_done)], int)


async def live(redis: Client, keys: Keys, groups: list[tuple[TenantId, str]]) -> list[int]:
    """Return how many workers of each of these groups are at work. Of one shard only, on a cluster.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    names = [name for group in groups for name in (keys.workers(*group), keys.leaving(*group))]
    call: Call[list[int]] = Call(script("live_workers"), names, (LAPSE_MS,), list)
    return await run(redis, call)


async def templates(redis: Client, keys: Keys, tenant: TenantId) -> list[Declared]:
    """Return the tenant's templates, and the fixed URIs that want demand, in no order.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    with translated():
        found = await cast("Any", redis).hgetall(keys.templates(tenant))
    declared: list[Declared] = []
    for value in found.values():
        group, _, encoded = value.partition(b"\n")
        try:
            declared.append(Declared(group.decode(), Declaration.decode(encoded)))
        except ValueError as error:
            # One that cannot be read must not take the tenant's other templates away.
            _events.warning("template_unreadable", extra={"tenant": tenant, "why": str(error)})
    return declared


async def groups(redis: Client, keys: Keys, number: int) -> list[tuple[TenantId, str]]:
    """Return the groups of a log that have something registered, or had lately.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    with translated():
        found = await cast("Any", redis).zrange(keys.groups(number), 0, -1)
    return [_group(each) for each in found]


async def unheard(
    redis: Client, keys: Keys, tenant: TenantId, group: str, unheard_ms: int
) -> tuple[list[tuple[bool, str]], bool]:
    """Return what nobody has declared for so long (is it a template, and its text), and if that is all.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    name = keys.declared(tenant, group)
    until = await run(redis, clock(name)) - unheard_ms
    with translated():
        found = await cast("Any", redis).zrangebyscore(name, "-inf", until, start=0, num=SWEPT_AT_ONCE)
        count = await cast("Any", redis).zcard(name)
    return [(each.startswith(b"t"), each[1:].decode()) for each in found], len(found) == count


async def forget_group(redis: Client, keys: Keys, tenant: TenantId, group: str) -> None:
    """Forget a group of which nothing is left; should it live, its next heartbeat says so.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    with translated():
        await cast("Any", redis).zrem(keys.groups(keys.log_number(tenant)), _member(tenant, group))


def conflict(group: str, tenant: TenantId, declaration: Declaration, owner: str) -> Conflict:
    """Return what the second worker that declares a URI is told."""
    return Conflict(
        f"The worker {group!a} declares {declaration.uri!a} for the tenant {tenant!a}, but the worker "
        f"{owner!a} answers it already and is alive. Declare another URI, give both workers the same name if "
        "they are the same program, or stop the other one."
    )


def _digest(group: str, declaration: Declaration, scopes: str, options: bytes) -> str:
    """As `Publication.digest`: what the list shows, the rest, and which optional fields there are."""
    listed = fingerprint(declaration.meta, scopes)[:24]
    rest = fingerprint("callback", group, str(declaration.ttl_ms), str(declaration.cache_scope), options)
    flags = ("s" if scopes else "") + ("t" if declaration.ttl_ms is not None else "")
    return listed + rest + flags + ("p" if declaration.cache_scope else "")


def _log(keys: Keys, tenant: TenantId) -> tuple[str, str]:
    number = keys.log_number(tenant)
    return keys.log(number), keys.head(number)


def _template(keys: Keys, tenant: TenantId) -> list[str]:
    """Return KEYS[1] to KEYS[5] of the scripts for templates."""
    return [
        *_log(keys, tenant),
        keys.templates(tenant),
        keys.resource(ResourceKey(tenant, LIST)),
        keys.resource(ResourceKey(tenant, TEMPLATES)),
    ]


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _member(tenant: TenantId, group: str) -> str:
    return f"{quote(tenant, safe='')}:{group}"


def _group(named: bytes) -> tuple[TenantId, str]:
    tenant, _, group = named.decode().partition(":")
    return TenantId(unquote(tenant)), group


def _registration(reply: list[bytes]) -> Registration:
    said_ms = int(reply[2]) if len(reply) > 2 else None  # noqa: PLR2004 # only where something was said
    return Registration(cast("Status", reply[0].decode()), reply[1].decode(), said_ms)


def _beat(reply: list[Any]) -> WorkerBeat:
    return WorkerBeat(int(reply[0]), int(reply[1]), int(reply[2]), reply[3].decode())
