"""Who calls: the only makers of `Principal`, once per request."""

from typing import NamedTuple

from broker.directory import Directory
from broker.http.auth.challenge import Challenge
from broker.http.auth.gate import ClosedGate, Gate
from broker.http.auth.keys import KeyAuth
from broker.http.auth.open import OpenGate
from broker.settings import Settings

__all__ = ["Auth", "build"]


class Auth(NamedTuple):
    """The way in, and what its metadata says."""

    gate: Gate
    challenge: Challenge


def build(settings: Settings, directory: Directory) -> Auth:
    """Return the gate of the mode that is set.

    Raises:
        Misconfigured: settings that do not fit together.
    """
    mode = settings.auth.mode
    if mode == "open":
        return Auth(OpenGate(settings.auth), Challenge())
    keys = KeyAuth(directory) if mode in ("keys", "keys+oauth") else None
    challenge = Challenge()
    gate = ClosedGate(directory, challenge, keys=keys, tokens=None, accepts_unlisted=False)
    return Auth(gate, challenge)
