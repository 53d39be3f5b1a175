"""MCP 2025-03-26, 2025-06-18 and 2025-11-25: initialize, then a session.

Inside a live session each well-formed request is answered with HTTP 200, errors too: Python 1.x clients lose
the whole session on any other status (design section 5, decision 12). Other statuses remain for what the
session's life and the envelope are about: 404 for a session that is gone, 400 for a broken envelope, a batch
where there are none, or a wrong version header.
"""

from collections.abc import Mapping, Sequence
from typing import Any

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
from broker.wire.encoding import RequestId, dumps
from broker.wire.era import HANDSHAKE_VERSIONS
from broker.wire.jsonrpc import Message, Notification, Request, Response
from broker.wire.operations import (
    Acknowledge,
    Initialize,
    Listing,
    Operation,
    Ping,
    SetLevel,
    Subscribe,
    Unsubscribe,
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

LATEST_VERSION = HANDSHAKE_VERSIONS[-1]
BATCH_VERSION = "2025-03-26"
"""The only revision with batches (removed in 2025-06-18)."""
TITLE_VERSION = "2025-06-18"
"""The first revision in which a server has a title."""
PRIMING_VERSION = "2025-11-25"
"""The first revision whose clients expect a priming event."""

RESOURCE_NOT_FOUND = -32002

LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


def negotiate(requested: str) -> str:
    """Return the version of a new session: what was asked for, or the latest that we have."""
    return requested if requested in HANDSHAKE_VERSIONS else LATEST_VERSION


def check_version_header(value: str | None, request_id: RequestId | None = None) -> None:
    """Check the version header of a request in a session; the session's own version decides what it means.

    Without one the session's version holds. Another version of this era than the negotiated one is
    tolerated: clients exist that go on sending the one they had asked for.

    Raises:
        Refusal: 400, a value that no session can have.
    """
    if value is None or value.strip(" \t") in HANDSHAKE_VERSIONS:
        return
    raise Refusal(
        400,
        INVALID_REQUEST,
        f"The MCP-Protocol-Version header {params.shown(value)} is not of a session; "
        f"it must be one of {', '.join(HANDSHAKE_VERSIONS)}.",
        id=request_id,
    )


def check_batch(messages: Sequence[Message], version: str) -> None:
    """Check that a session of `version` may send these messages as a batch.

    Raises:
        Refusal: 400, a version without batches, or a batch with initialize in it.
    """
    if version != BATCH_VERSION:
        raise Refusal(
            400,
            INVALID_REQUEST,
            f"Batches exist only in protocol version {BATCH_VERSION}, and this session speaks {version}; "
            "send each message in a POST of its own.",
        )
    if any(isinstance(message, Request) and message.method == "initialize" for message in messages):
        raise Refusal(400, INVALID_REQUEST, "initialize must be sent alone, not in a batch.")


# --- Requests ---------------------------------------------------------------------------------------------


def decode(message: Message, version: str, offers: Offers = EVERYTHING) -> Operation:
    """Return what the client asks, in a session of `version` (or before one, for initialize).

    Raises:
        Refusal: 200 with -32601 or -32602, or the code of a resource that cannot be found.
    """
    del version  # the three revisions ask for the same; batches are `check_batch`'s
    if isinstance(message, (Notification, Response)):
        return Acknowledge()
    decoder = _DECODERS.get(message.method) if is_offered(message.method, offers) else None
    if decoder is None:
        raise Refusal(
            200, METHOD_NOT_FOUND, f"There is no method {params.shown(message.method)} here.", id=message.id
        )
    try:
        return decoder(message.params)
    except params.UnfitParams as problem:
        raise Refusal(
            200, INVALID_PARAMS, f"The params of {message.method} do not fit: {problem}", id=message.id
        ) from None
    except InvalidUri as problem:
        raise _refused_uri(message, problem) from None


def _refused_uri(request: Request, problem: InvalidUri) -> Refusal:
    """Refuse an invalid URI. To a read it is a resource that cannot be found, and says what is wrong."""
    refusal = refused(request.id, problem)
    if request.method == "resources/read":
        refusal.code = RESOURCE_NOT_FOUND
    return refusal


def _initialize(given: dict[str, Any]) -> Initialize:
    """Read initialize. Capabilities and client's name may be missing: nothing of ours depends on them."""
    for name in ("capabilities", "clientInfo"):
        if name in given:
            params.members(given, name)
    return Initialize(params.text(given, "protocolVersion"))


def _ping(_: dict[str, Any]) -> Ping:
    return Ping()


def _set_level(given: dict[str, Any]) -> SetLevel:
    level = params.text(given, "level")
    if level not in LEVELS:
        raise params.UnfitParams(f'"level" must be one of {", ".join(sorted(LEVELS))}.')
    return SetLevel(level)


def _subscribe(given: dict[str, Any]) -> Subscribe:
    return Subscribe(params.uri(given))


def _unsubscribe(given: dict[str, Any]) -> Unsubscribe:
    return Unsubscribe(params.uri(given))


_DECODERS: Mapping[str, Decoder] = {
    **SHARED,
    "initialize": _initialize,
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}


# --- Answers ----------------------------------------------------------------------------------------------


def initialized(
    request_id: RequestId, version: str, server: ServerInfo = BROKER, offers: Offers = EVERYTHING
) -> bytes:
    """The answer to initialize, in the negotiated `version`."""
    capabilities = offers.capabilities()
    if offers.has_logging:
        capabilities["logging"] = {}
    about = server.members()
    if version < TITLE_VERSION:
        about.pop("title", None)
    body = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": about}
    return encoding.result(request_id, dumps(body))


def listed(
    request_id: RequestId, kind: Listing, items: Sequence[bytes], next_cursor: str | None = None
) -> bytes:
    """One page of a list. `items` are JSON objects already; without a `next_cursor` it is the last page."""
    more = b"" if next_cursor is None else b',"nextCursor":%b' % dumps(next_cursor)
    return encoding.result(request_id, b'{"%b":[%b]%b}' % (kind.encode(), b",".join(items), more))


def read(request_id: RequestId, contents: bytes, stamp: Stamp | None = None) -> bytes:
    """The answer to resources/read. `contents` is a JSON array already and is spliced in as it stands."""
    meta = b""
    if stamp is not None:
        meta = b',"_meta":{"%b":%b}' % (extension.REVISION.encode(), dumps(str(stamp)))
    return encoding.result(request_id, b'{"contents":%b%b}' % (contents, meta))


def completed(
    request_id: RequestId,
    values: Sequence[str],
    total: int | None = None,
    has_more: bool | None = None,  # noqa: FBT001 - a member of the result, like the two before it
) -> bytes:
    """The answer to completion/complete: the first 100 values."""
    return encoding.result(request_id, dumps({"completion": params.completion(values, total, has_more)}))


def empty(request_id: RequestId) -> bytes:
    """The answer to what has no result: exactly {}, whose members some clients count."""
    return encoding.result(request_id, b"{}")


# --- Errors -----------------------------------------------------------------------------------------------


def refused(request_id: RequestId | None, error: BrokerError) -> Refusal:
    """The answer to a request of a session that the broker refuses or fails at (decision 12)."""
    if isinstance(error, SessionNotFound):
        return Refusal(404, INVALID_REQUEST, error.public, id=request_id)
    if isinstance(error, ResourceNotFound):
        return Refusal(200, RESOURCE_NOT_FOUND, error.public, data={"uri": error.uri}, id=request_id)
    if isinstance(error, InvalidUri):
        return Refusal(200, INVALID_PARAMS, error.public, data=params.shown_uri(error), id=request_id)
    if isinstance(error, BadRequest):
        return Refusal(200, INVALID_PARAMS, error.public, id=request_id)
    code = INTERNAL_ERROR
    if isinstance(error, LimitReached):
        code = LIMIT_REACHED
    elif isinstance(error, Unavailable):
        code = UNAVAILABLE
    return Refusal(200, code, error.public, data=params.kind(error), id=request_id)
