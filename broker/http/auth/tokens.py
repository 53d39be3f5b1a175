"""OAuth access tokens as credentials: JWTs of trusted issuers, and opaque ones by introspection (RFC 7662).

Rules:

1. A token's issuer is looked up by its exact name before anything else is believed; its key decides the
   algorithm (jwks.py), and no address that a token brings along (jku, x5u) is ever fetched.
2. What was verified is remembered under the token's SHA-256 for at most a minute, and never over its end or a
   change of its issuer's keys. The answer about an opaque token is remembered for as long as is set. Its
   issuer cannot tell us of a revocation, so while a stream of it is open it is asked about again as often
   (streams/recheck.py); while the issuer is away it is believed for `OPAQUE_STREAM` seconds.
3. Nothing of a token is ever logged. Opaque ones are kept, in memory, to be asked about again.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jwt

from broker.core.errors import Unauthenticated, Unavailable
from broker.core.identity import Principal
from broker.http.auth import claims, fetch
from broker.http.auth.challenge import Challenge
from broker.http.auth.jwks import KeySet
from broker.settings import Issuer, OAuthSettings

REMEMBERED_SECONDS = 60.0
REMEMBERED = 10_000
REFUSED_SECONDS = 5.0
"""How long "not active" is believed of an opaque token."""
OPAQUE_STREAM = 300.0
_TYPES = ("at+jwt", "application/at+jwt", "jwt", "application/jwt")
AT_ONCE = 16
"""Questions about opaque tokens that are under way at the same time; a stranger's tokens wait for a turn."""
_SIGNATURE_ONLY: Any = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
_REFUSED = "The token is not one of an issuer that is trusted here."


class _Known(NamedTuple):
    """What was found out about a token, and until when (Unix time) it is believed; None is "not active"."""

    principal: Principal | None
    until: float
    generation: int


class TokenAuth:
    """Knows callers by access tokens."""

    def __init__(self, settings: OAuthSettings, challenge: Challenge) -> None:
        self._settings = settings
        self._challenge = challenge
        self._issuers = {one.issuer: one for one in settings.issuers}
        self._keys = {
            one.issuer: KeySet(one.issuer, one.jwks_url, settings.jwks_seconds)
            for one in settings.issuers
            if one.introspection_url is None or one.jwks_url is not None
        }
        self._opaque = [one for one in settings.issuers if one.introspection_url is not None]
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._texts: OrderedDict[str, str] = OrderedDict()
        """Opaque tokens by their digest in hex. The longest unused is forgotten; its streams end in time."""
        self._inactive: list[Callable[[str], None]] = []

    def on_inactive(self, callback: Callable[[str], None]) -> None:
        """Let `callback` know the digest of each opaque token that is found not to hold any more."""
        self._inactive.append(callback)

    async def again(self, principal: Principal) -> Principal | None:
        """Return what the caller of an opaque token is by now, None if the token does not hold any more.

        Raises:
            Unavailable: its issuer does not answer, or the token is not remembered: what was known stands.
        """
        text = self._texts.get(principal.token)
        if text is None:
            raise Unavailable("The token was forgotten; what was known of it stands until its end.")
        try:
            return await self.authenticate(text)
        except Unauthenticated:
            return None

    async def authenticate(self, token: str) -> Principal:
        """Return the token's caller.

        Raises:
            Unauthenticated: it does not hold; the message says which rule it broke.
            Unavailable: its issuer does not answer, and cannot be done without.
        """
        if len(token) > self._settings.max_token_bytes:
            raise Unauthenticated(f"The token has more than {self._settings.max_token_bytes} bytes.")
        digest = hashlib.sha256(token.encode()).digest()
        known = self._remembered(digest)
        if known is not None:
            if known.principal is None:
                raise Unauthenticated("The token is not active.")
            return known.principal
        header = _segment(token.partition(".")[0]) if token.count(".") == 2 else None  # noqa: PLR2004 # a JWT has three parts
        if header is not None:
            return await self._jwt(token, header, digest)
        return await self._introspected(token, digest)

    # -- JWTs -----------------------------------------------------------------------------------------------

    async def _jwt(self, token: str, header: dict[str, Any], digest: bytes) -> Principal:
        unverified = _segment(token.split(".")[1]) or {}
        name = unverified.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        keys = None if issuer is None else self._keys.get(issuer.issuer)
        if issuer is None or keys is None:
            raise Unauthenticated(_REFUSED)
        kind, kid = header.get("typ"), header.get("kid")
        if kind is not None and str(kind).lower() not in _TYPES:
            raise Unauthenticated("The token is of a type that is no access token.")
        if kid is not None and not isinstance(kid, str):
            raise Unauthenticated("The token's key id is no string.")
        pinned = await keys.key(kid)
        try:
            said = jwt.decode(
                token,
                pinned.key,
                algorithms=[pinned.algorithm],
                # The claims are ours to check (claims.py); this is about the signature alone.
                options=_SIGNATURE_ONLY,
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"The token's signature does not hold ({type(error).__name__}).") from None
        now = time.time()
        principal = self._checked(said, issuer, now)
        assert principal.expires is not None
        until = min(principal.expires + self._settings.leeway_seconds, now + REMEMBERED_SECONDS)
        self._remember(digest, _Known(principal, until, self._generation))
        return principal

    def _checked(self, said: dict[str, Any], issuer: Issuer, now: float) -> Principal:
        accepted = self._challenge.audiences(claims.tenant_of(said, issuer)) | set(self._settings.audiences)
        return claims.check(said, issuer, accepted, now, self._settings.leeway_seconds)

    # -- opaque tokens --------------------------------------------------------------------------------------

    async def _introspected(self, token: str, digest: bytes) -> Principal:
        """Ask each issuer that answers about opaque tokens; usually there is one."""
        for issuer in self._opaque:
            said = await self._ask(issuer, token)
            if said.get("active") is not True:
                continue
            now = time.time()
            # RFC 7662 makes these optional; whom we asked is known, and no end is bounded below.
            said.setdefault("iss", issuer.issuer)
            said.setdefault("exp", now + OPAQUE_STREAM)
            principal = self._checked(said, issuer, now)
            assert principal.expires is not None
            end = min(principal.expires, now + OPAQUE_STREAM)
            principal = replace(principal, expires=end, token=digest.hex())
            self._texts[principal.token] = token
            self._texts.move_to_end(principal.token)
            if len(self._texts) > REMEMBERED:
                self._texts.popitem(last=False)
            until = min(principal.expires or now, now + self._settings.introspection_seconds)
            self._remember(digest, _Known(principal, until, self._generation))
            return principal
        if self._opaque:
            self._remember(digest, _Known(None, time.time() + REFUSED_SECONDS, self._generation))
            if self._texts.pop(digest.hex(), None) is not None:
                # It did hold: a stranger's guess is nobody's, and costs nothing more.
                for tell in self._inactive:
                    tell(digest.hex())
            raise Unauthenticated("The token is not active.")
        raise Unauthenticated(_REFUSED)

    async def _ask(self, issuer: Issuer, token: str) -> dict[str, Any]:
        assert issuer.introspection_url is not None
        assert issuer.client_secret is not None
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            async with asyncio.timeout(2 * fetch.SECONDS), self._turns:
                return await fetch.post(
                    issuer.introspection_url,
                    form,
                    issuer.client_id or "",
                    issuer.client_secret.get_secret_value(),
                )
        except (fetch.FetchError, TimeoutError):
            raise Unavailable("The token's issuer does not answer now; retry shortly.") from None

    # -- what is remembered ---------------------------------------------------------------------------------

    @property
    def _generation(self) -> int:
        return sum(keys.generation for keys in self._keys.values())

    def _remembered(self, digest: bytes) -> _Known | None:
        known = self._known.get(digest)
        if known is None:
            return None
        if known.until <= time.time() or known.generation != self._generation:
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return known

    def _remember(self, digest: bytes, known: _Known) -> None:
        self._known[digest] = known
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _segment(text: str) -> dict[str, Any] | None:
    """Return the JSON object in one part of a JWT, unverified; None if there is none."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
