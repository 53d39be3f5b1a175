"""An issuer's keys, by their ids (RFC 7517).

Rules:

1. A key is for one algorithm: the one that it names, else the one that its type means. What a token's header
   says is compared with that and decides nothing. Symmetric keys, keys for encryption and RSA keys below 2048
   bits are passed over.
2. Keys are fetched again after `refresh` seconds, beside: those that we have go on. So an issuer that is down
   costs nothing until it rotates its keys; after `KEPT` seconds without an answer they are believed no more.
3. An unknown id asks once, at most every `COOLDOWN` seconds: a stranger's tokens cannot make us hammer it.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import jwt

from broker.core.errors import Unauthenticated, Unavailable
from broker.http.auth import fetch

_log = logging.getLogger(__name__)

KEPT = 24 * 3600.0
COOLDOWN = 5.0
MOST = 100
"""Keys of one issuer that are looked at."""

_BY_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_ALGORITHMS = {
    "RSA": {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
    "EC": {"ES256", "ES384", "ES512"},
    "OKP": {"EdDSA"},
}
_MIN_RSA_BITS = 2048


@dataclass(frozen=True, slots=True)
class PinnedKey:
    """A public key and the one algorithm it is for."""

    key: Any
    algorithm: str


class KeySet:
    """The keys of one issuer."""

    def __init__(self, issuer: str, url: str | None, refresh: float) -> None:
        self.generation = 0
        """Raised when the keys change: what was verified with older ones is verified again."""
        self._issuer = issuer
        self._url = url
        self._refresh = refresh
        self._keys: dict[str, PinnedKey] = {}
        self._document: dict[str, Any] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, kid: str | None) -> PinnedKey:
        """Return the key of that id; without an id, the only key there is.

        Raises:
            Unauthenticated: the issuer has no such key.
            Unavailable: its keys were never fetched, or too long ago.
        """
        now = asyncio.get_running_loop().time()
        if self._age(now) > self._refresh and self._may_try(now):
            self._begin(now)
        found = self._find(kid) if self._age(now) <= KEPT else None
        if found is None and (self._fetching is not None or self._may_try(now)):
            if self._fetching is None:
                self._begin(now)
            assert self._fetching is not None
            await asyncio.shield(self._fetching)
            found = self._find(kid)
        if self._age(asyncio.get_running_loop().time()) > KEPT:
            raise Unavailable("The keys of this token's issuer cannot be fetched now; retry shortly.")
        if found is None:
            raise Unauthenticated("The token is signed with a key that its issuer does not have.")
        return found

    def _age(self, now: float) -> float:
        return float("inf") if self._fetched_at is None else now - self._fetched_at

    def _may_try(self, now: float) -> bool:
        return self._fetching is None and (self._tried_at is None or now - self._tried_at >= COOLDOWN)

    def _find(self, kid: str | None) -> PinnedKey | None:
        if kid is not None:
            return self._keys.get(kid)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def _begin(self, now: float) -> None:
        self._tried_at = now
        self._fetching = asyncio.create_task(self._fetch(), name=f"keys of {self._issuer}")
        self._fetching.add_done_callback(self._done)

    def _done(self, _: "asyncio.Task[None]") -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        try:
            if self._url is None:
                self._url = await _located(self._issuer)
            document = await fetch.get(self._url)
            keys = _pinned(document)
        except fetch.FetchError as error:
            _log.warning("issuer_keys_not_fetched", extra={"issuer": self._issuer, "why": str(error)})
            return
        except Exception:  # whatever a stranger's document does to a parser
            _log.exception("issuer_keys_unreadable", extra={"issuer": self._issuer})
            return
        self._fetched_at = asyncio.get_running_loop().time()
        if document != self._document:
            self.generation += 1
        self._document, self._keys = document, keys


def _pinned(document: dict[str, Any]) -> dict[str, PinnedKey]:
    """Return the keys of a JWKS that verify tokens, by id; a key without one is under ""."""
    found: dict[str, PinnedKey] = {}
    listed = document.get("keys")
    for given in cast("list[Any]", listed)[:MOST] if isinstance(listed, list) else ():
        algorithm = _algorithm(given)
        if algorithm is None:
            continue
        try:
            key = jwt.PyJWK(given, algorithm)
        except jwt.PyJWTError:
            continue
        if getattr(key.key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS and given["kty"] == "RSA":
            continue
        found[str(given.get("kid", ""))] = PinnedKey(key.key, algorithm)
    return found


def _algorithm(given: Any) -> str | None:
    """Return the algorithm that a JWK is for, None if it verifies no tokens of ours."""
    if not isinstance(given, dict):
        return None
    key = cast("dict[str, Any]", given)
    kind, operations = key.get("kty"), key.get("key_ops")
    if kind not in _ALGORITHMS or key.get("use", "sig") != "sig":
        return None
    if isinstance(operations, list) and "verify" not in operations:
        return None
    meant = "RS256" if kind == "RSA" else _BY_CURVE.get(str(key.get("crv")))
    named = key.get("alg", meant)
    if kind != "RSA" and named not in (meant, "Ed25519"):
        # An elliptic curve is for one algorithm only.
        return None
    if kind == "OKP":
        return meant
    return named if named in _ALGORITHMS[str(kind)] else None


async def _located(issuer: str) -> str:
    """Return where an issuer's keys are, by its metadata (RFC 8414, 3; OpenID Connect Discovery, 4).

    Raises:
        FetchError: it does not say.
    """
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    last = fetch.FetchError(f"{parts.netloc} has no metadata")
    for url in (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    ):
        try:
            document = await fetch.get(url)
        except fetch.FetchError as error:
            last = error
            continue
        found = document.get("jwks_uri")
        if document.get("issuer") != issuer or not isinstance(found, str):
            last = fetch.FetchError(f"the metadata of {parts.netloc} is another issuer's, or names no keys")
        elif urlsplit(found).scheme != "https" and urlsplit(found).netloc != parts.netloc:
            last = fetch.FetchError(f"{parts.netloc} has its keys at an address that is not https")
        else:
            return found
    raise last
