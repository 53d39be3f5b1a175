"""Tenants and API keys in Redis, and every act of administration on them, with its audit entry.

Each act reads, decides, and writes by one script (lua/control.lua) that does nothing if anything was changed
meanwhile; then it is decided anew. Whatever ends or narrows access is also announced in the tenant's log, so
that replicas meet it in order with the changes; a replica that missed that finds the raised count within a
second (broker/streams/guard.py).
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from broker.core import apikey
from broker.core.errors import BadRequest, Conflict, StoreUnavailable, TenantNotFound
from broker.core.identity import TenantId, check_tenant
from broker.core.tenancy import KeyRecord, Limits, State, Tenant, check_key_name, check_key_scopes
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.quotas import set_limits
from broker.store.scripts import Call, fresh, run, script

if TYPE_CHECKING:
    from redis.asyncio import Redis

AUDIT_LENGTH = 10_000
"""Acts that are kept at least."""
EVERYTHING = "*"
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Act:
    """One entry of the audit log."""

    at_ms: int
    actor: str
    action: str
    tenant: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Decided:
    """What an act changes: the tenant's record, keys by digest (None removes), and what to announce."""

    tenant: Tenant | None = None
    removes_tenant: bool = False
    keys: tuple[tuple[str, KeyRecord | None], ...] = ()
    details: dict[str, Any] | None = None
    ended: tuple[str, ...] = ()


class Control:
    """The control data of one installation. Methods raise StoreUnavailable and WrongStore as scripts.run."""

    def __init__(self, redis: "Redis", keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    # -- looking --------------------------------------------------------------------------------------------

    async def count(self) -> int:
        """Return how often anything here was changed."""
        with translated():
            return int(await self._raw.get(self._keys.control()) or 0)

    async def tenant(self, tenant: TenantId) -> Tenant | None:
        """Return a tenant, None if there is none."""
        with translated():
            text = await self._raw.hget(self._keys.tenants(), tenant)
        return None if text is None else Tenant.decode(tenant, text)

    async def tenants(self) -> list[Tenant]:
        """Return all tenants by name."""
        with translated():
            found = await self._raw.hgetall(self._keys.tenants())
        return sorted(
            (Tenant.decode(name.decode(), text) for name, text in found.items()), key=lambda one: one.id
        )

    async def credential(self, digest: str) -> KeyRecord | None:
        """Return the key of that digest, None if there is none."""
        with translated():
            text = await self._raw.hget(self._keys.credentials(), digest)
        return None if text is None else KeyRecord.decode(text)

    async def keys(self, tenant: TenantId) -> dict[str, KeyRecord]:
        """Return a tenant's keys by digest, oldest first."""
        with translated():
            digests: list[bytes] = list(await self._raw.smembers(self._keys.credentials_of(tenant)))
            texts: list[bytes | None] = []
            if digests:
                texts = await self._raw.hmget(self._keys.credentials(), digests)
        found = {
            digest.decode(): KeyRecord.decode(text)
            for digest, text in zip(digests, texts, strict=True)
            if text is not None
        }
        return dict(sorted(found.items(), key=lambda item: (item[1].created_ms, item[1].id)))

    async def audit(self, most: int = 100) -> list[Act]:
        """Return the last acts, newest first."""
        with translated():
            entries = await self._raw.xrevrange(self._keys.audit(), count=most)
        acts: list[Act] = []
        for entry_id, fields in entries:
            given = json.loads(fields[b"act"])
            at_ms = int(entry_id.partition(b"-")[0])
            acts.append(Act(at_ms, given["actor"], given["action"], given["tenant"], given["details"]))
        return acts

    # -- tenants --------------------------------------------------------------------------------------------

    async def create(self, actor: str, name: str, limits: Limits = Limits()) -> Tenant:  # noqa: B008 # frozen
        """Make a tenant.

        Raises:
            InvalidTenant: a name that cannot be one.
            Conflict: there is one of that name, or its deletion is not finished.
        """
        tenant = Tenant(check_tenant(name), State.ACTIVE, _now_ms(), limits)

        def decide(found: Tenant | None, _: dict[str, KeyRecord]) -> _Decided:
            if found is not None:
                raise Conflict(f"There is a tenant {name!a} already; it is {found.state}.")
            return _Decided(tenant, details=limits.given())

        await self._act(actor, "tenant.create", tenant.id, decide, is_new=True)
        await set_limits(self._redis, self._keys, tenant.id, limits)
        return tenant

    async def limit(self, actor: str, tenant: TenantId, changes: dict[str, Any]) -> Tenant:
        """Change a tenant's own limits; None gives one back to the installation's settings.

        Raises:
            TenantNotFound: there is none.
            BadRequest: no such limit.
        """
        Limits.read(changes)
        changed: list[Tenant] = []

        def decide(found: Tenant | None, _: dict[str, KeyRecord]) -> _Decided:
            assert found is not None
            changed[:] = [replace(found, limits=replace(found.limits, **changes))]
            return _Decided(changed[0], details=changes, ended=("",))

        await self._act(actor, "tenant.limit", tenant, decide)
        await set_limits(self._redis, self._keys, tenant, changed[0].limits)
        return changed[0]

    async def lacks(self, tenant: Tenant, keys: Mapping[str, KeyRecord]) -> bool:
        """Whether this tenant or one of these keys is not here."""
        return await self.tenant(tenant.id) is None or bool(keys.keys() - (await self.keys(tenant.id)).keys())

    async def restore(self, actor: str, tenant: Tenant, keys: Mapping[str, KeyRecord]) -> int:
        """Take in a tenant with its keys by digest, as far as it is not here; return how many keys are new.

        What the publishing scripts see of its limits is not set (quotas.set_limits).
        """
        if not await self.lacks(tenant, keys):
            return 0
        added: list[tuple[str, KeyRecord]] = []

        def decide(found: Tenant | None, present: dict[str, KeyRecord]) -> _Decided:
            added[:] = [(digest, key) for digest, key in keys.items() if digest not in present]
            return _Decided(
                None if found else tenant,
                keys=tuple(added),
                details={"keys": [key.id for _, key in added]},
                ended=("",),
            )

        await self._act(actor, "tenant.import", tenant.id, decide, is_new=True)
        return len(added)

    async def suspend(self, actor: str, tenant: TenantId) -> None:
        """Answer a tenant's callers no more, and end their streams; nothing of it is removed.

        Raises:
            TenantNotFound: there is none.
        """
        await self._turn(actor, "tenant.suspend", tenant, State.SUSPENDED)

    async def resume(self, actor: str, tenant: TenantId) -> None:
        """Undo `suspend`.

        Raises:
            TenantNotFound: there is none.
            Conflict: it is being deleted.
        """
        await self._turn(actor, "tenant.resume", tenant, State.ACTIVE)

    async def condemn(self, actor: str, tenant: TenantId) -> None:
        """Begin a tenant's deletion: its keys are gone and its streams end. erasure.py removes the rest.

        Raises:
            TenantNotFound: there is none.
        """

        def decide(found: Tenant | None, keys: dict[str, KeyRecord]) -> _Decided:
            assert found is not None
            gone = tuple((digest, None) for digest in keys)
            return _Decided(replace(found, state=State.DELETING), keys=gone, ended=(EVERYTHING,))

        await self._act(actor, "tenant.delete", tenant, decide)

    async def bury(self, actor: str, tenant: TenantId) -> None:
        """Finish a tenant's deletion: its name is free again."""

        def decide(_: Tenant | None, keys: dict[str, KeyRecord]) -> _Decided:
            return _Decided(removes_tenant=True, keys=tuple((digest, None) for digest in keys))

        await self._act(actor, "tenant.deleted", tenant, decide)

    async def _turn(self, actor: str, action: str, tenant: TenantId, state: State) -> None:
        def decide(found: Tenant | None, _: dict[str, KeyRecord]) -> _Decided:
            assert found is not None
            if found.state is State.DELETING:
                raise Conflict(f"The tenant {tenant!a} is being deleted, and that cannot be undone.")
            return _Decided(
                replace(found, state=state), ended=(EVERYTHING if state is not State.ACTIVE else "",)
            )

        await self._act(actor, action, tenant, decide)

    # -- keys -----------------------------------------------------------------------------------------------

    async def new_key(
        self,
        actor: str,
        tenant: TenantId,
        name: str,
        scopes: Iterable[str],
        expires_ms: int | None = None,
    ) -> tuple[apikey.ApiKey, KeyRecord]:
        """Make a key and return it with its text, which is nowhere else.

        Raises:
            TenantNotFound: there is no such tenant.
            BadRequest: a bad name, scope or time.
            Conflict: there is a key of that name.
        """
        check_key_name(name)
        granted = check_key_scopes(scopes)
        now = _now_ms()
        if expires_ms is not None and expires_ms <= now:
            raise BadRequest("A key's end is in the future.")
        key = apikey.new()
        record = KeyRecord(key.id, tenant, name, granted, now, expires_ms)

        def decide(_: Tenant | None, keys: dict[str, KeyRecord]) -> _Decided:
            if any(one.name == name and not _is_over(one) for one in keys.values()):
                raise Conflict(f"There is a key {name!a} already: rotate it, or choose another name.")
            return _Decided(
                keys=((apikey.digest(key.text), record), *_swept(keys)),
                details={"key": key.id, "name": name, "scopes": list(granted)},
            )

        await self._act(actor, "key.create", tenant, decide)
        return key, record

    async def rotate(
        self, actor: str, tenant: TenantId, name: str, overlap_seconds: float
    ) -> tuple[apikey.ApiKey, KeyRecord]:
        """Make another key for the same caller; those before it end after `overlap_seconds`.

        `name` is a key's name or id.

        Raises:
            TenantNotFound: no such tenant, or no such key.
            BadRequest: a negative overlap.
        """
        if not overlap_seconds >= 0:
            raise BadRequest("The overlap is a number of seconds from 0.")
        key, now = apikey.new(), _now_ms()
        end = now + int(overlap_seconds * 1000)
        made: list[KeyRecord] = []

        def decide(_: Tenant | None, keys: dict[str, KeyRecord]) -> _Decided:
            old = _named(keys, name)
            latest = max(old.values(), key=lambda one: one.created_ms)
            made[:] = [KeyRecord(key.id, tenant, latest.name, latest.scopes, now, latest.expires_ms)]
            ending = [
                (digest, replace(one, expires_ms=end if one.expires_ms is None else min(end, one.expires_ms)))
                for digest, one in keys.items()
                if one.name == latest.name and not _is_over(one)
            ]
            return _Decided(
                keys=((apikey.digest(key.text), made[0]), *ending),
                details={"key": key.id, "name": latest.name, "before": [one.id for _, one in ending]},
                ended=("",) if overlap_seconds else tuple(digest for digest, _ in ending),
            )

        await self._act(actor, "key.rotate", tenant, decide)
        return key, made[0]

    async def revoke(self, actor: str, tenant: TenantId, name: str) -> list[KeyRecord]:
        """End keys now, on every replica, with their streams. `name` is a key's name (all of it) or id.

        Raises:
            TenantNotFound: no such tenant, or no such key.
        """
        ended: list[KeyRecord] = []

        def decide(_: Tenant | None, keys: dict[str, KeyRecord]) -> _Decided:
            old = _named(keys, name)
            ended[:] = old.values()
            return _Decided(
                keys=tuple((digest, None) for digest in old),
                details={"keys": [one.id for one in ended]},
                ended=tuple(old),
            )

        await self._act(actor, "key.revoke", tenant, decide)
        return ended

    # -- one act --------------------------------------------------------------------------------------------

    @property
    def _raw(self) -> Any:
        return cast("Any", self._redis)  # its replies are untyped; the records' decoders look at them

    async def _act(
        self,
        actor: str,
        action: str,
        tenant: TenantId,
        decide: Callable[[Tenant | None, dict[str, KeyRecord]], _Decided],
        *,
        is_new: bool = False,
    ) -> None:
        for _ in range(_ATTEMPTS):
            count = await self.count()
            found = await self.tenant(tenant)
            if found is None and not is_new:
                raise TenantNotFound(f"There is no tenant {tenant!a}.")
            decided = decide(found, await self.keys(tenant))
            told = {"actor": actor, "action": action, "tenant": tenant, "details": decided.details or {}}
            if await self._write(tenant, count, json.dumps(told), decided):
                for what in decided.ended:
                    await self._announce(tenant, what)
                return
        raise StoreUnavailable("Others administer at the same time; try again shortly.")

    async def _write(self, tenant: TenantId, count: int, told: str, decided: _Decided) -> bool:
        args: list[str | bytes | int] = [count, AUDIT_LENGTH, told]
        if decided.tenant is not None:
            args += ["t", tenant, decided.tenant.encode()]
        elif decided.removes_tenant:
            args += ["t", tenant, ""]
        for digest, record in decided.keys:
            args += ["k", digest, "" if record is None else record.encode()]
        names = self._keys
        keys = (
            names.control(),
            names.audit(),
            names.tenants(),
            names.credentials(),
            names.credentials_of(tenant),
        )
        call: Call[bool] = Call(script("control"), keys, args, lambda reply: int(reply) > 0)
        return await run(self._redis, call)

    async def _announce(self, tenant: TenantId, what: str) -> None:
        number = self._keys.log_number(tenant)
        keys = (self._keys.log(number), self._keys.head(number))
        call: Call[Any] = Call(script("announce_access"), keys, (*fresh(), tenant, what), lambda reply: reply)
        await run(self._redis, call)


def _named(keys: dict[str, KeyRecord], name: str) -> dict[str, KeyRecord]:
    found = {digest: one for digest, one in keys.items() if name in (one.id, one.name)}
    if not found:
        raise TenantNotFound(f"This tenant has no key {name[:80]!a}.")
    return found


def _swept(keys: dict[str, KeyRecord]) -> Sequence[tuple[str, None]]:
    """Return the removal of keys whose time is over."""
    return [(digest, None) for digest, one in keys.items() if _is_over(one)]


def _is_over(key: KeyRecord) -> bool:
    return key.expires_ms is not None and key.expires_ms <= _now_ms()


def _now_ms() -> int:
    return int(time.time() * 1000)
