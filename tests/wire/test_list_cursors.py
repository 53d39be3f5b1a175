"""Cursors of resources/list: opaque, signed, and good in one tenant only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidCursor
from broker.core.identity import MAX_URI_BYTES, TenantId
from broker.wire.cursor import CursorCodec

pytestmark = pytest.mark.requirement("list.cursor")

CODEC = CursorCodec(b"k" * 32)
ACME, GLOBEX = TenantId("acme"), TenantId("globex")

uris = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@given(uris, st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_cursor_names_where_the_next_page_begins(uri: str, tenant: str) -> None:
    text = CODEC.encode(TenantId(tenant), uri)
    assert CODEC.decode(TenantId(tenant), text) == uri
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_the_longest_uri_fits() -> None:
    uri = "a:" + "x" * (MAX_URI_BYTES - 2)
    assert CODEC.decode(ACME, CODEC.encode(ACME, uri)) == uri


def test_any_replica_with_the_fleets_secret_reads_it_and_no_other() -> None:
    text = CODEC.encode(ACME, "docs://1")
    assert CursorCodec(b"k" * 32).decode(ACME, text) == "docs://1"
    with pytest.raises(InvalidCursor):
        CursorCodec(b"K" * 32).decode(ACME, text)


def test_a_cursor_of_another_tenant_is_refused_like_a_forged_one() -> None:
    with pytest.raises(InvalidCursor) as foreign:
        CODEC.decode(GLOBEX, CODEC.encode(ACME, "docs://1"))
    with pytest.raises(InvalidCursor) as forged:
        CODEC.decode(GLOBEX, "A" * 40)
    assert str(foreign.value) == str(forged.value)


@pytest.mark.parametrize(("one", "two"), [(("a", "b:c"), ("ab", ":c")), (("a:", "b"), ("a", ":b"))])
def test_tenant_and_uri_cannot_be_shifted_into_each_other(one: tuple[str, str], two: tuple[str, str]) -> None:
    text = CODEC.encode(TenantId(one[0]), one[1])
    with pytest.raises(InvalidCursor):
        CODEC.decode(TenantId(two[0]), text)


@pytest.mark.parametrize("uri", ["docs://1", "docs://12", "docs://123"])
def test_no_single_character_can_be_changed_dropped_or_added(uri: str) -> None:
    """With one, two and three bytes in the last group: its unused bits must not be free to change."""
    text = CODEC.encode(ACME, uri)
    for at in range(len(text)):
        for forged in (
            *(text[:at] + c + text[at + 1 :] for c in "Ab-_9=+/ é" if c != text[at]),
            text[:at] + text[at + 1 :],
            text[:at] + "A" + text[at:],
        ):
            if forged != text:
                with pytest.raises(InvalidCursor):
                    CODEC.decode(ACME, forged)


@pytest.mark.parametrize("text", ["", "=", "A", "AAAA", "null", "\0", "é" * 20, "A" * 10_000, "\ud800" * 30])
def test_garbage_is_an_invalid_cursor(text: str) -> None:
    with pytest.raises(InvalidCursor, match="first page"):
        CODEC.decode(ACME, text)


@given(st.text())
def test_no_text_makes_decoding_raise_anything_else(text: str) -> None:
    with pytest.raises(InvalidCursor):
        CODEC.decode(ACME, text)


def test_a_short_secret_is_refused_and_none_is_shown() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        CursorCodec(b"short")
    assert "k" * 8 not in repr(CODEC)
