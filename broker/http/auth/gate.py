"""The way in: from a request's headers to a principal with a scope, or a refusal with its challenge.

Rules:

1. The tenant comes from the credential alone. Where the address names one, too (/t/{tenant}/mcp), it must be
   the credential's; else the address does not exist, whether or not such a tenant does.
2. A credential is a bearer token in the Authorization header and nowhere else (RFC 6750, 2.1; MCP
   "Authorization": never in the query).
3. A refusal says nothing of what is on the other side: a key that is unknown, revoked or expired gets the
   same words.
"""

import re
from collections.abc import Mapping
from typing import Protocol

from broker.core import apikey
from broker.core.errors import BrokerError, Forbidden, TenantNotFound, Unauthenticated
from broker.core.identity import Principal, TenantId
from broker.http.auth.challenge import Challenge
from broker.tenants.directory import Directory

_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9\-._~+/]+=*)", re.ASCII)


class Authenticator(Protocol):
    """One way to know a caller."""

    async def authenticate(self, token: str) -> Principal:
        """Return who holds `token`.

        Raises:
            Unauthenticated: it does not hold.
            Unavailable: that cannot be decided now.
        """
        ...


class Gate(Protocol):
    """What the endpoints need."""

    async def admit(
        self, headers: Mapping[str, str], scope: str, tenant: TenantId | None = None
    ) -> Principal:
        """Return the caller, who has `scope` and is of `tenant` if the address names one.

        Raises:
            InvalidTenant, Unauthenticated, Forbidden, TenantNotFound, Unavailable.
        """
        ...

    def challenge(self, error: BrokerError, tenant: TenantId | None = None) -> bytes | None:
        """Return the WWW-Authenticate header that goes with a refusal, if one does."""
        ...


class ClosedGate:
    """The gate of every mode but open."""

    def __init__(
        self,
        directory: Directory,
        challenge: Challenge,
        *,
        keys: Authenticator | None,
        tokens: Authenticator | None,
        accepts_unlisted: bool,
    ) -> None:
        self._directory = directory
        self._challenge = challenge
        self._keys = keys
        self._tokens = tokens
        self._accepts_unlisted = accepts_unlisted

    async def admit(
        self, headers: Mapping[str, str], scope: str, tenant: TenantId | None = None
    ) -> Principal:
        """Do as `Gate.admit` says."""
        principal = await self._authenticator(token := bearer(headers)).authenticate(token)
        if tenant is not None and tenant != principal.tenant:
            raise TenantNotFound("There is nothing at this address for this credential.")
        record = await self._directory.tenant(principal.tenant)
        if record is None and not (self._accepts_unlisted and not principal.credential):
            raise Forbidden("This credential's tenant is not served here.")
        if record is not None and not record.is_served:
            raise Forbidden("This tenant is suspended; ask whoever operates this broker.")
        if principal.scopes is not None and scope not in principal.scopes:
            raise Forbidden(f'This needs a credential with the scope "{scope}".', scope)
        return principal

    def challenge(self, error: BrokerError, tenant: TenantId | None = None) -> bytes | None:
        """Do as `Gate.challenge` says."""
        return self._challenge.header(error, tenant)

    def _authenticator(self, token: str) -> Authenticator:
        """Return who knows such a token."""
        authenticator = self._keys if token.startswith(apikey.PREFIX) else self._tokens
        if authenticator is None:
            raise Unauthenticated("Credentials of this kind are not accepted here.")
        return authenticator


def bearer(headers: Mapping[str, str]) -> str:
    """Return the bearer token of a request.

    Raises:
        Unauthenticated: there is none, or what is there is none.
    """
    given = headers.get("authorization")
    if given is None:
        raise Unauthenticated(
            "A credential is needed: send Authorization: Bearer with a token or an API key.",
            is_presented=False,
        )
    found = _BEARER.fullmatch(given.strip(" \t"))
    if found is None:
        raise Unauthenticated("The Authorization header holds no bearer token.")
    return found[1]
