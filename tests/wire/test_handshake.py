"""The 2025 revisions: sessions that no refusal ends, and answers that each revision's schema takes."""

import json
from typing import Any

import pytest
from mcp_types import methods

from broker.core.errors import (
    BrokerError,
    Draining,
    InvalidCursor,
    InvalidUri,
    LimitReached,
    ResourceNotFound,
    SessionNotFound,
    StoreUnavailable,
    WrongStore,
)
from broker.core.revision import Stamp
from broker.wire import extension, handshake
from broker.wire.era import HANDSHAKE_VERSIONS, MODERN_VERSION
from broker.wire.jsonrpc import Notification, Request, Response
from broker.wire.operations import (
    Acknowledge,
    Complete,
    Initialize,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    Operation,
    Ping,
    Read,
    SetLevel,
    Subscribe,
    Unsubscribe,
)
from broker.wire.refusal import Refusal
from broker.wire.server import Offers, ServerInfo

pytestmark = pytest.mark.requirement("session.methods")

SERVER = ServerInfo("Broker of Acme", "9.9", "Acme's")


def ask(method: str, version: str = "2025-11-25", **params: Any) -> Operation:
    return handshake.decode(Request(3, method, params), version)


def refusal(method: str, params: dict[str, Any], offers: Offers | None = None) -> Refusal:
    """The refusal of a request in a live session: always HTTP 200, or Python 1.x loses the session."""
    with pytest.raises(Refusal) as caught:
        handshake.decode(Request(3, method, params), "2025-11-25", offers or Offers())
    assert caught.value.status == 200
    assert caught.value.id == 3
    assert caught.value.message.endswith(".")
    return caught.value


# --- Versions ---


@pytest.mark.requirement("session.negotiation")
@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_a_known_version_is_agreed_to(version: str) -> None:
    assert handshake.negotiate(version) == version


@pytest.mark.requirement("session.negotiation")
@pytest.mark.parametrize("version", ["2024-11-05", "2099-01-01", MODERN_VERSION, "", "x"])
def test_for_an_unknown_version_the_latest_is_offered(version: str) -> None:
    assert handshake.negotiate(version) == "2025-11-25"


@pytest.mark.requirement("session.version-header")
@pytest.mark.parametrize("value", [None, *HANDSHAKE_VERSIONS, " 2025-11-25\t"])
def test_the_version_header_may_be_absent_or_any_version_that_a_session_can_have(value: str | None) -> None:
    handshake.check_version_header(value, 1)


@pytest.mark.requirement("session.version-header")
@pytest.mark.parametrize(
    "value", ["", "1999-01-01", MODERN_VERSION, "2024-11-05", "2025-11-25, 2025-11-25", "é"]
)
def test_any_other_version_header_is_a_400_that_names_what_there_is(value: str) -> None:
    with pytest.raises(Refusal, match="2025-06-18") as caught:
        handshake.check_version_header(value, 0)
    assert (caught.value.status, caught.value.id) == (400, 0)


# --- Batches (field report 97) ---


@pytest.mark.requirement("message.batch")
def test_batches_are_received_in_sessions_of_the_one_revision_that_has_them() -> None:
    messages = [Request(1, "resources/list", {}), Notification("n", {}), Response(2)]
    handshake.check_batch(messages, "2025-03-26")
    for version in ("2025-06-18", "2025-11-25"):
        with pytest.raises(Refusal, match="2025-03-26") as caught:
            handshake.check_batch(messages, version)
        assert (caught.value.status, caught.value.code, caught.value.id) == (400, -32600, None)


@pytest.mark.requirement("message.batch")
def test_initialize_is_never_part_of_a_batch() -> None:
    with pytest.raises(Refusal, match="alone") as caught:
        handshake.check_batch([Request(1, "ping", {}), Request(2, "initialize", {})], "2025-03-26")
    assert (caught.value.status, caught.value.code) == (400, -32600)


# --- Requests ---


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_every_method_becomes_an_operation(version: str) -> None:
    assert ask("initialize", version, protocolVersion="x", capabilities={}, clientInfo={}) == Initialize("x")
    assert ask("ping", version) == Ping()
    assert ask("logging/setLevel", version, level="info") == SetLevel("info")
    assert ask("resources/list", version) == ListResources(None)
    assert ask("resources/list", version, cursor="") == ListResources("")
    assert ask("resources/templates/list", version, cursor="c") == ListTemplates("c")
    assert ask("resources/read", version, uri="demo://host") == Read("demo://host")
    assert ask("resources/subscribe", version, uri="a:%7Ex") == Subscribe("a:%7Ex")
    assert ask("resources/unsubscribe", version, uri="a:~x") == Unsubscribe("a:~x")
    assert ask("tools/list", version, cursor="c") == ListTools()
    assert ask("prompts/list", version) == ListPrompts()
    argument = {"name": "arg1", "value": "test"}
    prompt = {"type": "ref/prompt", "name": "p"}
    read = Complete("ref/prompt", "p", "arg1", "test", {})
    assert ask("completion/complete", version, ref=prompt, argument=argument) == read
    assert ask("completion/complete", version, ref=prompt, argument=argument, context={}) == read


@pytest.mark.requirement("message.note")
@pytest.mark.parametrize(
    "message",
    [
        Notification("notifications/initialized", {}),
        Notification("notifications/cancelled", {"requestId": 1}),
        Notification("no/such", {}),
        Response(1),
    ],
)
def test_notifications_and_posted_responses_are_acknowledged(message: Notification | Response) -> None:
    assert handshake.decode(message, "2025-06-18") == Acknowledge()


def test_request_meta_of_the_earlier_versions_is_ignored() -> None:
    assert ask("resources/list", _meta={"progressToken": 5}) == ListResources(None)


@pytest.mark.parametrize(
    "method", ["server/discover", "subscriptions/listen", "tools/call", "prompts/get", "x"]
)
def test_a_method_that_does_not_exist_is_said_so(method: str) -> None:
    assert refusal(method, {}).code == -32601


@pytest.mark.requirement("capability.offers")
@pytest.mark.parametrize(
    ("method", "offers"),
    [
        ("tools/list", Offers(has_empty_tools=False)),
        ("prompts/list", Offers(has_empty_prompts=False)),
        ("logging/setLevel", Offers(has_logging=False)),
        ("completion/complete", Offers(has_completions=False)),
    ],
)
def test_what_is_not_advertised_does_not_exist(method: str, offers: Offers) -> None:
    assert refusal(method, {}, offers).code == -32601
    told = json.loads(handshake.initialized(1, "2025-11-25", SERVER, offers))["result"]["capabilities"]
    assert method.split("/", 1)[0].rstrip("s") not in {name.rstrip("s") for name in told}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialize", {}),
        ("initialize", {"protocolVersion": 5}),
        ("initialize", {"protocolVersion": "2025-11-25", "capabilities": []}),
        ("initialize", {"protocolVersion": "2025-11-25", "clientInfo": "me"}),
        ("logging/setLevel", {}),
        ("logging/setLevel", {"level": "loud"}),
        ("resources/list", {"cursor": 5}),
        ("resources/templates/list", {"cursor": None}),
        ("resources/read", {}),
        ("resources/read", {"uri": 5}),
        ("resources/subscribe", {}),
        ("resources/subscribe", {"uri": ["a:b"]}),
        ("resources/subscribe", {"uri": ""}),
        ("resources/subscribe", {"uri": "users/me"}),
        ("resources/subscribe", {"uri": "a:\ud800"}),
        ("resources/unsubscribe", {"uri": "a b"}),
        ("completion/complete", {"ref": {}}),
    ],
)
def test_params_of_another_form_are_invalid(method: str, params: dict[str, Any]) -> None:
    assert refusal(method, params).code == -32602


@pytest.mark.requirement("error.not-found")
@pytest.mark.parametrize("uri", ["", "users/me", "a:b c", "a:\ud800", "@list"])
def test_an_invalid_uri_in_a_read_has_the_code_of_one_that_is_not_found(uri: str) -> None:
    refused = refusal("resources/read", {"uri": uri})
    assert (refused.code, refused.data) == (-32002, {"uri": uri})
    assert json.loads(refused.body())["error"]["data"] == {"uri": uri}


# --- Answers ---


@pytest.mark.requirement("capability.offers")
@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
@pytest.mark.parametrize("offers", [Offers(), Offers(False, False, False, False)])  # noqa: FBT003 - all off
def test_initialize_says_version_capabilities_and_who_answers(version: str, offers: Offers) -> None:
    result = json.loads(handshake.initialized(0, version, SERVER, offers))["result"]
    methods.validate_server_result("initialize", version, result)
    assert result["protocolVersion"] == version
    assert result["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
    assert ("tools" in result["capabilities"]) == offers.has_empty_tools
    assert ("title" in result["serverInfo"]) == (version != "2025-03-26")


STAMP = Stamp("epoch", 12, "0badcafe")
ANSWERS: list[tuple[str, bytes]] = [
    ("resources/list", handshake.listed("a", "resources", [b'{"uri":"a:b","name":"b"}'], "next")),
    ("resources/list", handshake.listed("a", "resources", [])),
    (
        "resources/templates/list",
        handshake.listed("a", "resourceTemplates", [b'{"uriTemplate":"a:{b}","name":"b"}']),
    ),
    ("tools/list", handshake.listed("a", "tools", [])),
    ("prompts/list", handshake.listed("a", "prompts", [])),
    ("resources/read", handshake.read("a", b'[{"uri":"a:b","text":"x"}]', STAMP)),
    ("resources/read", handshake.read("a", b'[{"uri":"a:b","blob":"eA=="}]')),
    ("completion/complete", handshake.completed("a", [])),
    ("completion/complete", handshake.completed("a", [str(n) for n in range(150)], 150, has_more=True)),
    ("ping", handshake.empty("a")),
    ("logging/setLevel", handshake.empty("a")),
    ("resources/subscribe", handshake.empty("a")),
    ("resources/unsubscribe", handshake.empty("a")),
]


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
@pytest.mark.parametrize(("method", "answer"), ANSWERS)
def test_every_answer_is_valid_in_every_revision(method: str, answer: bytes, version: str) -> None:
    message = json.loads(answer)
    assert set(message) == {"jsonrpc", "id", "result"}
    assert message["id"] == "a"
    methods.validate_server_result(method, version, message["result"])
    assert not {"resultType", "ttlMs", "cacheScope"} & set(message["result"])


def test_an_empty_result_has_no_members_at_all() -> None:
    assert handshake.empty(0) == b'{"jsonrpc":"2.0","id":0,"result":{}}'


def test_the_last_page_has_no_cursor() -> None:
    assert json.loads(handshake.listed(1, "resources", []))["result"] == {"resources": []}
    assert json.loads(handshake.listed(1, "resources", [], "c"))["result"]["nextCursor"] == "c"


@pytest.mark.requirement("extension.revision")
def test_a_read_carries_its_revision_where_it_is_known() -> None:
    assert json.loads(handshake.read(1, b"[]"))["result"] == {"contents": []}
    meta = json.loads(handshake.read(1, b"[]", STAMP))["result"]["_meta"]
    assert Stamp.parse(meta[extension.REVISION]) == STAMP


# --- Errors ---


@pytest.mark.requirement("session.refusal", "error.sentence")
@pytest.mark.parametrize(
    ("error", "status", "code", "data"),
    [
        (SessionNotFound(), 404, -32600, None),
        (ResourceNotFound("a:b"), 200, -32002, {"uri": "a:b"}),
        (InvalidUri("a b", "it has a blank"), 200, -32602, {"uri": "a b"}),
        (InvalidCursor("Not ours."), 200, -32602, None),
        (LimitReached("Too many."), 200, -31429, {"reason": "limit", "retryable": False}),
        (StoreUnavailable("Wait."), 200, -31503, {"reason": "store_unavailable", "retryable": True}),
        (Draining("Leaving."), 200, -31503, {"reason": "draining", "retryable": True}),
        (WrongStore("Wrong."), 200, -32603, {"reason": "wrong_store", "retryable": False}),
        (BrokerError("Oh."), 200, -32603, {"reason": "internal", "retryable": False}),
    ],
)
def test_no_error_but_a_lost_session_is_another_status_than_200(
    error: BrokerError, status: int, code: int, data: Any
) -> None:
    refused = handshake.refused("x", error)
    assert (refused.status, refused.code, refused.data, refused.headers) == (status, code, data, ())
    body = json.loads(refused.body())
    assert body["id"] == "x"
    assert body["error"]["message"] == error.public
