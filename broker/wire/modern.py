"""MCP 2026-07-28: each request stands alone.

A request is judged in this order, so that each mistake gets its own answer (2026-07-28, "Server
Validation"): `_meta` (-32602), headers that contradict the body (-32020), version (-32022), method (-32601),
params (-32602). Notifications are accepted and ignored; posted responses and batches are refused.
Results and acknowledgements carry the revisions of extension.py.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from broker.core.errors import (
    BadRequest,
    BrokerError,
    InvalidUri,
    LimitReached,
    ResourceNotFound,
    SessionNotFound,
    Unavailable,
)
from broker.core.revision import Stamp
from broker.wire import encoding, extension, params
from broker.wire.cue import META_SUBSCRIPTION
from broker.wire.encoding import RequestId, dumps, encode_id
from broker.wire.era import META_CAPABILITIES, META_CLIENT, META_VERSION, MODERN_VERSION
from broker.wire.jsonrpc import Message, Notification, Request
from broker.wire.mirror import check_mirror
from broker.wire.operations import (
    Acknowledge,
    Discover,
    Listen,
    Listing,
    Operation,
)
from broker.wire.refusal import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LIMIT_REACHED,
    METHOD_NOT_FOUND,
    UNAVAILABLE,
    Refusal,
)
from broker.wire.requests import SHARED, Decoder, is_offered
from broker.wire.server import BROKER, EVERYTHING, Offers, ServerInfo

UNSUPPORTED_VERSION = -32022

META_SERVER = "io.modelcontextprotocol/serverInfo"

DISCOVER_TTL_MS = 300_000
"""How long discover's answer may be kept, by anybody: it depends on settings only."""

RETRY_AFTER_SECONDS = 1

CacheScope = Literal["private", "public"]


# --- Requests ---------------------------------------------------------------------------------------------


def decode(
    message: Message | Sequence[Message], headers: Mapping[str, str], offers: Offers = EVERYTHING
) -> Operation:
    """Return what the client asks. `headers` have lower-case names and Latin-1 values.

    Raises:
        Refusal: in the order of checks given above.
    """
    if isinstance(message, Notification):
        return Acknowledge()
    if not isinstance(message, Request):
        raise Refusal(
            400,
            INVALID_REQUEST,
            f"In protocol version {MODERN_VERSION} a POST carries one request or one notification.",
        )
    meta = _meta(message)
    check_mirror(message, meta, headers)
    version = meta[META_VERSION]
    if version != MODERN_VERSION:
        raise Refusal(
            400,
            UNSUPPORTED_VERSION,
            f"Protocol version {params.shown(version)} is not supported here; use {MODERN_VERSION}, "
            "or begin a session of an earlier version with initialize.",
            data={"supported": [MODERN_VERSION], "requested": version},
            id=message.id,
        )
    decoder = _DECODERS.get(message.method) if is_offered(message.method, offers) else None
    if decoder is None:
        raise Refusal(404, METHOD_NOT_FOUND, _no_method(message.method), id=message.id)
    return _decode_params(message, decoder)


def _meta(request: Request) -> dict[str, Any]:
    """Check the `_meta` members of a request (2026-07-28, "Per-request protocol fields")."""
    try:
        meta = params.members(request.params, "_meta")
        params.text(meta, META_VERSION)
        params.members(meta, META_CAPABILITIES)
        if META_CLIENT in meta:
            client = params.members(meta, META_CLIENT)
            params.text(client, "name")
            params.text(client, "version")
    except params.UnfitParams as problem:
        raise Refusal(
            400,
            INVALID_PARAMS,
            f'The request\'s "_meta" is incomplete: {problem} Each request of version {MODERN_VERSION} '
            f'carries "{META_VERSION}" and "{META_CAPABILITIES}".',
            id=request.id,
        ) from None
    return meta


def _decode_params(request: Request, decoder: Decoder) -> Operation:
    try:
        return decoder(request.params)
    except params.UnfitParams as problem:
        raise Refusal(
            400, INVALID_PARAMS, f"The params of {request.method} do not fit: {problem}", id=request.id
        ) from None
    except InvalidUri as problem:
        raise refused(request.id, problem) from None


def _discover(_: dict[str, Any]) -> Discover:
    return Discover()


def _listen(given: dict[str, Any]) -> Listen:
    """Read subscriptions/listen (2026-07-28, "Notification Filter"); what we do not know is not asked."""
    wanted = params.members(given, "notifications")
    for name in ("toolsListChanged", "promptsListChanged", "resourcesListChanged"):
        if not isinstance(wanted.get(name, False), bool):
            raise params.UnfitParams(f'"{name}" must be true or false.')
    uris = params.uris(wanted.get("resourceSubscriptions", []), "resourceSubscriptions")
    meta = given["_meta"]
    wants_list = wanted.get("resourcesListChanged", False)
    return Listen(uris, wants_list, extension.known(meta), extension.covered(meta))


_DECODERS: Mapping[str, Decoder] = {
    **SHARED,
    "server/discover": _discover,
    "subscriptions/listen": _listen,
}

_INSTEAD = {
    "initialize": "it belongs to the earlier versions; ask server/discover",
    "ping": "it belongs to the earlier versions",
    "logging/setLevel": "it belongs to the earlier versions",
    "resources/subscribe": "send subscriptions/listen",
    "resources/unsubscribe": "close the stream of subscriptions/listen",
}


def _no_method(method: str) -> str:
    instead = _INSTEAD.get(method)
    return f"There is no method {params.shown(method)} here" + (f": {instead}." if instead else ".")


# --- Answers ----------------------------------------------------------------------------------------------


def discovered(request_id: RequestId, server: ServerInfo = BROKER, offers: Offers = EVERYTHING) -> bytes:
    """The answer to server/discover."""
    body: dict[str, object] = {
        "resultType": "complete",
        "supportedVersions": [MODERN_VERSION],
        "capabilities": offers.capabilities(),
        "ttlMs": DISCOVER_TTL_MS,
        "cacheScope": "public",
        "_meta": {META_SERVER: server.members()},
    }
    return encoding.result(request_id, dumps(body))


def listed(
    request_id: RequestId,
    kind: Listing,
    items: Sequence[bytes],
    next_cursor: str | None = None,
    *,
    ttl_ms: int = 0,
    cache_scope: CacheScope = "private",
    stamp: Stamp | None = None,
    server: ServerInfo = BROKER,
) -> bytes:
    """One page of a list. `items` are JSON objects already; without a `next_cursor` it is the last page."""
    more = b"" if next_cursor is None else b',"nextCursor":%b' % dumps(next_cursor)
    return encoding.result(
        request_id,
        b'{"resultType":"complete","%b":[%b]%b,%b,%b}'
        % (kind.encode(), b",".join(items), more, _hints(ttl_ms, cache_scope), _signature(server, stamp)),
    )


def read(
    request_id: RequestId,
    contents: bytes,
    ttl_ms: int = 0,
    cache_scope: CacheScope = "private",
    stamp: Stamp | None = None,
    *,
    server: ServerInfo = BROKER,
) -> bytes:
    """The answer to resources/read. `contents` is a JSON array already and is spliced in as it stands."""
    return encoding.result(
        request_id,
        b'{"resultType":"complete","contents":%b,%b,%b}'
        % (contents, _hints(ttl_ms, cache_scope), _signature(server, stamp)),
    )


def completed(
    request_id: RequestId,
    values: Sequence[str],
    total: int | None = None,
    has_more: bool | None = None,  # noqa: FBT001 - a member of the result, like the two before it
    *,
    server: ServerInfo = BROKER,
) -> bytes:
    """The answer to completion/complete: the first 100 values (2026-07-28, "CompleteResult")."""
    body = b'{"resultType":"complete","completion":%b,%b}' % (
        dumps(params.completion(values, total, has_more)),
        _signature(server, None),
    )
    return encoding.result(request_id, body)


def acknowledged(
    request_id: RequestId,
    uris: Sequence[str],
    wants_list: bool,  # noqa: FBT001 - the second half of the filter
    stamps: Mapping[str, Stamp] | None = None,
    token: str = "",
) -> bytes:
    """The first message of a listen: what of its filter is honoured, and at which revisions.

    `stamps` and `token` are those of extension.py; without stamps there is neither.
    """
    honoured: dict[str, object] = {}
    if wants_list:
        honoured["resourcesListChanged"] = True
    if uris:
        honoured["resourceSubscriptions"] = list(uris)
    revisions = b""
    if stamps:
        told = {extension.REVISIONS: extension.revisions(stamps), extension.TOKEN: token}
        revisions = b"," + dumps(told)[1:-1]
    return (
        b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"%b":%b%b},'
        b'"notifications":%b}}'
        % (META_SUBSCRIPTION.encode(), encode_id(request_id), revisions, dumps(honoured))
    )


def finished(request_id: RequestId, *, server: ServerInfo = BROKER) -> bytes:
    """The last message of a listen that we end (2026-07-28, "Graceful Closure")."""
    body = b'{"resultType":"complete","_meta":{"%b":%b,"%b":%b}}' % (
        META_SUBSCRIPTION.encode(),
        encode_id(request_id),
        META_SERVER.encode(),
        _server(server),
    )
    return encoding.result(request_id, body)


def _hints(ttl_ms: int, cache_scope: CacheScope) -> bytes:
    """The caching hints of a cacheable result (2026-07-28, "Caching")."""
    return b'"ttlMs":%d,"cacheScope":"%b"' % (max(ttl_ms, 0), cache_scope.encode())


def _signature(server: ServerInfo, stamp: Stamp | None) -> bytes:
    """The `_meta` of a result: who answers, and at which revision."""
    revision = b"" if stamp is None else b',"%b":%b' % (extension.REVISION.encode(), dumps(str(stamp)))
    return b'"_meta":{"%b":%b%b}' % (META_SERVER.encode(), _server(server), revision)


@lru_cache(maxsize=8)
def _server(server: ServerInfo) -> bytes:
    return dumps(server.members())


# --- Errors -----------------------------------------------------------------------------------------------


def refused(request_id: RequestId | None, error: BrokerError, *, is_listen: bool = False) -> Refusal:
    """The answer to a request that the broker refuses or fails at.

    The status follows the code: 400 for the request's own mistakes, else 200, since clients lose the code of
    any other status. A listen that is refused before its acknowledgement is the exception (`is_listen`):
    there 429 and 503 with Retry-After keep clients from believing that listening is not offered.
    """
    if isinstance(error, ResourceNotFound):
        return Refusal(400, INVALID_PARAMS, error.public, data={"uri": error.uri}, id=request_id)
    if isinstance(error, InvalidUri):
        return Refusal(400, INVALID_PARAMS, error.public, data=params.shown_uri(error), id=request_id)
    if isinstance(error, (BadRequest, SessionNotFound)):
        return Refusal(400, INVALID_PARAMS, error.public, id=request_id)
    if isinstance(error, LimitReached):
        return _try_later(429 if is_listen else 200, LIMIT_REACHED, error, request_id)
    if isinstance(error, Unavailable):
        return _try_later(503 if is_listen else 200, UNAVAILABLE, error, request_id)
    return Refusal(200, INTERNAL_ERROR, error.public, data=params.kind(error), id=request_id)


def _try_later(status: int, code: int, error: BrokerError, request_id: RequestId | None) -> Refusal:
    seconds = error.retry_after if isinstance(error, LimitReached) else None
    wait = b"%d" % (RETRY_AFTER_SECONDS if seconds is None else math.ceil(seconds))
    return Refusal(
        status,
        code,
        error.public,
        data=params.kind(error),
        id=request_id,
        headers=() if status == 200 else ((b"retry-after", wait),),  # noqa: PLR2004 - HTTP's own number
    )
