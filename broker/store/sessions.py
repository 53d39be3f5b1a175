"""Sessions of the handshake era in Redis: one script each (design section 3, "Sessions").

A session's two hashes are its record (subject, version, counter, owner, fence, proof) and its subscriptions
(uri → baseline; the tenant's list is one of them, under `LIST`). Whatever changes who delivers or what is
subscribed is announced in the tenant's log, in order with the changes themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from broker.core.identity import LIST, Principal, ReplicaId, ResourceKey, SessionId, TenantId
from broker.core.revision import Revision
from broker.store.keys import Keys
from broker.store.scripts import Call, Value, fresh, run, script

if TYPE_CHECKING:
    from redis.asyncio import Redis

T = TypeVar("T")

ANY_OWNER = "*"


@dataclass(frozen=True, slots=True)
class Proof:
    """What a client showed to have been told: everything at or below n, in that epoch."""

    epoch: str
    n: int

    def covers(self, epoch: str, revision: Revision) -> bool:
        """Whether a change at `revision`, read when the log's epoch is `epoch`, was told before the proof."""
        return self.epoch == epoch and revision.n <= self.n


NO_PROOF = Proof("", 0)


@dataclass(frozen=True, slots=True)
class Taken:
    """A session as of the entry that made this replica its deliverer."""

    version: str
    fence: int
    counter: int
    epoch: str
    n: int
    proof: Proof
    subscriptions: Mapping[str, Revision]


@dataclass(frozen=True, slots=True)
class Kept:
    """Nothing was taken: somebody else delivers."""

    owner: ReplicaId
    fence: int


URIS = "uris"
"""What is held of resources that listen streams watch."""


class SessionStore:
    """The sessions of one installation.

    Every method raises StoreUnavailable or WrongStore as store/errors.py says, and, but for `open`,
    SessionNotFound for what is unknown, ended or another subject's.
    """

    def __init__(self, redis: "Redis", keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def open(self, who: Principal, session: SessionId, version: str, idle_ms: int) -> None:
        """Make a session that nobody has a stream for yet. Its list baseline is now."""
        keys = (*self._both(who, session), self._keys.resource(ResourceKey(who.tenant, LIST)))
        return await self._run("session_open", keys, (who.subject, version, idle_ms, LIST), _nothing)

    async def check(self, who: Principal, session: SessionId) -> str:
        """Return the session's protocol version, and renew its time to live."""
        return await self._run("session_check", self._both(who, session), (who.subject,), _text)

    async def prove(self, who: Principal, session: SessionId, uri: str, revision: Revision) -> str:
        """Raise the baseline of `uri`, if subscribed: the client has read it at `revision`."""
        args = (who.subject, uri, str(revision))
        return await self._run("session_prove", self._both(who, session), args, _text)

    async def subscribe(
        self, who: Principal, session: SessionId, uri: str, most: int, in_all: int = 0
    ) -> Revision:
        """Subscribe and return the baseline.

        At most `most` URIs in the session, and `in_all` in its tenant (0 any number), else LimitReached.
        """
        keys = (
            *self._log(who.tenant),
            *self._both(who, session),
            self._keys.resource(ResourceKey(who.tenant, uri)),
            self._keys.quota(who.tenant),
            self._keys.holdings(who.tenant, URIS),
        )
        args = (*fresh(), who.tenant, session, who.subject, uri, most, in_all)
        return await self._run("session_subscribe", keys, args, _revision)

    async def unsubscribe(self, who: Principal, session: SessionId, uri: str) -> bool:
        """Unsubscribe; False if it was not subscribed."""
        keys = (*self._log(who.tenant), *self._both(who, session), self._keys.quota(who.tenant))
        args = (*fresh(), who.tenant, session, who.subject, uri)
        return await self._run("session_unsubscribe", keys, args, bool)

    async def take(
        self,
        who: Principal,
        session: SessionId,
        replica: ReplicaId,
        *,
        expected_owner: str = ANY_OWNER,
        above_fence: int = 0,
        proof: Proof = NO_PROOF,
        valid_until_ms: int | None = None,
        restore: Mapping[str, Revision] | None = None,
    ) -> Taken | Kept:
        """Make `replica` the one that delivers for the session.

        `expected_owner`: do it only if that one (or "" for nobody) still does. `valid_until_ms`: by Redis'
        clock; executed later it does nothing and raises StoreUnavailable. `restore`: subscriptions that
        a rollback of Redis may have lost, written back where they are missing.
        """
        keys = (*self._log(who.tenant), *self._both(who, session))
        args: list[Value] = [
            *fresh(), who.tenant, session, who.subject, replica,
            expected_owner, above_fence, proof.epoch, proof.n,
            valid_until_ms if valid_until_ms is not None else "",
        ]  # fmt: skip
        for uri, baseline in (restore or {}).items():
            args += [uri, str(baseline)]
        return await self._run("session_take", keys, args, _taken)

    async def release(
        self, tenant: TenantId, session: SessionId, replica: ReplicaId, fence: int | None
    ) -> bool:
        """Stop being the deliverer, if `replica` still is with that fence (None: with any)."""
        keys = (*self._log(tenant), self._keys.session(tenant, session))
        which = fence if fence is not None else "*"
        return await self._run("session_release", keys, (*fresh(), tenant, session, replica, which), bool)

    async def end(self, who: Principal, session: SessionId) -> None:
        """End the session: its streams end on every replica, its keys are gone."""
        keys = (*self._log(who.tenant), *self._both(who, session), self._keys.quota(who.tenant))
        return await self._run("session_end", keys, (*fresh(), who.tenant, session, who.subject), _nothing)

    async def _run(
        self, name: str, keys: Sequence[str], args: Sequence[Value], read: Callable[[Any], T]
    ) -> T:
        return await run(self._redis, Call(script(name), keys, args, read))

    def _log(self, tenant: TenantId) -> tuple[str, str]:
        number = self._keys.log_number(tenant)
        return self._keys.log(number), self._keys.head(number)

    def _both(self, who: Principal, session: SessionId) -> tuple[str, str]:
        return self._keys.session(who.tenant, session), self._keys.subscriptions(who.tenant, session)


def _nothing(reply: Any) -> None:
    del reply


def _text(reply: bytes) -> str:
    return reply.decode()


def _revision(reply: bytes) -> Revision:
    return Revision.parse(reply.decode())


def _taken(reply: list[Any]) -> Taken | Kept:
    if int(reply[0]) == 0:
        return Kept(ReplicaId(reply[1].decode()), int(reply[2]))
    version, fence, counter, epoch, n, proof_epoch, proof_n, *pairs = reply[1:]
    subscriptions = {
        uri.decode(): Revision.parse(baseline.decode())
        for uri, baseline in zip(pairs[::2], pairs[1::2], strict=True)
    }
    return Taken(
        version=version.decode(),
        fence=int(fence),
        counter=int(counter),
        epoch=epoch.decode(),
        n=int(n),
        proof=Proof(proof_epoch.decode(), int(proof_n)),
        subscriptions=subscriptions,
    )
