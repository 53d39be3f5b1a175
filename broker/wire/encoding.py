"""How we write JSON: one line of ASCII, and a client's id as it was written.

U+2028, U+2029, U+0085, CR and LF in strings come out escaped, so a message is one SSE data line to every
reader (design section 5, decision 11), and half a surrogate pair that a client sent is echoed instead of
failing to encode.
"""

import json

RequestId = str | int | float


class WrittenNumber(float):
    """A number with a fraction, an exponent or a minus zero, which remembers how it was written."""

    __slots__ = ("text",)

    text: str


def dumps(value: object) -> bytes:
    """Write `value` as compact JSON in one line of ASCII.

    Raises:
        ValueError: for NaN and the infinities, which JSON does not have.
    """
    return _encode(value).encode("ascii")


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode_id(request_id: RequestId | None) -> bytes:
    """Write an id exactly as it was read; None is null."""
    if isinstance(request_id, WrittenNumber):
        return request_id.text.encode("ascii")
    return dumps(request_id)


def result(request_id: RequestId, payload: bytes) -> bytes:
    """The answer to a request, around a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_id(request_id), payload)


def error(request_id: RequestId | None, code: int, message: str, data: object | None = None) -> bytes:
    """The error answer to a request; an id of None is null, for a request whose id is unknown."""
    details: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        details["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode_id(request_id), dumps(details))
