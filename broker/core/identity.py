"""Who and what: tenants, principals, resource keys, sessions, replicas.

Pure values. A bare URI never travels past wire/: a `ResourceKey` is tenant and URI together, so that
no lookup can cross tenants by accident. URIs are opaque strings: they are checked once, here, and
then stored, compared and echoed byte for byte; nothing normalises them (design section 5, decision 7).
"""

import re
import secrets
from dataclasses import dataclass
from typing import NamedTuple, NewType

from broker.core.errors import InvalidTenant, InvalidUri

TenantId = NewType("TenantId", str)
SessionId = NewType("SessionId", str)
ReplicaId = NewType("ReplicaId", str)
"""One life of one broker process ("incarnation"): a restarted process is another replica."""

MAX_TENANT_BYTES = 64
MAX_URI_BYTES = 640
"""Both together keep a log entry under 1 KB (design section 3)."""

LIST = "@list"
"""Stands where a URI stands and means "the tenant's resources/list". No URI starts with "@" (RFC 3986)."""
TEMPLATES = "@templates"
ACCESS = "@access"

# \s is Unicode's blanks, line and paragraph separators and NEL among them.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\s\x00-\x20\x7f-\x9f<>\"]+")
_SESSION = re.compile(r"[A-Za-z0-9_\-]{43}")


class ResourceKey(NamedTuple):
    """One resource of one tenant; also, with `LIST` for the URI, that tenant's list itself.

    A NamedTuple since its hash runs in C: it is the key of the hub's dict (style.md, Habits).
    """

    tenant: TenantId
    uri: str

    @property
    def is_list(self) -> bool:
        """Whether this key stands for a list of the tenant, and not for a resource."""
        return self.uri.startswith("@")


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. Made only in http/auth/, once per request.

    `subject` is unique in the tenant, whatever vouched for it: "key:ci" for the API key named ci,
    "https://issuer#sub" for a token; sessions belong to it, and a new token of the same one goes on.
    `scopes` is None for the development mode's caller, who may do everything in its tenant.
    `expires` is in Unix seconds; None never ends. `credential` names what can be looked up again while a
    stream is open (the digest of a key), "" if nothing can. `token` names an opaque access token, about which
    only its issuer can be asked again, by its digest.
    """

    tenant: TenantId
    subject: str
    scopes: frozenset[str] | None = None
    expires: float | None = None
    credential: str = ""
    token: str = ""


def check_tenant(value: str) -> TenantId:
    """Return `value` as a tenant id.

    Raises:
        InvalidTenant: empty, longer than `MAX_TENANT_BYTES` in UTF-8, or with control characters.
    """
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidTenant("a tenant id must be valid Unicode") from None
    if not 0 < size <= MAX_TENANT_BYTES:
        raise InvalidTenant(f"a tenant id has 1 to {MAX_TENANT_BYTES} bytes in UTF-8; this one has {size}")
    if not value.isprintable():
        raise InvalidTenant("a tenant id must not contain control characters")
    return TenantId(value)


def check_uri(value: str) -> str:
    """Return `value`, exactly as it came, if it can name a resource.

    The rule: RFC 3986 with a scheme, widened to any printable Unicode (RFC 3987), at most
    `MAX_URI_BYTES` in UTF-8, without blanks, quotes, angle brackets or control characters.

    Raises:
        InvalidUri: with a sentence that says which part of the rule was broken.
    """
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidUri(value, "it contains half of a surrogate pair") from None
    if size == 0:
        raise InvalidUri(value, "it is empty")
    if size > MAX_URI_BYTES:
        raise InvalidUri(value, f"it has {size} bytes in UTF-8; at most {MAX_URI_BYTES} are allowed")
    if not _URI.fullmatch(value):
        raise InvalidUri(
            value,
            'it must start with a scheme and a colon, as in "docs://readme", '
            "and contain no blanks, quotes, angle brackets or control characters",
        )
    return value


def new_session_id() -> SessionId:
    """Return 256 random bits as 43 visible ASCII characters (2025-11-25, "Session Management")."""
    return SessionId(secrets.token_urlsafe(32))


def is_session_id(value: str) -> bool:
    """Whether `value` has the form of our session ids; anything else is unknown without asking Redis."""
    return _SESSION.fullmatch(value) is not None


def new_replica_id() -> ReplicaId:
    """Return a fresh incarnation."""
    return ReplicaId(secrets.token_hex(6))
