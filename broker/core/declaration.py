"""What workers and brokers say to each other: declarations, calls and results, as values and as bytes.

Pure. Both sides may be of neighbouring releases, so: a decoder takes what it knows and ignores the rest, and
what is left out has its default. What clients will read (`meta`, contents) is encoded once, by the worker,
and travels as it is.

A result begins with one byte that says its kind; contents follow it raw, since a megabyte of JSON inside of
JSON would be escaped and parsed for nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

from broker.core.publication import CacheScope

Kind = Literal["read", "list", "complete"]
Reason = Literal["not_found", "invalid", "internal", "forbidden"]

MAX_COMPLETIONS = 100
"""The most values that a completion may carry (2026-07-28, "Completion Results")."""

_SCALARS = ("ttl_ms", "cache_scope", "is_personal", "has_list", "wants_demand")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A resource or a template that a worker serves."""

    uri: str
    """The fixed URI, or the template's text."""
    is_template: bool
    meta: bytes
    """One JSON object, exactly as resources/list or resources/templates/list shows it."""
    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None
    scopes: frozenset[str] = frozenset()
    """Required of whoever lists, reads or hears of it."""
    is_personal: bool = False
    """The result depends on the caller: it is never shared between subjects."""
    has_list: bool = False
    """A list call returns instances for resources/list."""
    completes: tuple[str, ...] = ()
    """The variables for which a complete call returns values."""
    wants_demand: bool = False
    """The worker asks to be told when the first watcher comes and the last one has left."""

    def encode(self) -> bytes:
        """Return it as compact JSON."""
        said: dict[str, Any] = {"uri": self.uri, "is_template": self.is_template, "meta": self.meta.decode()}
        said |= {name: getattr(self, name) for name in _SCALARS if getattr(self, name)}
        if self.ttl_ms is not None:
            said["ttl_ms"] = self.ttl_ms
        if self.scopes:
            said["scopes"] = sorted(self.scopes)
        if self.completes:
            said["completes"] = self.completes
        return _dump(said)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote, in this release or a neighbouring one.

        Raises:
            ValueError: for anything else.
        """
        said = _load(data, "declaration")
        known = {name: said[name] for name in _SCALARS if name in said}
        try:
            return cls(
                uri=said["uri"],
                is_template=said["is_template"],
                meta=said["meta"].encode(),
                scopes=frozenset(said.get("scopes", ())),
                completes=tuple(said.get("completes", ())),
                **known,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a declaration: {error!r}") from None


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One call of a worker's function."""

    kind: Kind
    declared: str
    """`Declaration.uri` of what is called."""
    uri: str
    """The URI to read, exactly as the client wrote it; `declared` for the other kinds."""
    tenant: str
    subject: str
    scopes: frozenset[str] | None
    """The caller's; None for the development mode's caller, who may do everything."""
    deadline: float
    """In Unix seconds: an answer after this is of no use."""
    argument: str = ""
    """The variable to complete."""
    value: str = ""
    """What of it the user has typed."""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    """The values already chosen for other variables."""
    trace: str | None = None
    """A W3C traceparent."""
    id: str = ""
    """Names the call in logs; the worker makes one up if it is empty."""

    def encode(self) -> bytes:
        """Return it as compact JSON."""
        said: dict[str, Any] = {
            "kind": self.kind,
            "declared": self.declared,
            "uri": self.uri,
            "tenant": self.tenant,
            "subject": self.subject,
            "scopes": None if self.scopes is None else sorted(self.scopes),
            "deadline": self.deadline,
        }
        said |= {
            name: getattr(self, name) for name in ("argument", "value", "trace", "id") if getattr(self, name)
        }
        if self.arguments:
            said["arguments"] = dict(self.arguments)
        return _dump(said)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote, in this release or a neighbouring one.

        Raises:
            ValueError: for anything else.
        """
        said = _load(data, "call")
        names = ("kind", "declared", "uri", "tenant", "subject", "deadline")
        more = ("argument", "value", "arguments", "trace", "id")
        try:
            scopes = said["scopes"]
            return cls(
                scopes=None if scopes is None else frozenset(scopes),
                **{name: said[name] for name in names},
                **{name: said[name] for name in more if name in said},
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a call: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Contents:
    """What a read returns: a JSON array of contents entries, each with its URI."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Instances:
    """What a list returns: one JSON object each, exactly as resources/list shows it."""

    metas: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """What a completion returns: at most `MAX_COMPLETIONS` values."""

    values: tuple[str, ...]
    total: int | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result; `message` may be shown to the client."""

    reason: Reason
    message: str
    id: str = ""
    """The call's id, where the operator's log has more under it."""


CallResult = Contents | Instances | Values | Failure


def encode_result(result: CallResult) -> bytes:
    """Return `result` as its kind's byte and what follows."""
    match result:
        case Contents():
            return b"C" + result.body
        case Instances():
            # Encoded JSON of ours has no line separators (publication.py, rule 3).
            return b"I" + b"\n".join(result.metas)
        case Values():
            said: dict[str, Any] = {"values": result.values, "has_more": result.has_more}
            return b"V" + _dump(said | ({} if result.total is None else {"total": result.total}))
        case Failure():
            return b"F" + _dump({"reason": result.reason, "message": result.message, "id": result.id})


def decode_result(data: bytes) -> CallResult:
    """Read what `encode_result` wrote, in this release or a neighbouring one.

    Raises:
        ValueError: for anything else.
    """
    kind, rest = data[:1], data[1:]
    try:
        match kind:
            case b"C":
                return Contents(rest)
            case b"I":
                return Instances(tuple(rest.split(b"\n")) if rest else ())
            case b"V":
                said = _load(rest, "result")
                return Values(tuple(said["values"]), said.get("total"), said.get("has_more", False))
            case b"F":
                said = _load(rest, "result")
                return Failure(said["reason"], said["message"], said.get("id", ""))
            case _:
                raise ValueError(f"not a result: it begins with {kind!r}")
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a result: {error!r}") from None


def _dump(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode()


def _load(data: bytes, what: str) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except RecursionError:
        raise ValueError(f"not a {what}: nested too deeply") from None
    if not isinstance(said, dict):
        raise ValueError(f"not a {what}: no object")  # noqa: TRY004 # what bytes say is a value, not a type
    return cast("dict[str, Any]", said)
