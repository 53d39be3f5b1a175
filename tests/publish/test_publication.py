"""What a publisher says, encoded: what clients will read, byte for byte, or a refusal with a sentence."""

import base64
import dataclasses
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from broker.core.errors import BadRequest, InvalidContents, InvalidUri, TooLarge
from broker.core.identity import ResourceKey, TenantId
from broker.core.publication import (
    MAX_META_BYTES,
    Contents,
    Json,
    check_scopes,
    default_name,
    describe,
    encode_json,
)

KEY = ResourceKey(TenantId("acme"), "docs://handbook/intro.md")
SEPARATORS = "\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def read(contents: Any, **about: Any) -> list[dict[str, Any]]:
    """Return what a client's read of it would hold."""
    return json.loads(describe(KEY, contents, **about).body)


def listed(**about: Any) -> dict[str, Any]:
    return json.loads(describe(KEY, "x", **about).meta)


def test_text_is_text_and_bytes_are_a_blob() -> None:
    assert read("héllo") == [{"uri": KEY.uri, "text": "héllo"}]
    assert read(b"\x00\xff") == [{"uri": KEY.uri, "blob": "AP8="}]
    assert read(bytearray(b"a")) == read(memoryview(b"a")) == read(b"a")
    assert read("") == [{"uri": KEY.uri, "text": ""}]
    assert read(b"") == [{"uri": KEY.uri, "blob": ""}]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 768, 1_000_000])
def test_a_blob_is_standard_base64_with_padding(size: int) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    blob = read(data)[0]["blob"]
    assert base64.b64decode(blob, validate=True) == data
    assert not {"-", "_"} & set(blob)
    assert len(blob) % 4 == 0


@dataclasses.dataclass
class Point:
    x: int
    y: "Point | None" = None


class Model(BaseModel):
    name: str
    price: Decimal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
        ([], "[]"),
        ((1, "é"), '[1,"é"]'),
        (5, "5"),
        (False, "false"),
        (Point(1, Point(2)), '{"x":1,"y":{"x":2,"y":null}}'),
        (Model(name="n", price=Decimal("1.50")), '{"name":"n","price":"1.50"}'),
        ([Model(name="n", price=Decimal(1))], '[{"name":"n","price":"1"}]'),
        (Json("text"), '"text"'),
        (Json(None), "null"),
    ],
    ids=repr,
)
def test_anything_that_json_can_say_becomes_json_text_of_json_type(value: Any, text: str) -> None:
    assert read(value) == [{"uri": KEY.uri, "mimeType": "application/json", "text": text}]


def test_a_declared_type_is_kept_and_an_undeclared_one_stays_absent() -> None:
    assert read({}, mime_type="application/geo+json")[0]["mimeType"] == "application/geo+json"
    assert "mimeType" not in read("x")[0]
    assert "mimeType" not in listed()
    for kind in ("Image/PNG", "text/plain; charset=latin-1"):
        assert read("x", mime_type=kind)[0]["mimeType"] == listed(mime_type=kind)["mimeType"] == kind


def test_several_entries_stand_as_they_are_under_their_own_uris() -> None:
    entries = [
        Contents(text="a"),
        Contents(blob=b"b", uri="docs://handbook/b", mime_type="image/png"),
        Contents(text="c", uri="docs://handbook/c"),
    ]
    assert read(entries, mime_type="text/plain") == [
        {"uri": KEY.uri, "mimeType": "text/plain", "text": "a"},
        {"uri": "docs://handbook/b", "mimeType": "image/png", "blob": "Yg=="},
        {"uri": "docs://handbook/c", "text": "c"},
    ]
    assert read(entries[0]) == [{"uri": KEY.uri, "text": "a"}]


@pytest.mark.parametrize(
    "contents",
    [
        None,
        float("nan"),
        {"a": float("inf")},
        object(),
        {1, 2},
        {"a": object()},
        {(1, 2): 3},
        "\ud800",
        {"a": "\udfff"},
        Contents(),
        Contents(text="a", blob=b"b"),
        Contents(text=b"a"),  # type: ignore[arg-type] # what a caller without a type checker does
        Contents(blob="a"),  # type: ignore[arg-type] # the same
        [Contents(text="a"), "b"],
        Contents(text="a", mime_type=""),
    ],
    ids=lambda contents: re.sub(r" at 0x[0-9a-f]+", "", repr(contents)),  # the same in every process
)
def test_what_cannot_be_read_out_is_refused_with_a_sentence(contents: Any) -> None:
    with pytest.raises(InvalidContents) as refusal:
        describe(KEY, contents)
    assert str(refusal.value).endswith(".")


def test_a_cycle_and_bottomless_nesting_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(InvalidContents):
            describe(KEY, value)
    while deep:  # taken apart by hand, since freeing it all at once recurses, too
        deep = deep.pop()


def test_no_line_separator_survives_in_what_is_stored() -> None:
    text = f"a{SEPARATORS}b"
    publication = describe(KEY, text, title=text, description=text)
    for data in (publication.body, publication.meta):
        assert len(data.decode().splitlines()) == 1
    assert json.loads(publication.body)[0]["text"] == text
    assert json.loads(publication.meta)["title"] == text


def test_text_of_the_world_is_stored_at_its_own_length() -> None:
    text = "зимний вечер 冬の夜 🎿"
    assert text.encode() in describe(KEY, text).body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_encoding_is_one_line_and_decodes_to_the_same(value: Any) -> None:
    try:
        encoded = encode_json(value)
    except InvalidContents:
        assert "\\ud" in json.dumps(value)  # a key with half a surrogate pair
        return
    assert json.loads(encoded) == value
    assert len(encoded.decode().splitlines()) <= 1


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_text_is_read_as_it_was_published(text: str) -> None:
    assert read(text)[0]["text"] == text


def test_the_limit_counts_encoded_bytes_and_names_them() -> None:
    over = len(describe(KEY, "x" * 100).body)
    assert describe(KEY, "x" * 100, over).body
    with pytest.raises(TooLarge, match=f"{over} bytes.*{over - 1}"):
        describe(KEY, "x" * 100, over - 1)
    with pytest.raises(TooLarge):
        describe(KEY, b"x" * 100, 99)
    with pytest.raises(TooLarge):
        describe(KEY, b"x" * 90, 100)
    with pytest.raises(TooLarge):
        describe(KEY, "x", description="d" * MAX_META_BYTES)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("docs://handbook/intro.md", "intro.md"),
        ("docs://handbook/", "handbook"),
        ("docs://readme", "readme"),
        ("urn:isbn:1", "urn:isbn:1"),
        ("file:///", "file:///"),
        ("x://h/a%20b?q=1#f", "a%20b"),
        ("x:a?b/c", "x:a?b/c"),
    ],
)
def test_a_name_defaults_to_the_last_segment_or_the_uri(uri: str, name: str) -> None:
    assert default_name(uri) == name


def test_the_list_shows_what_was_declared_and_no_nulls() -> None:
    assert listed() == {"uri": KEY.uri, "name": "intro.md"}
    everything = {
        "name": "n",
        "title": "t",
        "description": "",
        "size": 0,
        "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": None},
        "icons": [{"src": "https://x/i.png", "sizes": ["any"], "theme": "dark", "mimeType": None}],
    }
    assert listed(**everything, mime_type="a/b") == {
        "uri": KEY.uri,
        "name": "n",
        "title": "t",
        "description": "",
        "mimeType": "a/b",
        "size": 0,
        "annotations": {"audience": ["user"], "priority": 0.5},
        "icons": [{"src": "https://x/i.png", "sizes": ["any"], "theme": "dark"}],
    }


REFUSED: list[dict[str, Any]] = [
    {"name": ""},
    {"name": 5},
    {"title": b"x"},
    {"mime_type": ""},
    {"mime_type": "text/plain\r\nx: y"},
    {"size": -1},
    {"size": 1.5},
    {"size": True},
    {"annotations": {"last_modified": "x"}},
    {"annotations": {"audience": "user"}},
    {"annotations": {"audience": [{}]}},
    {"annotations": {"audience": 5}},
    {"annotations": {"priority": 2}},
    {"annotations": {"priority": float("nan")}},
    {"annotations": "high"},
    {"icons": {"src": "https://x"}},
    {"icons": [{}]},
    {"icons": [{"src": "javascript:alert(1)"}]},
    {"icons": [{"src": "https://x", "theme": "blue"}]},
    {"icons": [{"src": "https://x", "sizes": "any"}]},
    {"scopes": "a\\b"},
    {"scopes": ["a b"]},
    {"scopes": [5]},
    {"scopes": ["x" * 300]},
    {"ttl_ms": -1},
    {"cache_scope": "shared"},
    {"colour": "red"},
]


@pytest.mark.parametrize("about", REFUSED, ids=str)
def test_a_description_that_a_client_could_choke_on_is_refused(about: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refusal:
        describe(KEY, "x", **about)
    assert str(refusal.value).endswith((".", ")."))


@pytest.mark.parametrize("uri", ["", "users/me", " a:b", "a b:c", "1x:a", "case_law:x", "x:", "a:b\nc"])
def test_a_uri_that_is_none_is_refused_for_the_resource_and_for_an_entry(uri: str) -> None:
    with pytest.raises(InvalidUri):
        describe(ResourceKey(KEY.tenant, uri), "x")
    with pytest.raises(InvalidUri):
        describe(KEY, [Contents(text="x", uri=uri)])


def test_scopes_are_a_sorted_set_however_they_are_given() -> None:
    assert check_scopes("b a b") == check_scopes(["b", "a"]) == check_scopes({"a", "b"}) == ("a", "b")
    assert check_scopes(()) == check_scopes("") == ()


def test_the_digest_differs_with_everything_and_with_nothing_else() -> None:
    variants: list[tuple[str | bytes, dict[str, Any]]] = [
        ("x", {}),
        ("y", {}),
        (b"x", {}),
        ("x", {"title": "t"}),
        ("x", {"mime_type": "a/b"}),
        ("x", {"scopes": "s"}),
        ("x", {"ttl_ms": 0}),
        ("x", {"ttl_ms": 1}),
        ("x", {"cache_scope": "public"}),
        ("x", {"cache_scope": "private"}),
        ("x", {"size": 1}),
    ]
    digests = [describe(KEY, contents, **about).digest for contents, about in variants]
    assert len(set(digests)) == len(digests)
    assert describe(KEY, "x", scopes=["a", "b"]).digest == describe(KEY, "x", scopes="b a").digest


def test_the_first_part_of_the_digest_is_what_the_list_shows() -> None:
    def first(**about: Any) -> str:
        return describe(KEY, about.pop("contents", "x"), **about).digest[:24]

    assert first(contents="y") == first(ttl_ms=5) == first(cache_scope="public") == first()
    assert len({first(), first(title="t"), first(scopes="s"), first(size=3), first(contents={})}) == 5
