"""The pre-encoded cue: the same notification, whichever stream it is spliced into."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods

from broker.core.errors import InvalidUri
from broker.core.identity import ACCESS, LIST, TEMPLATES, ResourceKey, TenantId, check_uri
from broker.wire import cue, eventid
from broker.wire.encoding import RequestId
from broker.wire.era import HANDSHAKE_VERSIONS, MODERN_VERSION
from broker.wire.jsonrpc import Request, parse
from broker.wire.sse import COMMENT
from tests.wire.strict_sse import frames

pytestmark = pytest.mark.requirement("sse.cue")

ACME = TenantId("acme")
UPDATED = "notifications/resources/updated"
LIST_CHANGED = "notifications/resources/list_changed"
URIS = [
    "docs://readme",
    "demo://a/%7Ex?q=1",
    "demo://host",
    "demo://host/",
    "urn:é",
    "a:\u2028",
    "a:\\",
    "a:\ud7ff",
]


def modern(uri: str, request_id: RequestId) -> bytes:
    return cue.encode(ResourceKey(ACME, uri)).modern + cue.modern_tail(request_id)


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize("request_id", [0, -1, "", "0", "listen:0", 9007199254740993])
def test_a_modern_cue_names_the_exact_uri_and_the_listens_id_with_its_type(
    uri: str, request_id: RequestId
) -> None:
    (frame,) = frames(modern(uri, request_id))
    assert frame.id is None
    message = frame.message
    assert message == {
        "jsonrpc": "2.0",
        "method": UPDATED,
        "params": {"uri": uri, "_meta": {cue.META_SUBSCRIPTION: request_id}},
    }
    assert type(message["params"]["_meta"][cue.META_SUBSCRIPTION]) is type(request_id)
    methods.parse_server_notification(UPDATED, MODERN_VERSION, message["params"])


def test_the_listens_id_is_echoed_in_its_own_writing() -> None:
    listen = parse(b'{"jsonrpc":"2.0","id":1.50,"method":"subscriptions/listen"}')
    assert isinstance(listen, Request)
    assert b'subscriptionId":1.50}' in modern("a:b", listen.id)


@pytest.mark.parametrize("uri", URIS)
def test_a_session_cue_has_the_id_that_it_proves_and_the_exact_uri(uri: str) -> None:
    encoded = cue.encode(ResourceKey(ACME, uri))
    event_id = eventid.format("t" * 16, "e", 41)
    with_id, without = frames(
        cue.handshake_head(event_id) + encoded.handshake + COMMENT + cue.HANDSHAKE_PLAIN + encoded.handshake
    )
    assert (with_id.id, without.id) == (event_id, None)
    assert with_id.message == without.message == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri}}


@pytest.mark.parametrize("uri", [LIST, TEMPLATES, ACCESS])
def test_a_list_key_says_that_the_list_changed_and_not_the_keys_name(uri: str) -> None:
    (frame,) = frames(modern(uri, 5))
    meta = {cue.META_SUBSCRIPTION: 5}
    assert frame.message == {"jsonrpc": "2.0", "method": LIST_CHANGED, "params": {"_meta": meta}}
    methods.parse_server_notification(LIST_CHANGED, MODERN_VERSION, frame.message["params"])
    (frame,) = frames(cue.HANDSHAKE_PLAIN + cue.encode(ResourceKey(ACME, uri)).handshake)
    assert frame.message == {"jsonrpc": "2.0", "method": LIST_CHANGED}
    assert b"@" not in modern(uri, 5)


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
@pytest.mark.parametrize("uri", ["a:b", LIST])
def test_a_session_cue_is_valid_in_every_earlier_version(version: str, uri: str) -> None:
    (frame,) = frames(cue.HANDSHAKE_PLAIN + cue.encode(ResourceKey(ACME, uri)).handshake)
    methods.parse_server_notification(frame.message["method"], version, frame.message.get("params"))


def test_a_cue_tells_nothing_of_the_tenant() -> None:
    encoded = cue.encode(ResourceKey(TenantId("secret-tenant"), "a:b"))
    assert b"secret" not in encoded.modern + encoded.handshake
    assert encoded == cue.encode(ResourceKey(ACME, "a:b"))


@given(st.text(max_size=60).map(lambda rest: f"a:{rest}"), st.text(max_size=10) | st.integers())
def test_any_uri_and_any_id_arrive_as_they_are(uri: str, request_id: RequestId) -> None:
    try:
        check_uri(uri)
    except InvalidUri:
        return
    (frame,) = frames(modern(uri, request_id))
    assert frame.message["params"] == {"uri": uri, "_meta": {cue.META_SUBSCRIPTION: request_id}}
