"""What an installation holds as lines of JSON, a record each: what `broker export` writes and `import` reads.

Pure. Rules:

1. Contents, descriptions and digests are kept byte for byte, so that a publisher who publishes the same again
   after a move changes nothing and tells nobody.
2. The first line says what the file is, the last one how much it holds: a file that was cut is found out.
3. A line that cannot be read is refused with its number and never guessed at.
4. What is read is spliced into answers, and decides who may do what, as it stands: so it is checked as if a
   publisher or an administrator had said it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from broker.core.errors import BadRequest, BrokerError
from broker.core.identity import ResourceKey, TenantId, check_tenant, check_uri
from broker.core.publication import MAX_RULE_BYTES, Publication, check_version, encode_json
from broker.core.tenancy import KeyRecord, Limits, State, Tenant, check_key_name, check_key_scopes

FORMAT = 1
"""Of the file; a reader refuses what is newer."""

MAX_HEADER_BYTES = 10_000
MAX_LINE_BYTES = 1_200_000_000
"""Of what is read: contents of 500 MB, the most that a broker can be set to, take twice as much here."""

_DIGEST = re.compile(r"[0-9a-f]{56}s?t?p?")
_KEY_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[!-~]+")
"""Of a rule (core/access.py)."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. The rest of it is for people."""

    release: str
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class TenantLine:
    """A tenant with its keys by digest."""

    tenant: Tenant
    keys: Mapping[str, KeyRecord]


@dataclass(frozen=True, slots=True)
class ResourceLine:
    """A published resource. `expires_ms` is Unix time, None for one that stays."""

    publication: Publication
    version: int | None
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class End:
    """The last line: how many lines of each kind there were."""

    tenants: int
    resources: int


Line = Header | TenantLine | ResourceLine | End


def encode(line: Line) -> bytes:
    """Return a record as one line."""
    match line:
        case Header():
            shown: dict[str, Any] = {"is": "header", **asdict(line)}
        case TenantLine(tenant, keys):
            shown = {
                "is": "tenant",
                "id": tenant.id,
                "record": json.loads(tenant.encode()),
                "keys": {digest: json.loads(key.encode()) for digest, key in keys.items()},
            }
        case ResourceLine(publication, version, expires_ms):
            shown = {
                "is": "resource",
                "tenant": publication.key.tenant,
                "uri": publication.key.uri,
                "digest": publication.digest,
                "meta": publication.meta.decode(),
                "body": publication.body.decode(),
                "rule": list(publication.scopes),
                "ttl_ms": publication.ttl_ms,
                "cache_scope": publication.cache_scope,
                "version": version,
                "expires_ms": expires_ms,
            }
        case End():
            shown = {"is": "end", **asdict(line)}
    return encode_json(shown) + b"\n"


def decode(text: bytes, number: int) -> Line:
    """Read line `number` of a file.

    Raises:
        BadRequest: it is none of ours.
    """
    try:
        given: dict[str, Any] = json.loads(text)
        match given.pop("is"):
            case "header":
                return _header(given)
            case "tenant":
                return _tenant(given)
            case "resource":
                return _resource(given)
            case "end":
                return End(int(given["tenants"]), int(given["resources"]))
            case _:
                raise BadRequest("of no kind that this release knows")
    except BrokerError as error:
        raise BadRequest(f"Line {number} cannot be imported: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadRequest(
            f"Line {number} is not a line of `broker export` ({type(error).__name__}); is the file whole?"
        ) from None


def _header(given: Mapping[str, Any]) -> Header:
    if given["format"] > FORMAT:
        raise BadRequest(f"format {given['format']} is of a newer release; import with that one.")
    return Header(str(given["release"]), int(given["format"]))


def _tenant(given: Mapping[str, Any]) -> TenantLine:
    name = check_tenant(given["id"])
    tenant = Tenant.decode(name, json.dumps(given["record"]).encode())
    Limits.read(tenant.limits.given())
    check_version(tenant.created_ms)
    if tenant.state is State.DELETING:
        raise BadRequest("a tenant that is being deleted.")
    keys = {digest: KeyRecord.decode(json.dumps(key).encode()) for digest, key in given["keys"].items()}
    for digest, key in keys.items():
        _check_key(name, digest, key)
    return TenantLine(tenant, keys)


def _check_key(tenant: TenantId, digest: str, key: KeyRecord) -> None:
    if key.tenant != tenant:
        raise BadRequest("a key of another tenant.")
    if not _KEY_DIGEST.fullmatch(digest):
        raise BadRequest("a key without its digest.")
    check_key_name(key.id)
    check_key_name(key.name)
    check_key_scopes(key.scopes)
    check_version(key.created_ms)
    check_version(key.expires_ms)


def _resource(given: Mapping[str, Any]) -> ResourceLine:
    key = ResourceKey(TenantId(check_tenant(given["tenant"])), check_uri(given["uri"]))
    meta, body = _json(given["meta"]), _json(given["body"])
    if not (_is_meta(meta, key) and _is_body(body) and _DIGEST.fullmatch(given["digest"])):
        raise BadRequest("its description, contents or digest are not what they were.")
    if given["cache_scope"] not in (None, "public", "private"):
        raise BadRequest("its cache_scope is neither public nor private.")
    publication = Publication(
        key,
        given["meta"].encode(),
        given["body"].encode(),
        _rule(given["rule"]),
        check_version(given["ttl_ms"]),
        given["cache_scope"],
        given["digest"],
    )
    return ResourceLine(publication, check_version(given["version"]), check_version(given["expires_ms"]))


def _json(text: str) -> Any:
    """Read JSON as we encode it, and no other: answers and frames hold it as it stands."""
    value = json.loads(text)
    if encode_json(value) != text.encode():
        raise BadRequest("its description or contents are not encoded as a broker does.")
    return value


def _is_meta(meta: Any, key: ResourceKey) -> bool:
    return isinstance(meta, dict) and cast("Any", meta).get("uri") == key.uri


def _is_body(body: Any) -> bool:
    return isinstance(body, list) and all(isinstance(entry, dict) for entry in cast("list[Any]", body))


def _rule(given: Any) -> tuple[str, ...]:
    """Return a rule's words; one that is no rule must not open what was closed."""
    words = cast("list[str]", given)
    if not isinstance(given, list) or not all(_WORD.fullmatch(word) for word in words):
        raise BadRequest("its rule is not what it was.")
    if len(" ".join(words)) > MAX_RULE_BYTES:
        raise BadRequest("its rule is longer than any.")
    return tuple(words)
