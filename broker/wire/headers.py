"""What HTTP headers allow: media types, Content-Type, Host, Origin, CORS. Headers have lower-case names.

Rules:

1. Who may call is decided by settings and the Host and Origin headers alone, never by the peer's address:
   behind a proxy or sidecar every peer is the loopback (2026-07-28, "Security & Endpoint").
2. Everything here is checked before a body is parsed: a refusal has no id and has done nothing.
"""

import enum
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from broker.wire.params import shown
from broker.wire.refusal import INVALID_REQUEST, Refusal

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

ANYONE = "*"
"""In a list of hosts or origins: no check."""

_EXPOSED = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
_ALLOWED = (
    b"Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, "
    b"Mcp-Session-Id, traceparent, tracestate, baggage"
)
_METHODS = b"GET, POST, DELETE, OPTIONS"
_PREFLIGHT_SECONDS = b"600"


class Form(enum.Enum):
    """In which form a POST is answered."""

    JSON = "application/json"
    STREAM = "text/event-stream"


# --- Media types ------------------------------------------------------------------------------------------


def accepts(headers: Mapping[str, str], media_type: str) -> bool:
    """Whether the Accept header allows `media_type` (RFC 9110, section 12.5.1); without one, anything.

    The most specific range that matches decides, whatever the order; `q=0` forbids.
    """
    value = headers.get("accept")
    if value is None or not value.strip():
        return True
    kind = media_type.partition("/")[0]
    precedence = {media_type: 3, f"{kind}/*": 2, "*/*": 1}
    best, is_allowed = 0, False
    for part in value.split(","):
        media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
        rank = precedence.get(media_range, 0)
        if rank > best:
            best, is_allowed = rank, _quality(parameters) > 0
        elif rank == best != 0:
            is_allowed = is_allowed or _quality(parameters) > 0
    return is_allowed


def answer_form(headers: Mapping[str, str]) -> Form:
    """Return the form of a plain answer: JSON where it is accepted, else an event stream.

    Raises:
        Refusal: 406, neither is accepted.
    """
    if accepts(headers, JSON):
        return Form.JSON
    if accepts(headers, EVENT_STREAM):
        return Form.STREAM
    raise Refusal(
        406,
        INVALID_REQUEST,
        f"The Accept header {shown(headers['accept'])} allows no answer of ours; "
        f"accept {JSON} and {EVENT_STREAM}.",
    )


def check_stream(headers: Mapping[str, str]) -> None:
    """Check that a stream may be the answer, to GET and to subscriptions/listen.

    Raises:
        Refusal: 406, event streams are not accepted.
    """
    if not accepts(headers, EVENT_STREAM):
        raise Refusal(
            406,
            INVALID_REQUEST,
            f"The answer is an event stream, which the Accept header {shown(headers['accept'])} does not "
            f"allow; accept {EVENT_STREAM}.",
        )


def check_content_type(headers: Mapping[str, str]) -> None:
    """Check that a POST says that its body is JSON, in UTF-8.

    Any other type is refused unread: a page in a browser can send forms and text to anyone without being
    asked first.

    Raises:
        Refusal: 415.
    """
    media_type, *parameters = (piece.strip().lower() for piece in headers.get("content-type", "").split(";"))
    charsets = {p.partition("=")[2].strip('" ') for p in parameters if p.startswith("charset=")}
    if media_type != JSON or charsets - {"utf-8", "utf8"}:
        raise Refusal(415, INVALID_REQUEST, f"The body must be sent as Content-Type: {JSON}, in UTF-8.")


def _quality(parameters: list[str]) -> float:
    """The weight of a media range, 0 to 1; an unreadable one counts as 1."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 1.0
    return 1.0


# --- Who may call -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Perimeter:
    """Which Host and Origin headers are answered. Nothing given: the loopback names only.

    `hosts` are names or addresses, with a port where only that one is meant ("mcp.example.org",
    "mcp.example.org:8443"); `origins` are as browsers send them ("https://app.example.org"). `ANYONE` in
    either switches its check off.
    """

    hosts: frozenset[str] = field(default_factory=frozenset[str])
    origins: frozenset[str] = field(default_factory=frozenset[str])

    def has_host(self, host: str) -> bool:
        """Whether a request for this Host is ours."""
        if ANYONE in self.hosts:
            return True
        name = _host_name(host)
        if not self.hosts:
            return name is not None and _is_loopback(name)
        wanted = {allowed.lower() for allowed in self.hosts}
        return host.lower() in wanted or (name is not None and name in wanted)

    def has_origin(self, origin: str) -> bool:
        """Whether pages of this Origin may call us."""
        if ANYONE in self.origins:
            return True
        if self.origins:
            return origin.lower() in {allowed.lower().rstrip("/") for allowed in self.origins}
        scheme, separator, host = origin.partition("://")
        name = _host_name(host)
        return (
            bool(separator)
            and scheme.lower() in ("http", "https")
            and name is not None
            and _is_loopback(name)
        )


def check_host(headers: Mapping[str, str], perimeter: Perimeter) -> None:
    """Check the Host header, against DNS rebinding.

    Raises:
        Refusal: 421, the request was meant for another server.
    """
    host = headers.get("host", "")
    if not perimeter.has_host(host):
        raise Refusal(
            421,
            INVALID_REQUEST,
            f"This server does not answer for the Host {shown(host)}; "
            "its operator can allow it in the setting of allowed hosts.",
        )


def check_origin(headers: Mapping[str, str], perimeter: Perimeter) -> None:
    """Check the Origin header, which only browsers send.

    Raises:
        Refusal: 403, pages of that origin may not call.
    """
    origin = headers.get("origin")
    if origin is not None and not perimeter.has_origin(origin):
        raise Refusal(
            403,
            INVALID_REQUEST,
            f"Pages of the Origin {shown(origin)} may not call this server; "
            "its operator can allow them in the setting of allowed origins.",
        )


def cors(headers: Mapping[str, str], perimeter: Perimeter) -> tuple[tuple[bytes, bytes], ...]:
    """The CORS headers of every answer, errors too; none for a foreign Origin or without one."""
    origin = headers.get("origin")
    if origin is None or not perimeter.has_origin(origin) or not origin.isascii() or not origin.isprintable():
        return ()
    return (
        (b"access-control-allow-origin", origin.encode("ascii")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    )


def preflight(headers: Mapping[str, str], perimeter: Perimeter) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of the answer to OPTIONS; none for a foreign Origin."""
    shared = cors(headers, perimeter)
    if not shared:
        return ()
    return (
        *shared,
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _ALLOWED),
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
    )


def _host_name(host: str) -> str | None:
    """The name or address of a Host header without its port, in lower case; None if it is not one."""
    if not host or any(c in host for c in "/@?#\\ \t"):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for a port that is no number
    except ValueError:
        return None
    return parts.hostname


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
