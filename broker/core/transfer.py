"""What an installation holds as lines of JSON, a record each: what `broker export` writes and `import` reads.

Pure. Rules:

1. Contents, descriptions and digests are kept byte for byte, so that a publisher who publishes the same again
   after a move changes nothing and tells nobody.
2. The first line says what the file is, the last one how much it holds: a file that was cut is found out.
3. A line that cannot be read is refused with its number and never guessed at.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from broker.core.errors import BadRequest
from broker.core.identity import ResourceKey, TenantId, check_tenant, check_uri
from broker.core.publication import CacheScope, Publication, encode_json
from broker.core.tenancy import KeyRecord, Tenant

FORMAT = 1
"""Of the file; a reader refuses what is newer."""

_DIGEST = re.compile(r"[0-9a-f]{56}[stp]*")


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
    except BadRequest as error:
        raise BadRequest(f"Line {number} cannot be imported: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
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
    keys = {digest: KeyRecord.decode(json.dumps(key).encode()) for digest, key in given["keys"].items()}
    if any(key.tenant != name for key in keys.values()):
        raise BadRequest("a key of another tenant.")
    return TenantLine(tenant, keys)


def _resource(given: Mapping[str, Any]) -> ResourceLine:
    key = ResourceKey(TenantId(check_tenant(given["tenant"])), check_uri(given["uri"]))
    meta, body = json.loads(given["meta"]), json.loads(given["body"])
    if not (isinstance(meta, dict) and isinstance(body, list) and _DIGEST.fullmatch(given["digest"])):
        raise BadRequest("its description, contents or digest are not what they were.")
    publication = Publication(
        key,
        given["meta"].encode(),
        given["body"].encode(),
        tuple(cast("list[str]", given["rule"])),
        given["ttl_ms"],
        cast("CacheScope | None", given["cache_scope"]),
        given["digest"],
    )
    return ResourceLine(publication, given["version"], given["expires_ms"])
