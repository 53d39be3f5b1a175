"""The token of an acknowledgement: a set of fingerprints (docs/adr/0002-catch-up-token.md)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.identity import TenantId
from broker.core.revision import Stamp
from broker.wire import extension
from broker.wire.extension import TOKEN, covered, fingerprint, token

pytestmark = pytest.mark.requirement("extension.catch-up")

T1, T2 = TenantId("t1"), TenantId("t2")
STAMPS = {"a:1": Stamp("e", 5, "mark"), "a:2": Stamp("e", 0, ""), "@list": Stamp("e", 9, "m")}


def is_covered(tenant: TenantId, uri: str, stamp: Stamp, text: Any) -> bool:
    prints = covered({TOKEN: text})
    assert prints is not None
    return fingerprint(tenant, uri, stamp) in prints


@pytest.mark.parametrize("uri", STAMPS)
def test_a_token_covers_each_of_its_uris_at_its_revision(uri: str) -> None:
    assert is_covered(T1, uri, STAMPS[uri], token(T1, STAMPS))


def test_a_revision_that_outlived_its_epoch_is_still_covered() -> None:
    assert is_covered(T1, "a:1", Stamp("other", 5, "mark"), token(T1, STAMPS))


@pytest.mark.parametrize(
    ("tenant", "uri", "stamp"),
    [
        (T1, "a:1", Stamp("e", 6, "mark")),
        (T1, "a:1", Stamp("e", 5, "kram")),
        (T1, "a:1", Stamp("e", 0, "")),
        (T1, "a:2", Stamp("e", 5, "mark")),
        (T1, "a:3", Stamp("e", 5, "mark")),
        (T2, "a:1", Stamp("e", 5, "mark")),
    ],
    ids=["later", "a fork", "removed", "another uri's", "not in it", "another tenant's"],
)
def test_it_covers_nothing_else(tenant: TenantId, uri: str, stamp: Stamp) -> None:
    assert not is_covered(tenant, uri, stamp, token(T1, STAMPS))


def test_without_a_token_there_is_none() -> None:
    assert covered({}) is None


@pytest.mark.parametrize("text", [None, 5, [], "", "=", "!", "\u00e9", "A", "eHh4eHh4eHh4"])
def test_what_is_no_token_covers_nothing_and_is_not_refused(text: Any) -> None:
    assert not is_covered(T1, "a:1", STAMPS["a:1"], text)


@given(st.text())
def test_no_text_makes_reading_a_token_raise(text: str) -> None:
    assert not is_covered(T1, "a:1", STAMPS["a:1"], text)


def test_a_token_is_the_same_in_whatever_order_the_filter_was() -> None:
    assert token(T1, STAMPS) == token(T1, dict(reversed(STAMPS.items())))


def test_a_token_costs_eleven_bytes_a_uri() -> None:
    many = {f"docs://{number:04}": Stamp("e", number, "m") for number in range(1000)}
    assert len(token(T1, many)) <= 11_000


def test_tenant_and_uri_cannot_be_shifted_into_each_other() -> None:
    stamp = Stamp("e", 1, "m")
    assert extension.fingerprint(TenantId("t"), "a:b", stamp) != fingerprint(TenantId("ta"), ":b", stamp)
