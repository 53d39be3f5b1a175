"""What is known of tenants and their API keys: plain records, and how they are written.

Decoding ignores members that it does not know: an older release reads what a newer one wrote.
"""

import dataclasses
import enum
import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self, cast

from broker.core.access import ADMIN, SCOPES
from broker.core.errors import BadRequest
from broker.core.identity import TenantId
from broker.core.publication import check_scopes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,63}")


class State(enum.StrEnum):
    """Whether a tenant is served. A tenant that is being deleted never comes back."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    DELETING = "deleting"


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may use, over the whole fleet; None leaves a limit to the installation's settings.

    Rates are per second. Those that begin with `principal_` hold for each caller of the tenant by itself.
    """

    streams: int | None = None
    sessions: int | None = None
    stream_uris: int | None = None
    uris: int | None = None
    resources: int | None = None
    content_bytes: int | None = None
    resource_bytes: int | None = None
    publishes: int | None = None
    publish_bytes: int | None = None
    reads: int | None = None
    calls: int | None = None
    principal_streams: int | None = None
    principal_sessions: int | None = None
    principal_reads: int | None = None
    principal_publishes: int | None = None
    principal_publish_bytes: int | None = None

    def over(self, defaults: "Limits") -> "Limits":
        """Return these limits, with `defaults` where one is None."""
        return _merged(self, defaults)

    def given(self) -> dict[str, int]:
        """Return the limits that are set, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return limits by name.

        Raises:
            BadRequest: a name that is none, or a value that is not a whole number of at least 0 (or None).
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise BadRequest(f"There is no limit {name!a}; there are {', '.join(known)}.")
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise BadRequest(f"The limit {name} is a whole number of at least 0, not {value!a}.")
        return cls(**given)


@functools.lru_cache(maxsize=4096)
def _merged(own: Limits, defaults: Limits) -> Limits:
    """Return `own` over `defaults`. Kept, since each request asks for it: 7 % of a read's time went here."""
    return dataclasses.replace(defaults, **own.given())


@dataclasses.dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant. `created_ms` in Unix time."""

    id: TenantId
    state: State = State.ACTIVE
    created_ms: int = 0
    limits: Limits = Limits()

    @property
    def is_served(self) -> bool:
        """Whether its callers are answered."""
        return self.state is State.ACTIVE

    def encode(self) -> str:
        """Return what `decode` reads."""
        return json.dumps({"state": self.state, "created_ms": self.created_ms, "limits": self.limits.given()})

    @classmethod
    def decode(cls, name: str, text: bytes) -> Self:
        """Read what `encode` wrote of the tenant `name`."""
        given = json.loads(text)
        known = {field.name for field in dataclasses.fields(Limits)}
        limits = {name: value for name, value in given.get("limits", {}).items() if name in known}
        return cls(TenantId(name), State(given["state"]), given["created_ms"], Limits(**limits))


@dataclasses.dataclass(frozen=True, slots=True)
class KeyRecord:
    """One API key, without its secret. Times in ms of Unix time; `expires_ms` None never ends.

    Keys of the same `name` in a tenant are the same caller: a rotated key goes on with the sessions of the
    one before.
    """

    id: str
    tenant: TenantId
    name: str
    scopes: tuple[str, ...]
    created_ms: int
    expires_ms: int | None = None

    @property
    def subject(self) -> str:
        """The subject of its principal."""
        return f"key:{self.name}"

    def shown(self) -> dict[str, Any]:
        """Return what its owner is shown."""
        return {**dataclasses.asdict(self), "scopes": list(self.scopes)}

    def encode(self) -> str:
        """Return what `decode` reads."""
        return json.dumps(self.shown())

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Read what `encode` wrote."""
        given = cast("dict[str, Any]", json.loads(text))
        known = {field.name for field in dataclasses.fields(cls)}
        kept: dict[str, Any] = {name: value for name, value in given.items() if name in known}
        kept["scopes"] = tuple(given["scopes"])
        return cls(**kept)


def check_key_name(name: str) -> str:
    """Return `name` if a key may have it.

    Raises:
        BadRequest: with what to change.
    """
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"A key's name has 1 to 64 letters, digits, dots, dashes and underscores, not {name[:80]!a}."
        )
    return name


def check_key_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes of a new key, sorted: ours, and any that the tenant's resources require.

    Raises:
        BadRequest: none at all, or what cannot be a scope.
    """
    checked = check_scopes(scopes)
    if not checked:
        raise BadRequest(f"A key needs at least one scope: {', '.join(sorted(SCOPES))}, or one of your own.")
    if ADMIN in checked and len(checked) > 1:
        raise BadRequest("A key for administration is for nothing else; make another for the other scopes.")
    return checked
