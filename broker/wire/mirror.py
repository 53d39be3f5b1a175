"""The headers that mirror the body in 2026-07-28, so that proxies can route without parsing it.

They must say what the body says, or whoever trusted them was deceived ("Server Validation"). Values are
trimmed of blanks and then compared exactly; a value outside visible ASCII is refused even where it happens
to equal the body, and `Mcp-Name` may be Base64 between `=?base64?` and `?=` ("Value Encoding").
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from broker.wire.era import META_VERSION, VERSION_HEADER
from broker.wire.jsonrpc import Request
from broker.wire.refusal import Refusal

HEADER_MISMATCH = -32020

_NAMED_BY = {"resources/read": "uri", "tools/call": "name", "prompts/get": "name"}
"""Which member of the params `Mcp-Name` mirrors."""

_FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OPEN, _CLOSE = "=?base64?", "?="


def check_mirror(request: Request, meta: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Compare the mirroring headers with the body; `meta` is the request's checked `_meta`.

    Raises:
        Refusal: 400 with -32020.
    """
    _compare(request, headers, VERSION_HEADER, "MCP-Protocol-Version", meta[META_VERSION])
    _compare(request, headers, "mcp-method", "Mcp-Method", request.method)
    member = _NAMED_BY.get(request.method)
    if member is None:
        return
    name = _unwrap(_value(request, headers, "mcp-name", "Mcp-Name"), request)
    given = request.params.get(member)
    # A name that is missing or of a wrong type is not a contradiction: the params are judged later.
    if isinstance(given, str) and name != given:
        raise _mismatch(request, f'Mcp-Name does not name the "{member}" of the body')


def _compare(request: Request, headers: Mapping[str, str], key: str, shown: str, expected: str) -> None:
    if _value(request, headers, key, shown) != expected:
        raise _mismatch(request, f"{shown} contradicts the body")


def _value(request: Request, headers: Mapping[str, str], key: str, shown: str) -> str:
    value = headers.get(key)
    if value is None:
        raise _mismatch(request, f"the header {shown} is missing")
    if not _FIELD_VALUE.fullmatch(value):
        raise _mismatch(request, f"{shown} has characters outside visible ASCII; encode it as =?base64?...?=")
    return value.strip(" \t")


def _unwrap(value: str, request: Request) -> str:
    """Decode a value that is between the Base64 markers; any other stands for itself."""
    if not (value.startswith(_OPEN) and value.endswith(_CLOSE) and len(value) >= len(_OPEN) + len(_CLOSE)):
        return value
    try:
        return base64.b64decode(value[len(_OPEN) : -len(_CLOSE)], validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise _mismatch(request, "Mcp-Name is not Base64 of UTF-8 between its markers") from None


def _mismatch(request: Request, why: str) -> Refusal:
    return Refusal(
        400,
        HEADER_MISMATCH,
        f"The headers do not match the body: {why}. They must repeat the body's version, method and name.",
        id=request.id,
    )
