"""What a publisher says, checked and encoded once: Python values in, the bytes that clients will read out.

Pure. A read splices the stored bytes into its answer, and some of them travel inside SSE frames; so all is
checked and encoded here, before Redis sees it. Rules:

1. URIs and mime types are kept byte for byte, and what was not declared stays absent (no null).
   The one default: a value that we serialised ourselves is application/json, since we know it.
2. `str` becomes text, bytes become a blob (standard Base64 with padding); `Contents` entries stand as they
   are; anything else JSON can say (mappings, sequences, numbers, dataclasses, what has `model_dump`) becomes
   JSON text.
3. No line separator survives in encoded JSON: CR and LF by JSON itself, NEL, LS and PS by `encode_json`.
   (All of JSON as ASCII would be simpler and makes most of the world's text two to three times as long.)
4. Nothing is stored that a client could choke on: no NaN, no half surrogate pair, no empty name or type, no
   unknown annotation. The refusal goes to the publisher, with a sentence.
"""

import base64
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, TypedDict, cast

from broker.core.access import check_subjects
from broker.core.errors import InvalidContents, TooLarge
from broker.core.identity import ResourceKey, check_uri

MAX_CONTENT_BYTES = 10_000_000
"""Default limit of all contents of one resource, encoded (a blob is a third longer than its bytes)."""

MAX_META_BYTES = 64 * 1024
"""Limit of what resources/list shows of one resource, encoded; a page holds a hundred of these."""

MAX_SCOPES_BYTES = 200
"""Limit of the required scopes, joined: they travel in the log entry, which stays below 1 KB."""

MAX_RULE_BYTES = 1000
"""Limit of the required scopes and subjects together, as core/access.py writes them."""

MAX_SAFE = 2**53 - 1
"""The largest integer that JSON, JavaScript and Lua all hold exactly."""

JSON_TYPE = "application/json"

_MIME_TYPE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}[ \t]*(;|\Z)"
)

CacheScope = Literal["public", "private"]

_SEPARATORS = str.maketrans({"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclasses.dataclass(frozen=True, slots=True)
class Contents:
    """One entry of what a read returns: either text or a blob, by default under the resource's own URI.

    An entry without a URI of its own also takes the resource's mime type if it declares none.
    """

    text: str | None = None
    blob: bytes | None = None
    uri: str | None = None
    mime_type: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Json:
    """A value to publish as JSON text even where it is a string or None."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Publication:
    """A resource as it will be stored: `meta` as resources/list shows it, `body` as resources/read does."""

    key: ResourceKey
    meta: bytes
    body: bytes
    scopes: tuple[str, ...]
    ttl_ms: int | None
    cache_scope: CacheScope | None
    digest: str
    """Of everything above: equal digests mean that publishing again changes nothing.

    24 hex digits over what the list shows, scopes included; 32 over the rest; then s, t, p for required
    scopes, a ttl, a cache scope, as far as they are declared. publish.lua reads all three parts.
    """


class Description(TypedDict, total=False):
    """What may be said about a resource beside its contents; all of it optional.

    `name` defaults to the last segment of the URI. `size` is in bytes before any encoding and is not
    guessed: a size that followed the contents would change the list at every publish.
    `scopes` are required of whoever lists, reads or hears of it; with `subjects` it must be one of them, as
    principals are called ("key:ci", "https://issuer#sub"); an empty list is nobody. `ttl_ms` and
    `cache_scope` are the caching hints of 2026-07-28, "CacheableResult".
    """

    name: str | None
    title: str | None
    description: str | None
    mime_type: str | None
    annotations: Any
    icons: Any
    size: int | None
    scopes: Iterable[str]
    subjects: Iterable[str] | None
    ttl_ms: int | None
    cache_scope: CacheScope | None


def encode_json(value: Any) -> bytes:
    """Return `value` as compact JSON on one line, whatever counts lines: no separator of any kind is in it.

    Raises:
        InvalidContents: for what JSON cannot say: NaN, half a surrogate pair, a cycle, an unknown type.
    """
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_default
        )
        return text.translate(_SEPARATORS).encode() if not text.isascii() else text.encode()
    except UnicodeEncodeError:
        raise InvalidContents(
            "The contents hold half of a surrogate pair, which is no character; "
            "decode the original text again or publish it as bytes."
        ) from None
    except RecursionError:
        raise InvalidContents("The value is nested too deeply to be written as JSON.") from None
    except (TypeError, ValueError) as error:
        raise InvalidContents(f"The value cannot be written as JSON: {error}.") from None


def describe(
    key: ResourceKey, contents: Any, max_content_bytes: int = MAX_CONTENT_BYTES, **about: Any
) -> Publication:
    """Return the publication of `contents` as `key`; `about` is a `Description`.

    Raises:
        InvalidUri: the URI, or one of an entry, cannot name a resource.
        InvalidContents: contents or description that cannot be published.
        TooLarge: contents over `max_content_bytes` when encoded, or a description over its own limit.
    """
    check_uri(key.uri)
    unknown = set(about) - set(Description.__annotations__)
    if unknown:
        raise InvalidContents(f"A resource is not described by {', '.join(sorted(unknown))}.")
    mime_type = _mime_type("mime_type", about.get("mime_type"))
    body, mime_type = encode_contents(key.uri, contents, mime_type, max_content_bytes)
    meta = encode_meta(key.uri, mime_type, about)
    scopes = check_rule(about.get("scopes"), about.get("subjects"))
    ttl_ms = _integer("ttl_ms", about.get("ttl_ms"))
    cache_scope = about.get("cache_scope")
    if cache_scope not in (None, "public", "private"):
        raise InvalidContents(f'cache_scope is "public" or "private", not {cache_scope!a}.')
    listed = fingerprint(meta, " ".join(scopes))[:24]
    rest = fingerprint(body, str(ttl_ms), str(cache_scope))
    declared = ("s" if scopes else "") + ("t" if ttl_ms is not None else "") + ("p" if cache_scope else "")
    return Publication(key, meta, body, scopes, ttl_ms, cache_scope, listed + rest + declared)


def encode_contents(
    uri: str, contents: Any, mime_type: str | None, max_content_bytes: int = MAX_CONTENT_BYTES
) -> tuple[bytes, str | None]:
    """Return what a read of `uri` shows, as JSON, and the mime type: the given one, or rule 1's default.

    Raises:
        InvalidUri, InvalidContents, TooLarge: as `describe`.
    """
    entries, is_ours = _entries(contents, max_content_bytes)
    if mime_type is None and is_ours:
        mime_type = JSON_TYPE
    body = encode_json([_entry(entry, uri, mime_type) for entry in entries])
    if len(body) > max_content_bytes:
        raise _too_large(len(body), max_content_bytes)
    return body, mime_type


def encode_meta(
    uri: str, mime_type: str | None, about: Mapping[str, Any], *, is_template: bool = False
) -> bytes:
    """Return what a list shows of `uri`, as JSON; `about` holds the rest of a `Description`.

    Raises:
        InvalidContents, TooLarge: as `describe`.
    """
    shown = _meta(uri, _mime_type("mime_type", mime_type), about)
    if is_template:
        shown = {"uriTemplate": shown.pop("uri"), **shown}
    meta = encode_json(shown)
    if len(meta) > MAX_META_BYTES:
        raise TooLarge(
            f"The description of {uri!a} takes {len(meta)} bytes; at most {MAX_META_BYTES} are allowed "
            "(name, title, description, annotations and icons together)."
        )
    return meta


def fingerprint(*parts: str | bytes) -> str:
    """Return 128 bits over `parts` as hex; where one part ends and the next begins counts."""
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def check_version(version: int | None) -> int | None:
    """Return a publisher's own version number, 0 to 2^53 - 1.

    Raises:
        InvalidContents: for anything else.
    """
    return _integer("version", version)


def check_rule(scopes: Any, subjects: Any) -> tuple[str, ...]:
    """Return the words of a rule (core/access.py).

    Only None is no rule: what is false in another way is a mistake, and must not open; an empty list of
    subjects is nobody.

    Raises:
        InvalidContents: what can be no scope, or no subject.
        TooLarge: more than fits in a log entry.
    """
    required = () if scopes is None else check_scopes(scopes)
    rule = required if subjects is None else required + check_subjects(subjects)
    if len(" ".join(rule)) > MAX_RULE_BYTES:
        raise TooLarge(
            f"What a resource requires, scopes and subjects, takes at most {MAX_RULE_BYTES} bytes; require a "
            "scope that these subjects have."
        )
    return rule


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return `scopes` sorted, each once; one string may hold several, separated by blanks (RFC 6749, 3.3).

    Raises:
        InvalidContents: a scope that no token could hold, or more than fit in a log entry.
    """
    if not isinstance(cast("object", scopes), Iterable):
        raise InvalidContents("The required scopes are a list of strings, or one with blanks between them.")
    given = scopes.split() if isinstance(scopes, str) else list(scopes)
    for scope in given:
        if not isinstance(cast("object", scope), str) or not scope or not all(map(_is_scope_char, scope)):
            raise InvalidContents(
                f"{scope!a} is not a scope: one is made of visible ASCII characters without blanks, "
                "double quotes and backslashes."
            )
    checked = tuple(sorted(set(given)))
    if len(" ".join(checked)) > MAX_SCOPES_BYTES:
        raise TooLarge(f"The required scopes of a resource take at most {MAX_SCOPES_BYTES} bytes together.")
    return checked


def _is_scope_char(char: str) -> bool:
    return "!" <= char <= "~" and char not in '"\\'


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"The contents take {size} bytes when encoded; at most {limit} are allowed. "
        "Publish less, or several resources."
    )


def _entries(contents: Any, limit: int) -> tuple[Sequence[Contents], bool]:
    """Return the entries of `contents`, and whether we serialised them."""
    match contents:
        case Contents():
            return [contents], False
        case str():
            if len(contents) > limit:
                # It would be copied and encoded first, for nothing.
                raise _too_large(len(contents), limit)
            return [Contents(text=contents)], False
        case bytes() | bytearray() | memoryview():
            # Checked before it is copied and encoded; the exact count is made at the end.
            data = memoryview(cast("bytes", contents))
            if data.nbytes > limit:
                raise _too_large(data.nbytes * 4 // 3, limit)
            return [Contents(blob=data.tobytes())], False
        case Json():
            return [Contents(text=encode_json(_plain(contents.value)).decode())], True
        case None:
            raise InvalidContents(
                "There are no contents (None); publish an empty string, or remove the resource."
            )
        case list() | tuple() if any(isinstance(item, Contents) for item in cast("list[Any]", contents)):
            items = cast("list[Any]", contents)
            if not all(isinstance(item, Contents) for item in items):
                raise InvalidContents("Several entries are a list of Contents and of nothing else.")
            return items, False
        case _:
            return [Contents(text=encode_json(_plain(contents)).decode())], True


def _entry(entry: Contents, uri: str, mime_type: str | None) -> dict[str, Any]:
    if (entry.text is None) == (entry.blob is None):
        raise InvalidContents("An entry of the contents has either text or a blob.")
    own = entry.uri is None or entry.uri == uri
    encoded: dict[str, Any] = {"uri": uri if entry.uri is None else check_uri(entry.uri)}
    kind = _mime_type("mime_type", entry.mime_type)
    if kind is None and own:
        kind = mime_type
    if kind is not None:
        encoded["mimeType"] = kind
    if entry.text is not None:
        if not isinstance(cast("object", entry.text), str):
            raise InvalidContents("The text of an entry must be a str.")
        encoded["text"] = entry.text
    else:
        if not isinstance(entry.blob, bytes | bytearray | memoryview):
            raise InvalidContents("The blob of an entry must be bytes.")
        encoded["blob"] = base64.b64encode(entry.blob).decode()
    return encoded


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return cast("Any", value)


def _json_default(value: Any) -> Any:
    plain = _plain(value)
    if plain is not value:
        return plain
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    raise TypeError(
        f"a value of type {type(value).__name__} is neither text, bytes, nor something JSON knows"
    )


def default_name(uri: str) -> str:
    """Return the last segment of the URI's path, as it is written; the URI itself where it has none."""
    path = uri.partition("#")[0].partition("?")[0].rstrip("/")
    _, slash, last = path.rpartition("/")
    return last if slash and last else uri


def _meta(uri: str, mime_type: str | None, about: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"uri": uri, "name": _text("name", about.get("name")) or default_name(uri)}
    if about.get("name") == "":
        raise InvalidContents("A resource's name is not empty; leave it out and its URI gives one.")
    for field in ("title", "description"):
        value = _text(field, about.get(field))
        if value is not None:
            shown[field] = value
    if mime_type is not None:
        shown["mimeType"] = mime_type
    size = _integer("size", about.get("size"))
    if size is not None:
        shown["size"] = size
    if about.get("annotations") is not None:
        shown["annotations"] = _annotations(about["annotations"])
    if about.get("icons") is not None:
        shown["icons"] = _icons(about["icons"])
    return shown


def _text(field: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidContents(f"{field} is text, not {type(value).__name__}.")
    return value


def _line(field: str, value: Any) -> str | None:
    text = _text(field, value)
    if text is not None and (not text.strip() or not text.isprintable()):
        raise InvalidContents(
            f"{field} is {text!a}: it must not be empty or hold control characters; "
            "leave it out if it is not known."
        )
    return text


def _mime_type(field: str, value: Any) -> str | None:
    """Return a type that has the form of RFC 6838, 4.2: type/subtype. Parameters may follow as they like."""
    text = _line(field, value)
    if text is not None and _MIME_TYPE.match(text) is None:
        raise InvalidContents(
            f"{field} is {text!a}: write type/subtype, as in text/plain or application/json; "
            "leave it out if it is not known."
        )
    return text


def _integer(field: str, value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SAFE:
        raise InvalidContents(f"{field} is an integer from 0 to 2^53 - 1, not {value!a}.")
    return value


def _object(field: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:
    """Return `value`, a mapping or a model, without its nulls and with no key outside `known`."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not isinstance(value, Mapping):
        raise InvalidContents(f"{field} is an object with {', '.join(known)}, not {type(value).__name__}.")
    given = {key: item for key, item in cast("Mapping[Any, Any]", value).items() if item is not None}
    unknown = [str(key) for key in given if key not in known]
    if unknown:
        raise InvalidContents(f"{field} has {', '.join(known)}; {', '.join(unknown)} is not among them.")
    return given


def _annotations(value: Any) -> dict[str, Any]:
    """Check what the specification's Annotations say (2026-07-28, schema)."""
    given = _object("annotations", value, ("audience", "priority", "lastModified"))
    audience = given.get("audience")
    if audience is not None and (
        not isinstance(audience, list | tuple)
        or any(role not in ("user", "assistant") for role in cast("list[Any]", audience))
    ):
        raise InvalidContents('annotations.audience is a list of "user" and "assistant".')
    priority = given.get("priority")
    if priority is not None and (
        isinstance(priority, bool)
        or not isinstance(priority, int | float)
        or not math.isfinite(priority)
        or not 0 <= priority <= 1
    ):
        raise InvalidContents("annotations.priority is a number from 0 to 1.")
    _line("annotations.lastModified", given.get("lastModified"))
    return given


def _icons(value: Any) -> list[dict[str, Any]]:
    """Check what the specification's Icon says (2026-07-28, schema)."""
    if not isinstance(value, list | tuple):
        raise InvalidContents("icons is a list of objects, each with at least src.")
    icons: list[dict[str, Any]] = []
    for item in cast("list[Any]", value):
        icon = _object("an icon", item, ("src", "mimeType", "sizes", "theme"))
        source = _line("an icon's src", icon.get("src"))
        if source is None or not source.lower().startswith(("https:", "http:", "data:")):
            raise InvalidContents("An icon's src is an https:, http: or data: URI.")
        _mime_type("an icon's mimeType", icon.get("mimeType"))
        if icon.get("theme") not in (None, "light", "dark"):
            raise InvalidContents('An icon\'s theme is "light" or "dark".')
        sizes = icon.get("sizes")
        if sizes is not None and (
            not isinstance(sizes, list | tuple)
            or not all(isinstance(size, str) for size in cast("list[Any]", sizes))
        ):
            raise InvalidContents('An icon\'s sizes is a list such as ["48x48", "any"].')
        icons.append(icon)
    return icons
