"""JSON-RPC 2.0 envelopes: bytes in, values out; values in, bytes out. Knows no MCP method.

Rules:

1. -32700 is for bytes that are not JSON: nothing, cut off, not UTF-8 (UTF-16 and a byte order mark
   included: RFC 8259, section 8.1), NaN and Infinity, something behind the end. JSON that is not a valid
   envelope is -32600. Both are 400.
2. Who reads first must not read something else than we do: a member that comes twice is refused, since
   proxies that look at the first one and we at the last would disagree about method or URI.
3. An id is echoed as it was written. A number keeps its text (`9007199254740993`, `1.50`, `-0`), so
   nothing is lost in a float.
4. No input ends in another exception than `Refusal`, or in a long computation: depth, structure, digits
   and lengths are bounded.
5. What we write is one line of ASCII (encoding.py, whose functions are handed on here).
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from broker.wire.encoding import RequestId, WrittenNumber, dumps, encode_id, error, result
from broker.wire.refusal import INVALID_REQUEST, PARSE_ERROR, Refusal

__all__ = [
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "dumps",
    "encode_id",
    "error",
    "parse",
    "result",
]

MAX_DEPTH = 64
"""Arrays and objects inside each other. MCP needs fewer than ten; the decoder recurses."""
MAX_CONTAINERS = 10_000
"""Arrays and objects in all. Each costs the decoder a microsecond or two, and a stream waits meanwhile."""
MAX_ID = 2048
"""Characters of an id. It is repeated in every notification of a listen."""
MAX_DIGITS = 1000
"""Characters of a number. Turning digits into a number costs their square."""
MAX_BATCH = 100
"""Messages of a batch (2025-03-26 only)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call that wants an answer."""

    id: RequestId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """A message that wants none."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    """A posted answer. We ask clients nothing, so only its form matters."""

    id: RequestId


Message = Request | Notification | Response


def parse(body: bytes) -> Message | list[Message]:
    """Read one message, or the messages of a batch.

    One malformed message makes the whole batch refused, so that nothing of it is executed.

    Raises:
        Refusal: 400 with -32700 or -32600 (rules 1, 2 and 4).
    """
    value = _load(body)
    if not isinstance(value, list):
        return _message(value)
    items = cast("list[Any]", value)
    if not items:
        _invalid("The batch is empty; send at least one message.")
    if len(items) > MAX_BATCH:
        _invalid(f"The batch has {len(items)} messages; at most {MAX_BATCH} are allowed.")
    messages: list[Message] = []
    for item in items:
        if not isinstance(item, dict):
            _invalid("Each message of a batch must be a JSON object.")
        messages.append(_message(item))
    return messages


class _Unreadable(ValueError):
    """JSON by its grammar that we do not read; the message says why."""


class _Constant(ValueError):
    """NaN or an infinity, which Python's decoder would take."""


def _load(body: bytes) -> Any:
    """Decode strictly (rules 1, 2 and 4)."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as problem:
        _unparsable(f"it is not UTF-8 (byte {problem.start})")
    if text.startswith("\ufeff"):
        _unparsable("it starts with a byte order mark; send plain UTF-8")
    if not text.strip(" \t\r\n"):
        _unparsable("it is empty")
    _check_shape(text)
    try:
        return _decode(text)
    except json.JSONDecodeError as problem:
        _unparsable(f"{problem.msg} (line {problem.lineno}, column {problem.colno})")
    except _Constant as problem:
        _unparsable(f"{problem} is no JSON value")
    except _Unreadable as problem:
        _invalid(str(problem))


_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""Strings and brackets. Possessive, and an unclosed string runs to the end: no input is scanned twice."""


def _check_shape(text: str) -> None:
    """Refuse too much structure. It is counted only where there could be (strings hold brackets, too)."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = containers = 0
    for found in _STRUCTURE.finditer(text):
        piece = found.group()
        if piece in "[{":
            depth += 1
            containers += 1
            if depth > MAX_DEPTH:
                _invalid(f"The body is nested deeper than {MAX_DEPTH} levels.")
            if containers > MAX_CONTAINERS:
                _invalid(f"The body has more than {MAX_CONTAINERS} arrays and objects.")
        elif piece in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Unreadable("A member of an object comes twice; each name must be unique.")
    return members


def _integer(text: str) -> int | float:
    if len(text) > MAX_DIGITS:
        raise _Unreadable(f"A number has {len(text)} characters; at most {MAX_DIGITS} are allowed.")
    return _written(text) if text == "-0" else int(text)


def _written(text: str) -> float:
    if len(text) > MAX_DIGITS:
        raise _Unreadable(f"A number has {len(text)} characters; at most {MAX_DIGITS} are allowed.")
    number = WrittenNumber(text)
    number.text = text
    return number


def _constant(name: str) -> NoReturn:
    raise _Constant(name)


_decode: Callable[[str], Any] = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_written, parse_constant=_constant
).decode


def _message(value: Any) -> Message:
    """Read one envelope (2026-07-28 and 2025-11-25, "Messages")."""
    if not isinstance(value, dict):
        _invalid("A message must be a JSON object.")
    envelope = cast("dict[str, Any]", value)
    request_id = _id(envelope) if "id" in envelope else None
    if envelope.get("jsonrpc") != "2.0":
        _invalid('A message must have "jsonrpc": "2.0".', request_id)
    if "result" in envelope or "error" in envelope:
        return _response(envelope, request_id)
    method = envelope.get("method")
    if not isinstance(method, str):
        _invalid('A request must name its "method" with a string.', request_id)
    params = envelope.get("params", {})
    if not isinstance(params, dict):
        _invalid('"params" must be an object, or be left out.', request_id)
    named = cast("dict[str, Any]", params)
    return Notification(method, named) if request_id is None else Request(request_id, method, named)


def _id(envelope: dict[str, Any]) -> RequestId:
    """Check the id that is there; one that is null is not a notification but a mistake."""
    request_id = envelope["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, (str, int, float)):
        _invalid('"id" must be a string or a number; leave it out of a notification.')
    if isinstance(request_id, str) and len(request_id) > MAX_ID:
        _invalid(f'"id" has {len(request_id)} characters; at most {MAX_ID} are allowed.')
    return request_id


def _response(envelope: dict[str, Any], request_id: RequestId | None) -> Response:
    if request_id is None:
        _invalid('A response must have the "id" of the request that it answers.')
    if "method" in envelope or ("result" in envelope and "error" in envelope):
        _invalid('A message has one of "method", "result" and "error".', request_id)
    kind, body = ("error", envelope["error"]) if "error" in envelope else ("result", envelope["result"])
    if not isinstance(body, dict):
        _invalid(f'"{kind}" must be an object.', request_id)
    return Response(request_id)


def _unparsable(why: str) -> NoReturn:
    raise Refusal(400, PARSE_ERROR, f"The body is not JSON: {why}.") from None


def _invalid(why: str, request_id: RequestId | None = None) -> NoReturn:
    raise Refusal(400, INVALID_REQUEST, why, id=request_id) from None
