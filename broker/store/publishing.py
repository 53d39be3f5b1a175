"""Publishing as decided calls: publish, touch, remove, and the end of what had a lifetime.

Plain functions that build a `Call`; scripts.run or run_sync sends it. Rules:

1. Every call that writes carries a token (lua/token.lua): a random one for the resends of the client, which
   lives 10 minutes, or the caller's idempotency key, which lives 24 hours. They are told apart by their
   first letter, so that no key of a caller can be a random token.
2. A call may be sent again as it is; it may not be built again and count as the same one.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from broker.core.errors import BadRequest, Conflict, KeyReused
from broker.core.identity import LIST, TEMPLATES, ResourceKey, TenantId, check_uri
from broker.core.publication import MAX_SAFE, Publication, check_version, fingerprint
from broker.core.revision import Stamp
from broker.store.keys import Keys
from broker.store.scripts import Call, Value, fresh, script

RESEND_MS = 10 * 60 * 1000
"""How long the answer to one call is kept for its own resends."""

IDEMPOTENCY_MS = 24 * 60 * 60 * 1000
"""How long the answer under a caller's idempotency key is kept."""

TRUSTED = ""
"""The limits of a caller that holds Redis credentials: only those that its tenant has of its own."""

TOMBSTONE_MS = 24 * 60 * 60 * 1000
"""How long a removed resource's revision and version are kept."""

MAX_LIFE_MS = MAX_SAFE // 1000
"""Longest life of a resource that has one: 285 years, and what is added to a clock stays a whole number."""

MAX_KEY_LENGTH = 200
"""Characters of an idempotency key."""

Status = Literal["published", "unchanged", "superseded", "replayed", "removed", "absent", "touched"]

Expect = Stamp | Iterable[Stamp] | Literal["exists", "absent"]
"""What a caller expects before its call: one of these revisions, or that the resource is there or not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call did.

    published, touched, removed: announced, at `stamp`. unchanged: the same was there, nothing is announced.
    superseded: a version that is not older was there. replayed: this idempotency key was used for the same
    before; `stamp` is that call's. absent: nothing was there to remove. `stamp` is where the resource
    stands, None where it never was. `replicas` is how many have it, where the call waited for them.
    """

    status: Status
    stamp: Stamp | None
    replicas: int | None = None


def publish(  # each is one promise of its own
    keys: Keys,
    publication: Publication,
    *,
    version: int | None = None,
    expect: Expect | None = None,
    idempotency_key: str | None = None,
    expires_in_ms: int | None = None,
    limits: str = TRUSTED,
) -> Call[Outcome]:
    """Decide to store and announce `publication`.

    `version` is the publisher's own, compared with the one stored. `expires_in_ms` counts from when Redis
    executes the call; without it the resource stays. `limits` are the installation's (quotas.in_scripts).

    Raises:
        BadRequest: a version, lifetime or key out of its range. Sending may raise Conflict, LimitReached.
    """
    check_version(version)
    if expires_in_ms is not None and not 0 < expires_in_ms <= MAX_LIFE_MS:
        raise BadRequest(
            f"A resource's lifetime is from 1 to {MAX_LIFE_MS} ms, not {expires_in_ms}; "
            "leave it out for a resource that stays."
        )
    key = publication.key
    token, life, ask = _token(
        keys, key, idempotency_key, "publish", publication.digest, version, expires_in_ms
    )
    args: list[Value] = [
        *fresh(), key.tenant, key.uri, member(key), life, ask, _text(version), _expected(expect),
        publication.digest, publication.meta, publication.body, " ".join(publication.scopes),
        _text(publication.ttl_ms), publication.cache_scope or "", _text(expires_in_ms), limits,
    ]  # fmt: skip
    where = [*_written(keys, key), token, keys.quota(key.tenant)]
    return Call(script("publish"), where, args, _outcome)


class TemplateRule(NamedTuple):
    """The rule of the template that answers for a URI, its words with blanks between; None without one."""

    at: str
    """The revision of the tenant's templates that says so, "n.mark"."""
    rule: str | None


NO_TEMPLATES = TemplateRule(".", None)


def touch(
    keys: Keys,
    key: ResourceKey,
    *,
    rule: TemplateRule = NO_TEMPLATES,
    idempotency_key: str | None = None,
    limits: str = TRUSTED,
) -> Call[Outcome | None]:
    """Decide to announce that `key` changed, whether or not anything is published there.

    The answer is None if `rule` is not of the tenant's templates as they are (touching.py).

    Raises:
        BadRequest: not a URI, or a bad idempotency key. Sending may raise LimitReached.
    """
    check_uri(key.uri)
    token, life, ask = _token(keys, key, idempotency_key, "touch")
    templates = keys.resource(ResourceKey(key.tenant, TEMPLATES))
    where = [*_log(keys, key.tenant), keys.resource(key), templates, token, keys.quota(key.tenant)]
    said = "" if rule.rule is None else f" {rule.rule}"
    args: list[Value] = [*fresh(), key.tenant, key.uri, life, ask, TOMBSTONE_MS, limits, rule.at, said]
    return Call(script("touch"), where, args, _touched)


def list_changed(keys: Keys, tenant: TenantId, *, idempotency_key: str | None = None) -> Call[Outcome]:
    """Decide to announce that the tenant's list changed, for a reason that Redis cannot see.

    Raises:
        BadRequest: a bad idempotency key.
    """
    key = ResourceKey(tenant, LIST)
    token, life, ask = _token(keys, key, idempotency_key, "list_changed")
    args: list[Value] = [*fresh(), tenant, life, ask]
    return Call(script("announce_list"), [*_log(keys, tenant), keys.resource(key), token], args, _outcome)


def remove(
    keys: Keys,
    key: ResourceKey,
    *,
    version: int | None = None,
    expect: Expect | None = None,
    idempotency_key: str | None = None,
) -> Call[Outcome]:
    """Decide to remove `key` and announce it. What is not there is "absent", and that is no error.

    Raises:
        BadRequest: not a URI, or a version or key out of its range. Sending may raise Conflict.
    """
    check_uri(key.uri)
    check_version(version)
    token, life, ask = _token(keys, key, idempotency_key, "remove", version)
    args: list[Value] = [
        *fresh(), key.tenant, key.uri, member(key), TOMBSTONE_MS, life, ask, _text(version),
        _expected(expect),
    ]  # fmt: skip
    where = [*_written(keys, key), token, keys.quota(key.tenant)]
    return Call(script("remove"), where, args, _outcome)


def expire(keys: Keys, key: ResourceKey) -> Call[Outcome | None]:
    """Decide to remove `key` if its time is over by Redis' clock; the answer is None if it is not."""
    args: list[Value] = [*fresh(), key.tenant, key.uri, member(key), TOMBSTONE_MS]
    return Call(script("sweep"), [*_written(keys, key), keys.quota(key.tenant)], args, _expired)


def member(key: ResourceKey) -> str:
    """Return how the expiry set names `key`; the tenant is percent-encoded and holds no colon."""
    return f"{quote(key.tenant, safe='')}:{key.uri}"


def key_of(named: bytes) -> ResourceKey:
    """Read what `member` wrote."""
    tenant, _, uri = named.decode().partition(":")
    return ResourceKey(TenantId(unquote(tenant)), uri)


def _log(keys: Keys, tenant: TenantId) -> tuple[str, str]:
    number = keys.log_number(tenant)
    return keys.log(number), keys.head(number)


def _written(keys: Keys, key: ResourceKey) -> list[str]:
    """Return KEYS[1] to KEYS[6] of publish, remove and sweep."""
    return [
        *_log(keys, key.tenant),
        keys.resource(key),
        keys.resource(ResourceKey(key.tenant, LIST)),
        keys.order(key.tenant),
        keys.expiry(keys.log_number(key.tenant)),
    ]


def _token(keys: Keys, key: ResourceKey, own: str | None, *asked: object) -> tuple[str, int, str]:
    """Return the token's key, its life in ms, and the digest of what is asked ('' for a random token)."""
    if own is None:
        return keys.token(key.tenant, f"r:{secrets.token_hex(12)}"), RESEND_MS, ""
    if not 0 < len(own) <= MAX_KEY_LENGTH or not own.isprintable():
        raise BadRequest(f"An idempotency key has 1 to {MAX_KEY_LENGTH} printable characters.")
    ask = fingerprint(key.uri, *map(str, asked))
    return keys.token(key.tenant, f"k:{own}"), IDEMPOTENCY_MS, ask


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _expected(expect: Expect | None) -> str:
    if expect is None:
        return ""
    if expect == "exists":
        return "*"
    if expect == "absent":
        return "-"
    if isinstance(expect, str):
        raise BadRequest('What is expected is a revision, "exists" or "absent".')
    stamps = [expect] if isinstance(expect, Stamp) else list(expect)
    return "," + "".join(f"{stamp.revision}," for stamp in stamps)


def _outcome(reply: Any) -> Outcome:
    status, epoch, n, mark = (part.decode() for part in reply)
    stamp = Stamp(epoch, int(n), mark) if n else None
    if status == "conflict":
        at = f"it is at revision {stamp}" if stamp else "there is no such resource"
        raise Conflict(f"The resource is not as this call expected: {at}. Read it again and decide anew.")
    if status == "reused":
        raise KeyReused(
            "This idempotency key was used for something else within the last 24 hours; "
            "use a new key for a new request."
        )
    return Outcome(status, stamp)


def _touched(reply: Any) -> Outcome | None:
    return None if reply[0] == b"templates" else _outcome(reply)


def _expired(reply: Any) -> Outcome | None:
    return None if reply[0] == b"kept" else _outcome(reply)
