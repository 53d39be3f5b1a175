"""2026-07-28: what is refused in which order, and answers that the schema takes."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import methods

from broker.core.errors import (
    BrokerError,
    Draining,
    InvalidContents,
    InvalidCursor,
    InvalidUri,
    LimitReached,
    ResourceNotFound,
    StoreUnavailable,
    TooLarge,
    WrongStore,
)
from broker.core.identity import LIST
from broker.core.revision import Stamp
from broker.wire import extension, jsonrpc, modern
from broker.wire.era import META_CAPABILITIES, META_CLIENT, META_VERSION, MODERN_VERSION
from broker.wire.jsonrpc import Notification, Request, Response
from broker.wire.mirror import HEADER_MISMATCH
from broker.wire.operations import (
    UNKNOWN_STAMP,
    Acknowledge,
    Complete,
    Discover,
    Listen,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    Operation,
    Read,
)
from broker.wire.refusal import Refusal
from broker.wire.server import Offers, ServerInfo

URI = "docs://a/%7Ex?q=1"
META: dict[str, Any] = {
    META_VERSION: MODERN_VERSION,
    META_CLIENT: {"name": "test", "version": "1"},
    META_CAPABILITIES: {},
}
SERVER = ServerInfo("Broker of Acme", "9.9", "Acme's")


def request(method: str, meta: Any = None, **members: Any) -> Request:
    return Request("id-1", method, {**members, "_meta": META if meta is None else meta})


def mirrored(method: str, name: str | None = None, version: str = MODERN_VERSION) -> dict[str, str]:
    headers = {"mcp-protocol-version": version, "mcp-method": method, "accept": "*/*"}
    return headers if name is None else headers | {"mcp-name": name}


def ask(method: str, name: str | None = None, **members: Any) -> Operation:
    return modern.decode(request(method, **members), mirrored(method, name))


def refusal(
    message: Any, headers: Mapping[str, str], status: int, code: int, offers: Offers | None = None
) -> Refusal:
    with pytest.raises(Refusal) as caught:
        modern.decode(message, headers, offers or Offers())
    refused = caught.value
    assert (refused.status, refused.code) == (status, code), refused.message
    assert refused.id == (message.id if isinstance(message, Request) else None)
    assert refused.message.rstrip().endswith(".")
    return refused


# --- What can be asked ---


@pytest.mark.requirement("modern.method")
def test_every_method_becomes_an_operation() -> None:
    assert ask("server/discover") == Discover()
    assert ask("resources/list") == ListResources(None)
    assert ask("resources/list", cursor="abc") == ListResources("abc")
    assert ask("resources/list", cursor="") == ListResources("")
    assert ask("resources/templates/list", cursor="abc") == ListTemplates("abc")
    assert ask("resources/read", URI, uri=URI) == Read(URI)
    assert ask("tools/list") == ListTools()
    assert ask("prompts/list", cursor="x") == ListPrompts()
    assert ask("subscriptions/listen", notifications={}) == Listen((), wants_list=False)


@pytest.mark.requirement("listen.filter")
def test_a_listen_names_each_uri_once_in_order_and_byte_for_byte() -> None:
    uris = ["b:1", "a:1", "b:1", "a:%41", "a:A", "a:1"]
    listen = ask(
        "subscriptions/listen",
        notifications={"resourceSubscriptions": uris, "resourcesListChanged": True, "toolsListChanged": True},
    )
    assert listen == Listen(("b:1", "a:1", "a:%41", "a:A"), wants_list=True)


@pytest.mark.requirement("listen.nothing")
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"toolsListChanged": True, "promptsListChanged": True},
        {"resourcesListChanged": False, "resourceSubscriptions": []},
        {"futureChanged": {"x": 1}},
    ],
)
def test_a_filter_of_which_nothing_can_be_honoured_is_empty(wanted: dict[str, Any]) -> None:
    listen = ask("subscriptions/listen", notifications=wanted)
    assert isinstance(listen, Listen)
    assert listen.is_empty


@pytest.mark.requirement("extension.catch-up")
def test_catch_up_reads_what_an_acknowledgement_wrote() -> None:
    stamps = {"a:1": Stamp("epoch", 12, "0badcafe"), LIST: Stamp("epoch", 9, "00000001")}
    told = json.loads(modern.acknowledged(1, ["a:1"], wants_list=True, stamps=stamps))
    meta = {**META, extension.KNOWN: told["params"]["_meta"][extension.REVISIONS]}
    message = request("subscriptions/listen", meta, notifications={"resourceSubscriptions": ["a:1"]})
    listen = modern.decode(message, mirrored("subscriptions/listen"))
    assert listen == Listen(("a:1",), wants_list=False, known=stamps)


@pytest.mark.requirement("extension.catch-up")
@pytest.mark.parametrize("text", ["", "x", "e.1", "e.-1.m", 5, None, {}, "e.one.m"])
def test_a_revision_that_cannot_be_read_is_unknown_and_not_refused(text: Any) -> None:
    meta = {**META, extension.KNOWN: {"a:1": text}}
    message = request("subscriptions/listen", meta, notifications={"resourceSubscriptions": ["a:1"]})
    listen = modern.decode(message, mirrored("subscriptions/listen"))
    assert isinstance(listen, Listen)
    assert listen.known == {"a:1": UNKNOWN_STAMP}


@pytest.mark.requirement("listen.acknowledgement")
def test_an_acknowledgement_leaves_out_what_was_never_published() -> None:
    told = modern.acknowledged(1, ["a:1"], wants_list=False, stamps={"a:1": Stamp("epoch", 0, "")})
    assert json.loads(told)["params"]["_meta"][extension.REVISIONS] == {}


@pytest.mark.requirement("completion.form")
def test_completions_name_a_template_or_a_prompt() -> None:
    argument = {"name": "id", "value": "1"}
    template = {"type": "ref/resource", "uri": "test://{id}"}
    assert ask("completion/complete", ref=template, argument=argument) == Complete(
        "ref/resource", "test://{id}", "id", "1", {}
    )
    prompt = {"type": "ref/prompt", "name": "p", "title": "P"}
    context = {"arguments": {"a": "b"}}
    assert ask("completion/complete", ref=prompt, argument=argument, context=context) == Complete(
        "ref/prompt", "p", "id", "1", {"a": "b"}
    )


@pytest.mark.requirement("message.note")
@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/initialized", "x"])
def test_a_notification_is_acknowledged_without_headers_or_meta(method: str) -> None:
    assert modern.decode(Notification(method, {}), {}) == Acknowledge()


# --- The order of checks ---


@pytest.mark.requirement("modern.one-message")
@pytest.mark.parametrize("message", [Response(1), [request("ping")], []])
def test_a_posted_response_and_a_batch_are_refused(message: Any) -> None:
    refusal(message, mirrored("ping"), 400, -32600)


BROKEN_META: list[Any] = [
    "absent",
    "text",
    [],
    {},
    {META_VERSION: MODERN_VERSION},
    {META_CAPABILITIES: {}},
    {**META, META_VERSION: 2026},
    {**META, META_CAPABILITIES: None},
    {**META, META_CLIENT: "me"},
    {**META, META_CLIENT: {"name": "me"}},
    {**META, META_CLIENT: {"name": 1, "version": "1"}},
]


@pytest.mark.requirement("modern.meta")
@pytest.mark.parametrize("meta", BROKEN_META)
@pytest.mark.parametrize("headers", [{}, mirrored("other", version="v9"), mirrored("server/discover")])
def test_incomplete_meta_is_judged_first(meta: Any, headers: dict[str, str]) -> None:
    params = {} if meta == "absent" else {"_meta": meta}
    refused = refusal(Request("id-1", "no/such", params), headers, 400, -32602)
    assert META_VERSION in refused.message


@pytest.mark.requirement("modern.meta")
def test_the_clients_name_is_optional() -> None:
    meta: dict[str, Any] = {META_VERSION: MODERN_VERSION, META_CAPABILITIES: {}}
    assert modern.decode(request("server/discover", meta), mirrored("server/discover")) == Discover()


@pytest.mark.requirement("modern.version", "modern.mirror")
@pytest.mark.parametrize(
    "header", [None, "2025-11-25", "v999.0.0", "", "2026-07-28x", "2026-07-28, 2026-07-28"]
)
@pytest.mark.parametrize("version", [MODERN_VERSION, "v999"])
@pytest.mark.parametrize("method", ["server/discover", "no/such"])
def test_a_version_header_that_contradicts_the_body_is_judged_before_support_and_method(
    header: str | None, version: str, method: str
) -> None:
    headers = mirrored(method, version="x")
    headers.pop("mcp-protocol-version")
    if header is not None:
        headers["mcp-protocol-version"] = header
    refusal(request(method, {**META, META_VERSION: version}), headers, 400, HEADER_MISMATCH)


@pytest.mark.requirement("modern.version")
@pytest.mark.parametrize("version", ["v999.0.0", "2025-11-25", "2024-11-05", ""])
@pytest.mark.parametrize("method", ["server/discover", "no/such", "initialize"])
def test_an_unsupported_version_is_judged_before_the_method_and_told_what_there_is(
    version: str, method: str
) -> None:
    message = request(method, {**META, META_VERSION: version})
    refused = refusal(message, mirrored(method, version=version), 400, -32022)
    discovered = json.loads(modern.discovered(1))["result"]["supportedVersions"]
    assert refused.data == {"supported": discovered, "requested": version}


@pytest.mark.requirement("modern.method")
@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "no/such",
        "",
        "Resources/List",
        "prompts/get",
        "tools/call",
        "x" * 5000,
    ],
)
def test_a_method_that_does_not_exist_is_404_and_judged_before_params(method: str) -> None:
    refused = refusal(request(method, uri=5, name="n"), mirrored(method, "n"), 404, -32601)
    assert len(refused.message) < 300


@pytest.mark.requirement("capability.offers")
@pytest.mark.parametrize(
    ("method", "offers"),
    [
        ("tools/list", Offers(has_empty_tools=False)),
        ("prompts/list", Offers(has_empty_prompts=False)),
        ("completion/complete", Offers(has_completions=False)),
    ],
)
def test_what_is_not_advertised_does_not_exist(method: str, offers: Offers) -> None:
    refusal(request(method), mirrored(method), 404, -32601, offers)
    assert method.split("/", 1)[0].rstrip("s") not in {name.rstrip("s") for name in offers.capabilities()}


BAD_PARAMS: list[tuple[str, dict[str, Any]]] = [
    ("resources/list", {"cursor": 1}),
    ("resources/list", {"cursor": None}),
    ("resources/templates/list", {"cursor": {}}),
    ("tools/list", {"cursor": []}),
    ("resources/read", {}),
    ("resources/read", {"uri": None}),
    ("resources/read", {"uri": ["a:1"]}),
    ("subscriptions/listen", {}),
    ("subscriptions/listen", {"notifications": []}),
    ("subscriptions/listen", {"notifications": {"resourcesListChanged": "yes"}}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": 1}}),
    ("subscriptions/listen", {"notifications": {"promptsListChanged": None}}),
    ("subscriptions/listen", {"notifications": {"resourceSubscriptions": None}}),
    ("subscriptions/listen", {"notifications": {"resourceSubscriptions": "a:1"}}),
    ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:1", 1]}}),
    ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:1", None]}}),
    ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:1", ["a:2"]]}}),
    ("subscriptions/listen", {"notifications": {}, "_meta": {**META, extension.KNOWN: ["a:1"]}}),
    ("completion/complete", {}),
    ("completion/complete", {"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": ""}}),
    ("completion/complete", {"ref": {"type": "ref/prompt"}, "argument": {"name": "a", "value": ""}}),
    ("completion/complete", {"ref": {"type": "ref/resource", "uri": "a:1"}, "argument": {"name": "a"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "a", "value": ""},
            "context": {"arguments": {"b": 1}},
        },
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "p" * 2000}, "argument": {"name": "a", "value": ""}},
    ),
]


@pytest.mark.requirement("modern.params")
@pytest.mark.parametrize(("method", "members"), BAD_PARAMS)
def test_params_of_another_form_are_invalid(method: str, members: dict[str, Any]) -> None:
    refused = refusal(Request(0, method, {"_meta": META, **members}), mirrored(method, "x"), 400, -32602)
    assert method in refused.message


BAD_URIS = [
    "",
    "users/me",
    " a b",
    "x:",
    "a:b c",
    "a:<b>",
    "1x:y",
    "a:\ud800",
    "a:" + "x" * 700,
    "@list",
    "a:\0",
]


@pytest.mark.requirement("listen.refusal")
@pytest.mark.parametrize("uri", BAD_URIS)
def test_an_invalid_uri_is_refused_in_a_listen_and_said_which(uri: str) -> None:
    message = request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1", uri]})
    refused = refusal(message, mirrored("subscriptions/listen"), 400, -32602)
    assert refused.data == {"uri": uri}
    assert json.loads(refused.body())["error"]["data"]["uri"] == uri


@pytest.mark.requirement("error.not-found")
@pytest.mark.parametrize("uri", [uri for uri in BAD_URIS if uri.isprintable()])
def test_an_invalid_uri_in_a_read_has_the_code_of_one_that_is_not_found(uri: str) -> None:
    name = uri if uri == uri.strip() else encoded(uri)
    refused = refusal(request("resources/read", uri=uri), mirrored("resources/read", name), 400, -32602)
    assert refused.data == {"uri": uri}


@pytest.mark.requirement("error.sentence")
def test_an_invalid_uri_of_a_megabyte_is_not_sent_back() -> None:
    uri = "a:" + "x" * 1_000_000
    refused = refusal(request("resources/read", uri=uri), mirrored("resources/read", uri), 400, -32602)
    assert refused.data is None
    assert len(refused.body()) < 500


# --- Headers that mirror the body ---


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize("header", [URI, f"  {URI}\t", encoded(URI), f" {encoded(URI)} "])
def test_mcp_name_may_be_plain_padded_or_base64(header: str) -> None:
    assert modern.decode(request("resources/read", uri=URI), mirrored("resources/read", header)) == Read(URI)


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize("uri", ["docs://café", "docs://日本", "urn:😀", "=?base64?YTpi?="])
def test_a_name_that_no_header_can_hold_comes_as_base64(uri: str) -> None:
    message = request("resources/read", uri=uri)
    if uri.startswith("="):
        refusal(message, mirrored("resources/read", encoded(uri)), 400, -32602)
    else:
        assert modern.decode(message, mirrored("resources/read", encoded(uri))) == Read(uri)


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "docs://other",
        URI.upper(),
        URI + "/",
        URI.replace("%7E", "~"),
        f"{URI}, {URI}",
        "=?base64?!!!?=",
        encoded(URI).replace("?=", "=?="),
        encoded("docs://other"),
        encoded(URI).replace("base64", "BASE64"),
        encoded(f" {URI}"),
        "=?base64?=",
        "=?base64??=",
        "=?base64?/w==?=",
        f"=?base64?{base64.b64encode(URI.encode()).decode()}",
    ],
)
def test_mcp_name_must_be_there_and_name_exactly_the_uri(header: str | None) -> None:
    message = request("resources/read", uri=URI)
    refusal(message, mirrored("resources/read", header), 400, HEADER_MISMATCH)


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize("uri", ["docs://café", "docs://a\x85", "docs://a\x7fb"])
@pytest.mark.parametrize("charset", ["latin-1", "utf-8"])
def test_bytes_outside_ascii_are_refused_even_where_they_equal_the_body(uri: str, charset: str) -> None:
    """Header bytes arrive decoded as Latin-1; a raw é once passed since it equalled the body's."""
    header = uri.encode(charset).decode("latin-1")
    refusal(request("resources/read", uri=uri), mirrored("resources/read", header), 400, HEADER_MISMATCH)


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize("header", [None, "", "resources/read", "RESOURCES/LIST", "resources/list, x", "é"])
def test_mcp_method_must_be_there_and_exact(header: str | None) -> None:
    headers = mirrored("resources/list")
    del headers["mcp-method"]
    if header is not None:
        headers["mcp-method"] = header
    refusal(request("resources/list"), headers, 400, HEADER_MISMATCH)


@pytest.mark.requirement("modern.mirror")
def test_padded_headers_are_trimmed_and_mcp_name_is_ignored_where_it_means_nothing() -> None:
    headers = {
        "mcp-protocol-version": f" {MODERN_VERSION} ",
        "mcp-method": "\tresources/list ",
        "mcp-name": "é",
    }
    assert modern.decode(request("resources/list"), headers) == ListResources(None)


# --- Answers ---

STAMP = Stamp("epoch", 12, "0badcafe")
CONTENTS = b'[{"uri":"a:b","mimeType":"text/plain","text":"\xe2\x80\xa8"}]'
RESOURCE = b'{"uri":"a:b","name":"b"}'
TEMPLATE = b'{"uriTemplate":"a:{b}","name":"b"}'
ANSWERS: list[tuple[str, bytes]] = [
    ("server/discover", modern.discovered(5)),
    ("server/discover", modern.discovered(5, SERVER, Offers(has_empty_tools=False, has_empty_prompts=False))),
    (
        "resources/list",
        modern.listed(5, "resources", [RESOURCE, RESOURCE], "next", stamp=STAMP, server=SERVER),
    ),
    ("resources/list", modern.listed(5, "resources", [])),
    ("resources/templates/list", modern.listed(5, "resourceTemplates", [TEMPLATE], ttl_ms=5)),
    ("tools/list", modern.listed(5, "tools", [], cache_scope="public")),
    ("prompts/list", modern.listed(5, "prompts", [])),
    ("resources/read", modern.read(5, CONTENTS, 60_000, "private", STAMP, server=SERVER)),
    ("resources/read", modern.read(5, b"[]")),
    ("completion/complete", modern.completed(5, ["a", "b"], 7, has_more=True)),
    ("completion/complete", modern.completed(5, [str(n) for n in range(150)])),
    ("completion/complete", modern.completed(5, [])),
    ("subscriptions/listen", modern.finished(5)),
]


@pytest.mark.requirement("modern.result")
@pytest.mark.parametrize(("method", "answer"), ANSWERS)
def test_every_answer_is_valid_and_complete_and_says_who_answers(method: str, answer: bytes) -> None:
    message = json.loads(answer)
    assert set(message) == {"jsonrpc", "id", "result"}
    assert message["id"] == 5
    result = message["result"]
    methods.validate_server_result(method, MODERN_VERSION, result)
    assert result["resultType"] == "complete"
    assert set(result["_meta"][modern.META_SERVER]) >= {"name", "version"}
    assert "null" not in json.dumps(result)


@pytest.mark.requirement("modern.caching")
@pytest.mark.parametrize(("method", "answer"), ANSWERS)
def test_every_cacheable_answer_says_for_how_long_and_for_whom(method: str, answer: bytes) -> None:
    result = json.loads(answer)["result"]
    if method not in methods.CACHEABLE_METHODS:
        assert not {"ttlMs", "cacheScope"} & set(result)
        return
    assert isinstance(result["ttlMs"], int)
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
    if method.startswith("resources/"):
        assert result["cacheScope"] == "private"


@pytest.mark.requirement("modern.discover")
def test_discovery_names_what_there_is() -> None:
    result = json.loads(modern.discovered(1, SERVER))["result"]
    assert result["supportedVersions"] == [MODERN_VERSION]
    assert result["capabilities"] == {
        "resources": {"subscribe": True, "listChanged": True},
        "completions": {},
        "tools": {},
        "prompts": {},
    }
    assert result["_meta"][modern.META_SERVER] == {
        "name": "Broker of Acme",
        "version": "9.9",
        "title": "Acme's",
    }


@pytest.mark.requirement("resource.contents")
def test_contents_and_items_are_spliced_in_as_they_were_stored() -> None:
    assert b'"contents":%b,' % CONTENTS in modern.read(1, CONTENTS)
    assert b'"resources":[%b,%b],' % (RESOURCE, RESOURCE) in modern.listed(1, "resources", [RESOURCE] * 2)


@pytest.mark.requirement("list.pages")
def test_the_last_page_has_no_cursor() -> None:
    """An empty or null cursor sends clients into a loop or stops them early (field report 91)."""
    assert "nextCursor" not in json.loads(modern.listed(1, "resources", []))["result"]
    assert json.loads(modern.listed(1, "resources", [], "c"))["result"]["nextCursor"] == "c"


@pytest.mark.requirement("extension.revision")
def test_a_revision_is_carried_where_it_is_known_and_reads_back() -> None:
    meta = json.loads(modern.read(1, b"[]", stamp=STAMP))["result"]["_meta"]
    assert Stamp.parse(meta[extension.REVISION]) == STAMP
    assert extension.REVISION not in json.loads(modern.read(1, b"[]"))["result"]["_meta"]


@pytest.mark.requirement("extension.revision")
@pytest.mark.parametrize("key", [extension.REVISION, extension.REVISIONS, extension.KNOWN])
def test_our_extension_keys_are_not_in_a_reserved_space(key: str) -> None:
    prefix, _, name = key.partition("/")
    assert prefix.split(".")[1] not in ("modelcontextprotocol", "mcp")
    assert name.isalpha()


@pytest.mark.requirement("modern.caching")
def test_a_negative_lifetime_is_none() -> None:
    assert json.loads(modern.read(1, b"[]", ttl_ms=-5))["result"]["ttlMs"] == 0


@pytest.mark.requirement("completion.form")
def test_more_completions_than_may_be_sent_are_cut_and_said_so() -> None:
    completion = json.loads(modern.completed(1, [str(n) for n in range(150)], 150))["result"]["completion"]
    assert completion == {"values": [str(n) for n in range(100)], "total": 150, "hasMore": True}


@pytest.mark.requirement("listen.acknowledgement")
@pytest.mark.parametrize("request_id", [0, "", "listen:0", "0", 9007199254740993])
@pytest.mark.parametrize(
    ("uris", "wants_list", "honoured"),
    [
        ([], False, {}),
        ([], True, {"resourcesListChanged": True}),
        (["a:é", "b:1"], False, {"resourceSubscriptions": ["a:é", "b:1"]}),
        (["a:é"], True, {"resourcesListChanged": True, "resourceSubscriptions": ["a:é"]}),
    ],
)
def test_an_acknowledgement_names_what_is_honoured_under_the_listens_id(
    request_id: str | int,
    uris: list[str],
    wants_list: bool,  # noqa: FBT001 - a column of the matrix
    honoured: dict[str, Any],
) -> None:
    message = json.loads(modern.acknowledged(request_id, uris, wants_list))
    assert message["method"] == "notifications/subscriptions/acknowledged"
    assert "id" not in message
    assert message["params"]["notifications"] == honoured
    told = message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    assert (told, type(told)) == (request_id, type(request_id))
    methods.parse_server_notification(message["method"], MODERN_VERSION, message["params"])


@pytest.mark.requirement("listen.end")
@pytest.mark.parametrize("request_id", [0, "", "listen:0"])
def test_a_listen_that_we_end_is_answered_under_its_id(request_id: str | int) -> None:
    message = json.loads(modern.finished(request_id))
    assert message["id"] == request_id
    assert message["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == request_id


@pytest.mark.requirement("listen.tag", "message.id")
def test_ids_are_echoed_in_their_own_writing_everywhere() -> None:
    message = jsonrpc.parse(b'{"jsonrpc":"2.0","id":1.50,"method":"x"}')
    assert isinstance(message, Request)
    for answer in (
        modern.discovered(message.id),
        modern.listed(message.id, "resources", []),
        modern.read(message.id, b"[]"),
        modern.completed(message.id, []),
        modern.finished(message.id),
        modern.refused(message.id, LimitReached("No.")).body(),
    ):
        assert b'"id":1.50,' in answer
    assert b'subscriptionId":1.50' in modern.acknowledged(message.id, [], wants_list=True)
    assert b'subscriptionId":1.50' in modern.finished(message.id)


# --- Errors ---


@pytest.mark.requirement("error.sentence")
@pytest.mark.parametrize(
    ("error", "status", "code", "data"),
    [
        (ResourceNotFound("a:b"), 400, -32602, {"uri": "a:b"}),
        (InvalidUri("a b", "it has a blank"), 400, -32602, {"uri": "a b"}),
        (InvalidCursor("Not ours."), 400, -32602, None),
        (InvalidContents("No."), 400, -32602, None),
        (TooLarge("Too large."), 400, -32602, None),
        (LimitReached("Too many."), 200, -31429, {"reason": "limit", "retryable": False}),
        (StoreUnavailable("Wait."), 200, -31503, {"reason": "store_unavailable", "retryable": True}),
        (Draining("Leaving."), 200, -31503, {"reason": "draining", "retryable": True}),
        (WrongStore("Wrong."), 200, -32603, {"reason": "wrong_store", "retryable": False}),
        (BrokerError("Oh."), 200, -32603, {"reason": "internal", "retryable": False}),
    ],
)
def test_every_error_has_its_code_status_and_sentence(
    error: BrokerError, status: int, code: int, data: Any
) -> None:
    refused = modern.refused(7, error)
    assert (refused.status, refused.code, refused.data, refused.id) == (status, code, data, 7)
    assert refused.headers == ()
    body = json.loads(refused.body())
    assert body["id"] == 7
    assert body["error"]["message"] == error.public
    assert ("data" in body["error"]) == (data is not None)


@pytest.mark.requirement("listen.refusal")
@pytest.mark.parametrize(("error", "status"), [(LimitReached("No."), 429), (StoreUnavailable("No."), 503)])
def test_a_listen_refused_before_its_acknowledgement_says_when_to_come_back(
    error: BrokerError, status: int
) -> None:
    refused = modern.refused("L1", error, is_listen=True)
    assert refused.status == status
    assert dict(refused.headers)[b"retry-after"].isdigit()
    assert refused.code != -32601
    assert not -32768 <= refused.code <= -32000


@pytest.mark.requirement("error.sentence")
def test_a_refusal_shows_itself_in_a_traceback() -> None:
    assert repr(modern.refused(1, LimitReached("Too many."))) == "<Refusal 200 -31429 'Too many.'>"
