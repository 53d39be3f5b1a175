"""Every Redis key, built here and nowhere else.

A key is `prefix:{tag}:kind:tenant[:rest]`. The tenant is percent-encoded, so it holds no colon; kinds are a
fixed set; the rest is last and stands as it is: no tenant, URI or session id can collide with another.
`shard = crc32(tenant) % SHARDS` (fixed at installation), and every key of a tenant carries its shard's hash
tag, so that one script can name them all on a cluster. The tags are chosen so that the shards spread evenly
over the slots, whatever the prefix.

On a single node all shards share one log, since reading 16 streams in one XREAD cost Redis twice as much as
one (design section 3); on a cluster each shard has its own.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, unquote

from redis.crc import key_slot

from broker.core.errors import Misconfigured
from broker.core.identity import ResourceKey, SessionId, TenantId

_FLEETS = frozenset({"lease", "inbox", "reply"})
"""Kinds whose third part is a name and no tenant."""

SHARDS = 16
SLOTS = 16384


def _tag(shard: int, shards: int) -> str:
    """Return the first tag "shard.counter" whose slot lies in the share of that shard."""
    width = SLOTS // shards
    counter = 0
    while key_slot(f"{shard}.{counter}".encode()) // width != shard:
        counter += 1
    return f"{shard}.{counter}"


@dataclass(frozen=True)
class Keys:
    """The key builder of one installation. `logs` is 1 on a single node and `SHARDS` on a cluster."""

    prefix: str = "mrb"
    logs: int = 1

    def __post_init__(self) -> None:
        if not self.prefix or not self.prefix.isascii() or any(c in self.prefix for c in "{}*?[] "):
            raise Misconfigured(
                f"The key prefix {self.prefix!r} must be ASCII and free of blanks, braces and the "
                "characters * ? [ ]; set BROKER_PREFIX to a short name such as mrb."
            )

    @cached_property
    def tags(self) -> tuple[str, ...]:
        return tuple(_tag(shard, SHARDS) for shard in range(SHARDS))

    @property
    def is_sharded(self) -> bool:
        """Whether what one command names must be of one shard: on a cluster."""
        return self.logs > 1

    def shard(self, tenant: TenantId) -> int:
        """Return the shard of a tenant, 0 to `SHARDS` - 1."""
        return zlib.crc32(tenant.encode()) % SHARDS

    def log_number(self, tenant: TenantId) -> int:
        """Return which log tells of this tenant, 0 to `logs` - 1."""
        return self.shard(tenant) if self.is_sharded else 0

    def by_log(self, tenants: Iterable[TenantId]) -> list[list[TenantId]]:
        """Return `tenants` in groups, each of one log."""
        groups: dict[int, list[TenantId]] = {}
        for tenant in tenants:
            groups.setdefault(self.log_number(tenant), []).append(tenant)
        return list(groups.values())

    def log(self, number: int = 0) -> str:
        """The stream that every replica follows."""
        return f"{self.prefix}:{{{self.tags[number]}}}:log"

    def head(self, number: int = 0) -> str:
        """Hash beside a log: epoch, n, mark, run, schema, shards, length."""
        return f"{self.prefix}:{{{self.tags[number]}}}:head"

    def replicas(self) -> str:
        """Sorted set of the replicas by their last heartbeat, in ms of the server's clock."""
        return f"{self.prefix}:{{{self.tags[0]}}}:replicas"

    def lease(self, name: str) -> str:
        """String with a time to live: who of the fleet does `name`."""
        return f"{self.prefix}:{{{self.tags[0]}}}:lease:{name}"

    def secret(self) -> str:
        """String: the fleet's random key for signing list cursors."""
        return f"{self.prefix}:{{{self.tags[0]}}}:secret"

    def resource(self, key: ResourceKey) -> str:
        """Hash of one resource; for one of the tenant's lists it holds the revision only."""
        return f"{self._tenant('res', key.tenant)}:{key.uri}"

    def order(self, tenant: TenantId) -> str:
        """Sorted set (all scores 0) of the tenant's URIs, for listing by range."""
        return self._tenant("order", tenant)

    def expiry(self, number: int = 0) -> str:
        """Sorted set of `tenant:uri` members by the time they expire, in ms."""
        return f"{self.prefix}:{{{self.tags[number]}}}:expiry"

    def token(self, tenant: TenantId, token: str) -> str:
        """String: the answer that a publish with this idempotency token got."""
        return f"{self._tenant('token', tenant)}:{token}"

    def session(self, tenant: TenantId, session: SessionId) -> str:
        """Hash: principal, protocol version, counter, owner and fence of a session."""
        return f"{self._tenant('session', tenant)}:{session}"

    def subscriptions(self, tenant: TenantId, session: SessionId) -> str:
        """Hash of a session's subscriptions: URI → baseline revision."""
        return f"{self._tenant('subs', tenant)}:{session}"

    # -- control (store/control.py): what is found before the tenant is known --------------------------------

    def tenants(self) -> str:
        """Hash of all tenants: name → record."""
        return self._control("tenants")

    def credentials(self) -> str:
        """Hash of all API keys: SHA-256 of the key → record."""
        return self._control("credentials")

    def credentials_of(self, tenant: TenantId) -> str:
        """Set of the digests of a tenant's API keys."""
        return f"{self._control('credentials-of')}:{quote(tenant, safe='')}"

    def control(self) -> str:
        """String: how often any of the above was changed."""
        return self._control("control")

    def audit(self) -> str:
        """Stream, capped: what administrators did."""
        return self._control("audit")

    def _control(self, kind: str) -> str:
        return f"{self.prefix}:{{{self.tags[0]}}}:{kind}"

    # -- quotas (store/quotas.py) ----------------------------------------------------------------------------

    def quota(self, tenant: TenantId) -> str:
        """Hash: a tenant's own limits and usage as the publishing scripts see them."""
        return self._tenant("quota", tenant)

    def holdings(self, tenant: TenantId, what: str) -> str:
        """Hash with a time to live: how much of `what` each replica holds for the tenant, and until when."""
        return f"{self._tenant('held', tenant)}:{what}"

    def bucket(self, tenant: TenantId, what: str) -> str:
        """String with a time to live: where the rate of `what` stands."""
        return f"{self._tenant('rate', tenant)}:{what}"

    def sessions(self, tenant: TenantId, subject: str = "") -> str:
        """Sorted set with a time to live: the sessions of a tenant, or of one subject of it, by their end."""
        return f"{self._tenant('sessions', tenant)}:{subject}"

    # -- workers (store/registry.py, calls.py, demand.py, feed.py) ------------------------------------------

    def templates(self, tenant: TenantId) -> str:
        """Hash of templates, and of fixed URIs that want demand: text → group and declaration."""
        return self._tenant("templates", tenant)

    def declared(self, tenant: TenantId, group: str) -> str:
        """Sorted set of what a group has registered, by when it was last declared, in ms."""
        return f"{self._tenant('declared', tenant)}:{group}"

    def groups(self, number: int = 0) -> str:
        """Sorted set of `tenant:group` members by when a worker of it was last alive, in ms."""
        return f"{self.prefix}:{{{self.tags[number]}}}:groups"

    def workers(self, tenant: TenantId, group: str) -> str:
        """Sorted set of a group's worker processes by their last heartbeat, in ms of the server's clock."""
        return f"{self._tenant('workers', tenant)}:{group}"

    def leaving(self, tenant: TenantId, group: str) -> str:
        """Sorted set of the processes that take no more calls and still finish some."""
        return f"{self._tenant('leaving', tenant)}:{group}"

    def calls(self, tenant: TenantId, group: str) -> str:
        """Stream with a consumer group: calls that a worker of the group must answer."""
        return f"{self._tenant('calls', tenant)}:{group}"

    def withdrawn(self, tenant: TenantId, group: str) -> str:
        """Hash with a time to live: what a group withdrew at run time, and when."""
        return f"{self._tenant('withdrawn', tenant)}:{group}"

    def notes(self, tenant: TenantId, group: str) -> str:
        """Stream that every worker of a group reads: calls nobody waits for any more, and new demand."""
        return f"{self._tenant('notes', tenant)}:{group}"

    def inbox(self, replica: str) -> str:
        """Stream of the answers for one replica; any slot, since each write names it alone."""
        return f"{self.prefix}:{{{self._spread(replica)}}}:inbox:{replica}"

    def reply(self, replica: str, call: str) -> str:
        """String: an answer that is too large for the inbox."""
        return f"{self.prefix}:{{{self._spread(replica)}}}:reply:{call}"

    def watched(self, tenant: TenantId, group: str) -> str:
        """Sorted set of watched URIs that a group wants to know of, by when a replica last said so, in ms."""
        return f"{self._tenant('watched', tenant)}:{group}"

    def claim(self, tenant: TenantId, group: str, uri: str) -> str:
        """String with a time to live: which worker of the group tends a watched URI."""
        return f"{self._tenant('claim', tenant)}:{quote(group, safe='')}:{uri}"

    def place(self, tenant: TenantId, group: str) -> str:
        """Hash with a time to live: where a group of jobs stands in the log, and who follows for it."""
        return f"{self._tenant('place', tenant)}:{group}"

    # -- what belongs to whom (store/erasure.py) -------------------------------------------------------------

    def pattern_of(self, tenant: TenantId) -> str:
        """Return a pattern that all keys of a tenant fit, and others may."""
        # Neither a prefix nor a percent-encoded name holds a character that means something in a pattern.
        return f"{self.prefix}:{{{self.tags[self.shard(tenant)]}}}:*:{quote(tenant, safe='')}*"

    def tenant_of(self, key: str) -> TenantId | None:
        """Return the tenant that owns `key`; None for a key that is the fleet's, or no key of ours."""
        parts = key.removeprefix(f"{self.prefix}:{{").split(":", 3)
        if not key.startswith(f"{self.prefix}:{{") or len(parts) < 3 or parts[1] in _FLEETS:  # noqa: PLR2004 # tag, kind, tenant
            return None
        return TenantId(unquote(parts[2]))

    def _spread(self, name: str) -> str:
        return self.tags[zlib.crc32(name.encode()) % SHARDS]

    def _tenant(self, kind: str, tenant: TenantId) -> str:
        return f"{self.prefix}:{{{self.tags[self.shard(tenant)]}}}:{kind}:{quote(tenant, safe='')}"
