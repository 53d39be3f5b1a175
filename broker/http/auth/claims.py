"""What an access token says, checked: claims in, a principal out. Pure; the signature is tokens.py's.

Each refusal says which rule was broken, so that whoever runs the authorization server finds it; the token's
holder could read all of it anyway.
"""

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from broker.core.errors import InvalidTenant, Unauthenticated
from broker.core.identity import Principal, TenantId, check_tenant
from broker.settings import Issuer

MAX_SUBJECT = 256
MAX_SCOPES = 200
"""How many scopes of a token are looked at."""


def tenant_of(claims: Mapping[str, Any], issuer: Issuer) -> TenantId:
    """Return the tenant that a token is of.

    Raises:
        Unauthenticated: its claim is missing or cannot be a tenant.
    """
    name: Any = issuer.tenant or issuer.issuer
    if issuer.tenant_claim is not None:
        name = claims.get(issuer.tenant_claim)
    if not isinstance(name, str):
        raise Unauthenticated(f'The token names no tenant in its claim "{issuer.tenant_claim}".')
    try:
        return check_tenant(name)
    except InvalidTenant as error:
        raise Unauthenticated(f"The token's tenant will not do: {error}.") from None


def check(
    claims: Mapping[str, Any], issuer: Issuer, audiences: AbstractSet[str], now: float, leeway: float
) -> Principal:
    """Return the principal of a token whose signature holds. Times in seconds of Unix time.

    Raises:
        Unauthenticated: with the rule that was broken.
    """
    if claims.get("iss") != issuer.issuer:
        raise Unauthenticated("The token is of an issuer that is not trusted here.")
    expires = _time(claims, "exp")
    if expires is None:
        raise Unauthenticated("The token has no end (exp).")
    if expires <= now - leeway:
        raise Unauthenticated("The token has expired.")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins > now + leeway:
            raise Unauthenticated(f"The token is not valid yet ({name}).")
    if not _audiences(claims.get("aud")) & audiences:
        raise Unauthenticated("The token was made for another audience than this resource.")
    return Principal(
        tenant_of(claims, issuer), f"{issuer.issuer}#{_subject(claims)}", _scopes(claims), expires
    )


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Unauthenticated(f"The token's {name} is no time.")
    return float(value)


def _audiences(value: Any) -> frozenset[str]:
    """Return the audiences of a token: one string, or a list of them; nothing looser (RFC 8707)."""
    if isinstance(value, str):
        return frozenset({value})
    if isinstance(value, list):
        return frozenset(one for one in cast("list[Any]", value) if isinstance(one, str))
    return frozenset()


def _subject(claims: Mapping[str, Any]) -> str:
    """Return who the token is of: sub, or for a client on its own behalf client_id (RFC 9068, 2.2)."""
    subject = claims.get("sub") or claims.get("client_id")
    if not isinstance(subject, str) or len(subject) > MAX_SUBJECT or not subject.isprintable():
        raise Unauthenticated(f"The token names no subject of 1 to {MAX_SUBJECT} printable characters.")
    return subject


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: `scope` as RFC 8693 writes it, or `scp`, which others use."""
    value = claims.get("scope", claims.get("scp"))
    if isinstance(value, str):
        return frozenset(value.split(" ")[:MAX_SCOPES]) - {""}
    if isinstance(value, list):
        return frozenset(one for one in cast("list[Any]", value)[:MAX_SCOPES] if isinstance(one, str)) - {""}
    return frozenset()
