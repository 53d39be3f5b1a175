"""Names of tenants, resources and sessions: checked once, then opaque (design section 5, decision 7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidTenant, InvalidUri
from broker.core.identity import (
    ACCESS,
    LIST,
    MAX_TENANT_BYTES,
    MAX_URI_BYTES,
    TEMPLATES,
    ResourceKey,
    TenantId,
    check_tenant,
    check_uri,
    is_session_id,
    new_replica_id,
    new_session_id,
)


@pytest.mark.parametrize(
    "uri",
    [
        "docs://readme",
        "urn:isbn:0451450523",
        "HTTP://EXAMPLE.com/%7efoo/../bar?q#frag",
        "x:y",
        "a+b-c.d://é/漢字/🎉",
        "docs://a{b}|c^d`e\\f",
        "docs://" + "a" * (MAX_URI_BYTES - 7),
    ],
)
def test_a_good_uri_comes_back_as_it_was(uri: str) -> None:
    assert check_uri(uri) is uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "readme",
        "/docs/readme",
        "docs:",
        "1docs://x",
        ":x",
        LIST,
        TEMPLATES,
        ACCESS,
        "docs://a b",
        "docs://a\n",
        "docs://a\x00",
        "docs://a\x7f",
        "docs://a\x85b",
        "docs://a\u2028b",
        "docs://a\u3000b",
        'docs://a"b',
        "docs://<a>",
        "\ufeffdocs://a",
        "d\u00f6cs://a",
        "docs://\ud800",
        "docs://" + "a" * (MAX_URI_BYTES - 6),
        "docs://" + "é" * (MAX_URI_BYTES // 2),
    ],
)
def test_a_bad_uri_is_refused_with_a_sentence_that_shows_it(uri: str) -> None:
    with pytest.raises(InvalidUri) as caught:
        check_uri(uri)
    assert str(caught.value).endswith(".")
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 2000


@given(st.text())
def test_no_text_at_all_breaks_the_uri_check(text: str) -> None:
    try:
        assert check_uri(text) is text
    except InvalidUri:
        return
    assert not text.startswith("@")
    assert len(text.encode()) <= MAX_URI_BYTES
    assert not any(c.isspace() for c in text)


@given(st.text())
def test_no_text_at_all_breaks_the_tenant_check(text: str) -> None:
    try:
        assert check_tenant(text) == text
    except InvalidTenant:
        return
    assert 0 < len(text.encode()) <= MAX_TENANT_BYTES
    assert text.isprintable()


@pytest.mark.parametrize("tenant", ["", "a\nb", "a\x00", "\ud800", "a" * 65, "é" * 33, "a\u2028"])
def test_a_bad_tenant_is_refused(tenant: str) -> None:
    with pytest.raises(InvalidTenant):
        check_tenant(tenant)


def test_the_same_uri_in_two_tenants_is_two_keys() -> None:
    assert ResourceKey(TenantId("a"), "docs://x") != ResourceKey(TenantId("b"), "docs://x")
    assert ResourceKey(TenantId("a"), "b:c") != ResourceKey(TenantId("ab"), ":c")


def test_a_tenants_lists_are_keys_that_no_resource_can_have() -> None:
    for name in (LIST, TEMPLATES, ACCESS):
        assert ResourceKey(TenantId("a"), name).is_list
    assert not ResourceKey(TenantId("a"), "docs://@list").is_list


def test_session_ids_are_visible_ascii_and_never_the_same() -> None:
    made = {new_session_id() for _ in range(200)}
    assert len(made) == 200
    assert all(is_session_id(each) and all("!" <= c <= "~" for c in each) for each in made)


@pytest.mark.parametrize("value", ["", "x", "A" * 42, "A" * 44, "A" * 42 + "\n", "A" * 43 + "\n", "é" * 43])
def test_what_has_not_our_form_is_no_session_id(value: str) -> None:
    assert not is_session_id(value)


def test_a_restarted_process_is_another_replica() -> None:
    assert new_replica_id() != new_replica_id()
