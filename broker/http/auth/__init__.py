"""Who calls: the only makers of `Principal`, once per request."""

from typing import NamedTuple

from broker.core.errors import Misconfigured
from broker.http.auth.challenge import Challenge, canonical
from broker.http.auth.gate import ClosedGate, Gate
from broker.http.auth.keys import KeyAuth
from broker.http.auth.open import OpenGate
from broker.http.auth.tokens import TokenAuth
from broker.settings import Settings
from broker.tenants.directory import Directory

__all__ = ["Auth", "build"]


class Auth(NamedTuple):
    """The way in, and what its metadata says."""

    gate: Gate
    challenge: Challenge
    tokens: TokenAuth | None = None


def build(settings: Settings, directory: Directory) -> Auth:
    """Return the gate of the mode that is set.

    Raises:
        Misconfigured: settings that do not fit together.
    """
    mode = settings.auth.mode
    if mode == "open":
        return Auth(OpenGate(settings.auth), Challenge())
    challenge, tokens = Challenge(), None
    if "oauth" in mode:
        challenge, tokens = _oauth(settings)
    gate = ClosedGate(
        directory,
        challenge,
        keys=KeyAuth(directory) if "keys" in mode else None,
        tokens=tokens,
        accepts_unlisted=settings.oauth.accept_unlisted_tenants,
    )
    return Auth(gate, challenge, tokens)


def _oauth(settings: Settings) -> tuple[Challenge, TokenAuth]:
    if not settings.oauth.issuers:
        raise Misconfigured(
            "OAuth needs at least one authorization server: set BROKER_OAUTH__ISSUERS (docs/tenants.md)."
        )
    issuers = [one.issuer for one in settings.oauth.issuers]
    challenge = Challenge(canonical(settings.oauth.resource), issuers)
    return challenge, TokenAuth(settings.oauth, challenge)
