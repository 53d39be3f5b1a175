"""Server-sent events as bytes. Ours, never a framework's (design section 5, decision 11).

Rules:

1. LF only, one data line, `event: message` on every JSON-RPC message: readers exist that split at every
   Unicode line separator, and others that drop an event without a name.
2. A comment is one line and no blank one: httpx-sse, which the Python clients use, takes a blank line after
   an event with an id for another, empty event.
3. A frame is written whole: comments go between frames.
"""

COMMENT = b":\n"
"""Keep-alive and first byte; every reader ignores it."""

MESSAGE = b"event: message\ndata: "
"""What stands before a JSON-RPC message that has no event id."""


def comment() -> bytes:
    """A line that every reader ignores."""
    return COMMENT


def event(data: bytes, id: str | None = None) -> bytes:  # noqa: A002 - the SSE field's name
    """One event around a JSON message, with its event id if it can be resumed from.

    Raises:
        ValueError: an id that would break the frame.
    """
    return head(id) + one_line(data) + b"\n\n"


def head(id: str | None = None) -> bytes:  # noqa: A002 - the SSE field's name
    """What stands before a JSON-RPC message. The message must be one line, and a blank line must follow.

    Raises:
        ValueError: an id that would break the frame.
    """
    return MESSAGE if id is None else b"id: %b\n%b" % (_checked(id), MESSAGE)


def retry(milliseconds: int) -> bytes:
    """A line that sets how long a client waits before it connects again; no event by itself."""
    return b"retry: %d\n" % milliseconds


def parting(milliseconds: int) -> bytes:
    """The last event of a stream that ends cleanly: how long to wait before connecting again.

    Unlike `retry` it ends in a blank line, since Python clients see a field only with its event.
    """
    return b"retry: %d\n\n" % milliseconds


def priming(id: str, retry_ms: int) -> bytes:  # noqa: A002 - the SSE field's name
    """The first event of a stream: an id to resume from, and no data (2025-11-25, "Sending Messages").

    Only for sessions of that revision: older clients try to parse the empty data.
    """
    return b"id: %b\nretry: %d\ndata:\n\n" % (_checked(id), retry_ms)


def one_line(data: bytes) -> bytes:
    """Return the same JSON without a character at which some reader splits lines.

    In JSON these stand only inside strings (U+0085, U+2028, U+2029), where an escape means the same, or as
    white space between tokens (CR, LF). U+FEFF is escaped as well: a reader that decodes each event by itself
    would take it for a byte order mark.
    """
    if not data.isascii():  # what we encode ourselves is, and this look costs least
        data = data.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029")
        data = data.replace(b"\xc2\x85", rb"\u0085").replace(b"\xef\xbb\xbf", rb"\ufeff")
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def _checked(event_id: str) -> bytes:
    if not event_id or not event_id.isascii() or not event_id.isprintable():
        raise ValueError(f"not an event id: {event_id!r}")
    return event_id.encode("ascii")
