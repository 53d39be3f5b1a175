"""What a publisher sends over HTTP, decoded: pure, bytes in, values out.

Rules:

1. A URI is taken from the query string as it is written there, percent-decoded once and nothing else: a plus
   sign stays a plus sign. (Form decoding would make a blank of it, which no URI contains.)
2. Content-Type becomes the mime type, byte for byte; without one the resource has none.
3. The body is text if its type says so (text/*, JSON, XML, YAML and their like, or any type with a charset),
   in its charset, by default UTF-8; it is a blob if its type says anything else. Without a type, text is
   what is UTF-8 without NUL.
4. JSON fields have the names of resources/list and resources/read, and what we do not know is refused.
"""

import base64
import binascii
import codecs
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from broker.core.errors import BadRequest, InvalidContents
from broker.core.publication import Contents, Json
from broker.core.revision import Stamp
from broker.store.publishing import MAX_LIFE_MS, Expect
from broker.store.waiting import Wait, wait

_TEXTS = {
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/json5",
    "application/jsonl",
    "application/ndjson",
    "application/sql",
    "application/toml",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-yaml",
    "application/xml",
    "application/yaml",
    "image/svg+xml",
}
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")
_PYTHON_ONLY = {"idna", "palmos", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
"""Codecs that are no charsets. Punycode takes the square of its length, and everybody's time meanwhile."""
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")

_ABOUT = {
    "name": "name",
    "title": "title",
    "description": "description",
    "mimeType": "mime_type",
    "annotations": "annotations",
    "icons": "icons",
    "size": "size",
    "scopes": "scopes",
    "subjects": "subjects",
    "ttlMs": "ttl_ms",
    "cacheScope": "cache_scope",
}
_IN_JSON_ONLY = {"mimeType", "annotations", "icons", "subjects", "expect"}
_TERMS = ("version", "idempotencyKey", "expiresIn", "expect")
_WAITS = ("waitReplicas", "waitMs")
_CONTENTS = ("text", "blob", "json", "contents")
_WHOLE = ("version", "size", "ttlMs")


@dataclass(frozen=True, slots=True)
class Order:
    """One publish as it was asked for; `about` is a `Description`."""

    uri: str
    contents: Any
    about: dict[str, Any]
    version: int | None = None
    idempotency_key: str | None = None
    expires_in_ms: int | None = None
    expect: Expect | None = None
    wait: Wait | None = None


def exact(query: bytes, name: str) -> str | None:
    """Return the value of `name` in a query string, None if it is not there (rule 1).

    Raises:
        BadRequest: it is there twice, or is not UTF-8.
    """
    values = [
        value
        for key, _, value in (pair.partition(b"=") for pair in query.split(b"&"))
        if key == name.encode()
    ]
    if not values:
        return None
    if len(values) > 1:
        raise BadRequest(f"{name} is in the query {len(values)} times; percent-encode & in a URI as %26.")
    try:
        return unquote_to_bytes(values[0]).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{name} in the query is not UTF-8 once it is percent-decoded.") from None


def order(uri: str, body: bytes, headers: Mapping[str, str], query: Mapping[str, str]) -> Order:
    """Read a PUT: a raw body, described by its headers and its query.

    Raises:
        BadRequest: with what to change.
    """
    mime_type = headers.get("content-type")
    given: dict[str, Any] = {name: value for name, value in query.items() if name != "uri"}
    _refuse_unknown(given, {*_ABOUT, *_TERMS, *_WAITS} - _IN_JSON_ONLY, "the query")
    replicas, ms = (whole(name, given.pop(name)) if name in given else None for name in _WAITS)
    for name in _WHOLE:
        if name in given:
            given[name] = whole(name, given[name])
    if "expiresIn" in given:
        given["expiresIn"] = _seconds(given["expiresIn"])
    about = {ours: given[name] for name, ours in _ABOUT.items() if name in given}
    about["mime_type"] = mime_type
    return Order(
        uri,
        contents(body, mime_type),
        about,
        given.get("version"),
        headers.get("idempotency-key", given.get("idempotencyKey")),
        _milliseconds(given.get("expiresIn")),
        expectation(headers),
        wait(replicas, ms),
    )


def contents(body: bytes, mime_type: str | None) -> str | bytes:
    """Return a raw body as text or as bytes (rule 3).

    Raises:
        InvalidContents: a text that its charset cannot read, or an HTML form.
    """
    if mime_type is None:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return body
        return body if "\0" in text else text
    message = Message()
    message["content-type"] = mime_type
    kind, charset = message.get_content_type(), message.get_param("charset")
    if mime_type.strip().lower().startswith(_FORMS):
        raise InvalidContents(
            f"The body is declared as an HTML form ({mime_type}), as curl does by default for --data: "
            "say what it is with -H 'Content-Type: text/markdown', or send a file with -T FILE."
        )
    if charset is None and not is_text(kind):
        return body
    name = charset if isinstance(charset, str) else "utf-8"
    try:
        codec = codecs.lookup(name).name
        if codec.replace("_", "-") in _PYTHON_ONLY:
            raise LookupError
        return body.decode(codec)
    except LookupError:
        raise InvalidContents(f"The charset {name!a} of the body is unknown; UTF-8 always works.") from None
    except UnicodeDecodeError as error:
        raise InvalidContents(
            f"The body is declared as text in {name} and is not ({error.reason} at byte {error.start}); "
            "correct the charset, or declare a type that is no text."
        ) from None


def is_text(kind: str) -> bool:
    """Whether contents of this type (in lower case, without parameters) are text."""
    return kind.startswith("text/") or kind in _TEXTS or kind.endswith(_TEXT_SUFFIXES)


def expectation(headers: Mapping[str, str]) -> Expect | None:
    """Return what If-Match and If-None-Match ask for (RFC 9110, 13.1).

    A weak or foreign entity tag matches nothing, and so refuses.

    Raises:
        BadRequest: both, or an If-None-Match that is not "*".
    """
    match, none_match = headers.get("if-match"), headers.get("if-none-match")
    if none_match is not None:
        if match is not None or none_match.strip() != "*":
            raise BadRequest(
                "If-None-Match may only be * here (publish if nothing is there), without If-Match."
            )
        return "absent"
    if match is None:
        return None
    if match.strip() == "*":
        return "exists"
    return tuple(stamps(match))


def stamps(tags: str) -> list[Stamp]:
    """Return the revisions in a list of entity tags; what is not ours is left out."""
    found: list[Stamp] = []
    for tag in tags.split(","):
        text = tag.strip()
        if len(text) > 1 and text[0] == text[-1] == '"':
            try:
                found.append(Stamp.parse(text[1:-1]))
            except ValueError:
                continue
    return found


def document(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a body holds.

    Raises:
        BadRequest: it holds something else.
    """
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise BadRequest("The JSON of the body is nested too deeply.") from None
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    return cast("dict[str, Any]", value)


def listed_order(item: Any) -> Order:
    """Read one element of `resources` in POST /v1/publish.

    Raises:
        BadRequest: with what to change.
    """
    if not isinstance(item, dict):
        raise BadRequest("Each of the resources is a JSON object with uri and text, blob, json or contents.")
    given = cast("dict[str, Any]", item)
    _refuse_unknown(given, {"uri", *_CONTENTS, *_ABOUT, *_TERMS}, "a resource")
    key = given.get("idempotencyKey")
    if key is not None and not isinstance(key, str):
        raise BadRequest("idempotencyKey is a string.")
    seconds = given.get("expiresIn")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        raise BadRequest("expiresIn is a number of seconds.")
    return Order(
        _string(given, "uri"),
        _listed_contents(given),
        {ours: given[name] for name, ours in _ABOUT.items() if given.get(name) is not None},
        given.get("version"),
        key,
        _milliseconds(seconds),
        _listed_expectation(given.get("expect")),
    )


def _listed_contents(given: dict[str, Any]) -> Any:
    names = [name for name in _CONTENTS if name in given]
    if len(names) != 1:
        raise InvalidContents("A resource has exactly one of text, blob (Base64), json and contents.")
    match names[0]:
        case "text":
            return _string(given, "text")
        case "blob":
            return _bytes(given["blob"])
        case "json":
            return Json(given["json"])
        case _:
            if not isinstance(given["contents"], list):
                raise InvalidContents("contents is a list of objects with text or blob, uri and mimeType.")
            return [_listed_entry(entry) for entry in cast("list[Any]", given["contents"])]


def _listed_entry(entry: Any) -> Contents:
    if not isinstance(entry, dict):
        raise InvalidContents("Each entry of contents is an object with text or blob, uri and mimeType.")
    given = cast("dict[str, Any]", entry)
    _refuse_unknown(given, {"uri", "mimeType", "text", "blob"}, "an entry of contents")
    if ("text" in given) == ("blob" in given):
        raise InvalidContents("An entry of contents has either text or blob (Base64).")
    return Contents(
        text=_string(given, "text") if "text" in given else None,
        blob=_bytes(given["blob"]) if "blob" in given else None,
        uri=_string(given, "uri") if "uri" in given else None,
        mime_type=_string(given, "mimeType") if "mimeType" in given else None,
    )


def _listed_expectation(value: Any) -> Expect | None:
    match value:
        case None | "exists" | "absent":
            return cast("Expect | None", value)
        case str():
            try:
                return Stamp.parse(value)
            except ValueError:
                pass
        case _:
            pass
    raise BadRequest('expect is a revision as an answer gave it, "exists" or "absent".')


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidContents("A blob is a string of Base64, standard alphabet with padding.") from None


def _string(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{name} is missing; it is a string." if value is None else f"{name} is a string.")
    return value


def _refuse_unknown(given: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise BadRequest(
            f"{', '.join(map(ascii, unknown))} means nothing in {where}; "
            f"known are {', '.join(sorted(known))}."
        )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def whole(name: str, value: str) -> int:
    """Return a whole number from the query.

    Raises:
        BadRequest: it is none.
    """
    if not value.isascii() or not value.isdigit() or len(value) > 16:  # noqa: PLR2004 # 2^53 has 16 digits
        raise BadRequest(f"{name} is an integer from 0 to 2^53 - 1, not {value[:40]!a}.")
    return int(value)


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadRequest(f"expiresIn is a number of seconds, not {value[:40]!a}.") from None


def _milliseconds(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not 0 < seconds <= MAX_LIFE_MS // 1000:
        raise BadRequest(
            f"expiresIn is a number of seconds above 0, at most {MAX_LIFE_MS // 1000}; "
            "leave it out for a resource that stays."
        )
    return math.ceil(seconds * 1000)
