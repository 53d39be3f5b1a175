"""A strict reader of our event streams: what a browser forgives, this refuses.

What the broker may write (design section 5, decision 11): LF only, UTF-8 without a BOM, whole frames, each
of them a priming event (id, empty data) or one message: `event: message`, exactly one data line with a JSON
object, and perhaps an id. Between frames there may be comments, each one line and no blank one (httpx-sse
takes that for another event), and retry hints, with or without a blank line. Nothing else, in no other shape.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

_RETRY_LINE = re.compile(rb"retry: \d+\n")
_ID = re.compile(r"[A-Za-z0-9._:~\-]+")
_FORBIDDEN = {"\r": "a CR", "\x00": "a NUL", "\ufeff": "a BOM", "\u2028": "U+2028", "\u2029": "U+2029"}


class BadStream(AssertionError):
    """Bytes that the broker must never write."""


@dataclass(frozen=True)
class Frame:
    """One frame. `message` is None for comments, priming events and retry hints."""

    raw: bytes
    id: str | None = None
    message: dict[str, Any] | None = None
    comment: str | None = None
    retry: int | None = None

    @property
    def method(self) -> str:
        return str(self.message.get("method", "")) if self.message else ""

    @property
    def params(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.message.get("params", {})) if self.message else {}


class Reader:
    """Takes bytes in any pieces and hands out whole frames."""

    def __init__(self) -> None:
        self._rest = b""
        self._had_hint = False

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now.

        Raises:
            BadStream: the first thing that is wrong, with the frame.
        """
        self._rest += data
        frames: list[Frame] = []
        while True:
            if self._had_hint and self._rest.startswith(b"\n"):
                self._rest = self._rest[1:]
            end = b"\n" if self._rest.startswith((b":", b"retry:")) else b"\n\n"
            raw, ended, rest = self._rest.partition(end)
            if not ended:
                return frames
            self._rest = rest
            self._had_hint = raw.startswith(b"retry:")
            frames.append(_frame(raw))

    def end(self) -> None:
        """Say that the stream ended cleanly.

        Raises:
            BadStream: it ended within a frame.
        """
        # A retry line counts at once, without an event; a stream may end right behind one.
        if self._rest and not _RETRY_LINE.fullmatch(self._rest):
            raise BadStream(f"the stream ended within a frame: {self._rest!r}")


def _frame(raw: bytes) -> Frame:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadStream(f"not UTF-8 ({error}): {raw!r}") from None
    for character, name in _FORBIDDEN.items():
        if character in text:
            raise BadStream(f"{name} in {raw!r}")
    if text.startswith(":"):
        return Frame(raw, comment=text[1:].strip())
    fields = _fields(text, raw)
    return Frame(raw, id=_id(fields, raw), message=_message(fields, raw), retry=_retry(fields, raw))


def _fields(text: str, raw: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if not colon or name not in {"id", "event", "data", "retry"}:
            raise BadStream(f"not a field: {line!r} in {raw!r}")
        if name in fields:
            raise BadStream(f"{name} twice in {raw!r}")
        if value and not value.startswith(" "):
            raise BadStream(f"no blank after {name}: in {raw!r}")
        fields[name] = value[1:]
    return fields


def _id(fields: dict[str, str], raw: bytes) -> str | None:
    value = fields.get("id")
    if value is not None and not _ID.fullmatch(value):
        raise BadStream(f"an id outside its alphabet: {raw!r}")
    return value


def _retry(fields: dict[str, str], raw: bytes) -> int | None:
    value = fields.get("retry")
    if value is None:
        return None
    if not value.isascii() or not value.isdigit():
        raise BadStream(f"a retry that is no number of milliseconds: {raw!r}")
    return int(value)


def _message(fields: dict[str, str], raw: bytes) -> dict[str, Any] | None:
    data = fields.get("data")
    if not data:
        if "event" in fields:
            raise BadStream(f"an event without data: {raw!r}")
        return None
    if fields.get("event") != "message":
        raise BadStream(f"data that is no message event: {raw!r}")
    try:
        message: Any = json.loads(data)
    except ValueError as error:
        raise BadStream(f"not JSON ({error}): {raw!r}") from None
    if not isinstance(message, dict):
        raise BadStream(f"not a JSON object: {raw!r}")
    typed = cast("dict[str, Any]", message)
    if typed.get("jsonrpc") != "2.0":
        raise BadStream(f"not JSON-RPC 2.0: {raw!r}")
    return typed
