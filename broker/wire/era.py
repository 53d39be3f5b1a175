"""Which protocol era a request speaks, decided for each request alone (design section 5).

A body with modern `_meta` is modern, whatever session it names; else `initialize` begins a session; else a
session id belongs to one; else a version header that no session can have is the modern era's to refuse.
"""

import enum
from collections.abc import Mapping, Sequence

from broker.wire.jsonrpc import Message, Notification, Request
from broker.wire.refusal import INVALID_REQUEST, Refusal

MODERN_VERSION = "2026-07-28"
HANDSHAKE_VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")

VERSION_HEADER = "mcp-protocol-version"
SESSION_HEADER = "mcp-session-id"

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Era(enum.Enum):
    """The two shapes of MCP over HTTP."""

    MODERN = "modern"
    """2026-07-28: each request stands alone."""
    HANDSHAKE = "handshake"
    """2025-03-26 to 2025-11-25: initialize, then a session."""


def choose(
    http_method: str, headers: Mapping[str, str], message: Message | Sequence[Message] | None = None
) -> Era:
    """Return the era of a request. `headers` have lower-case names; `message` is the parsed body of a POST.

    Raises:
        Refusal: 405 for what the era or the endpoint does not have, 400 where no era can be found.
    """
    if http_method == "POST":
        return _of_post(headers, message)
    if http_method not in ("GET", "DELETE"):
        raise Refusal(
            405,
            INVALID_REQUEST,
            f"The MCP endpoint has no {http_method!a}; send POST, GET or DELETE.",
            headers=((b"allow", b"GET, POST, DELETE, OPTIONS"),),
        )
    if SESSION_HEADER in headers:
        return Era.HANDSHAKE
    if _version(headers) == MODERN_VERSION:
        raise Refusal(
            405,
            INVALID_REQUEST,
            f"Protocol version {MODERN_VERSION} has only POST; to hear of changes send subscriptions/listen.",
            headers=((b"allow", b"POST"),),
        )
    raise Refusal(
        400,
        INVALID_REQUEST,
        f"{http_method} needs the Mcp-Session-Id header of a session; begin one with initialize.",
    )


def is_modern(message: Message | Sequence[Message] | None) -> bool:
    """Whether the body itself says that it is of the modern era: one of its three `_meta` members."""
    if not isinstance(message, (Request, Notification)):
        return False
    meta = message.params.get("_meta")
    return isinstance(meta, dict) and (
        META_VERSION in meta or META_CAPABILITIES in meta or META_CLIENT in meta
    )


def _of_post(headers: Mapping[str, str], message: Message | Sequence[Message] | None) -> Era:
    if is_modern(message):
        return Era.MODERN
    if isinstance(message, Request) and message.method == "initialize":
        return Era.HANDSHAKE
    if SESSION_HEADER in headers:
        return Era.HANDSHAKE
    version = _version(headers)
    if version is not None and version not in HANDSHAKE_VERSIONS:
        return Era.MODERN
    raise Refusal(
        400,
        INVALID_REQUEST,
        "The request belongs to no session: send initialize first and then its Mcp-Session-Id header, "
        f"or speak {MODERN_VERSION} with its _meta members and headers in each request.",
        id=message.id if isinstance(message, Request) else None,
    )


def _version(headers: Mapping[str, str]) -> str | None:
    value = headers.get(VERSION_HEADER)
    return None if value is None else value.strip(" \t")
