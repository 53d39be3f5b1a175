"""Header by method by version over HTTP: which era a request gets, and what a mistake in it is answered.

The table is design section 5; what each dialect then checks is in tests/wire. Here it is whole requests that
reach real replicas, any of them.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.http.asking import (
    META_CAPABILITIES,
    META_VERSION,
    Asking,
    connected,
    error_of,
    head,
    initialize,
    modern_headers,
    modern_meta,
    modern_request,
    request,
    result_of,
)
from tests.support.mcp import BOTH, MODERN
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from workers import Publisher

VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]
STRANGE = ["2024-11-05", "v999.0.0", "2026-07-29", "x" * 200]
UNKNOWN_SESSION = "A" * 43

PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/"])


def at(fleet: Fleet, path: str) -> str:
    return fleet.url.removesuffix("/mcp") + path


@pytest.mark.requirement("endpoint.path")
@PATHS
async def test_both_spellings_of_the_path_answer_and_neither_redirects(
    path: str, fleet: Fleet, ask: Asking
) -> None:
    """Clients do not follow a redirect of a POST, and some lose its body on the way."""
    url = at(fleet, path)
    assert result_of(
        await ask.post(modern_request("server/discover"), modern_headers("server/discover"), url)
    )
    assert result_of(await ask.post(initialize(), url=url))
    for method in ("GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"):
        answer = await ask.send(method, {}, url=url)
        assert not answer.is_redirect, answer
        assert "location" not in answer.headers


@pytest.mark.requirement("endpoint.methods")
@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("version", [None, *VERSIONS, MODERN])
async def test_other_methods_are_405_and_told_what_there_is(
    method: str, version: str | None, ask: Asking
) -> None:
    headers = {} if version is None else {"mcp-protocol-version": version}
    answer = await ask.send(method, headers)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST, DELETE, OPTIONS"
    if method != "HEAD":
        assert error_of(answer)["id"] is None


@pytest.mark.requirement("endpoint.methods", "endpoint.era")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("version", [None, *VERSIONS, *STRANGE, MODERN])
async def test_get_and_delete_without_a_session_are_405_in_the_modern_era_and_else_400(
    method: str, version: str | None, ask: Asking
) -> None:
    headers = {"accept": BOTH} | ({} if version is None else {"mcp-protocol-version": version})
    answer = await ask.send(method, headers)
    assert answer.status_code == (405 if version == MODERN else 400)
    error_of(answer)
    if version == MODERN:
        assert answer.headers["allow"] == "POST"


@pytest.mark.requirement("session.negotiation")
@pytest.mark.parametrize("header", [None, *VERSIONS, *STRANGE, MODERN])
@pytest.mark.parametrize("asked", [*VERSIONS, *STRANGE, MODERN])
async def test_initialize_negotiates_by_its_body_whatever_its_header_says(
    header: str | None, asked: str, ask: Asking
) -> None:
    headers = {} if header is None else {"mcp-protocol-version": header}
    answer = await ask.post(initialize(asked), headers)
    assert result_of(answer)["protocolVersion"] == (asked if asked in VERSIONS else VERSIONS[-1])
    assert len(answer.headers["mcp-session-id"]) == 43


@pytest.mark.requirement("endpoint.era")
@pytest.mark.parametrize("session", [None, UNKNOWN_SESSION, "stale"])
@pytest.mark.parametrize("method", ["server/discover", "resources/list"])
async def test_a_modern_body_is_answered_whatever_session_it_names(
    session: str | None, method: str, ask: Asking
) -> None:
    named = {} if session is None else {"mcp-session-id": session, "last-event-id": "7"}
    answer = await ask.post(modern_request(method, "m"), modern_headers(method) | named)
    assert result_of(answer)["resultType"] == "complete"
    assert "mcp-session-id" not in answer.headers


@pytest.mark.requirement("endpoint.era")
@pytest.mark.parametrize("version", [None, *VERSIONS])
@pytest.mark.parametrize("method", ["ping", "resources/list", "server/discover", "no/such"])
async def test_a_request_of_no_session_is_400_and_told_how_to_begin(
    version: str | None, method: str, ask: Asking
) -> None:
    headers = {} if version is None else {"mcp-protocol-version": version}
    answer = await ask.post(request(method, 5), headers)
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["code"], error["id"]) == (-32600, 5)
    assert "initialize" in error["message"]


@pytest.mark.requirement("endpoint.era")
@pytest.mark.parametrize("version", [*STRANGE, MODERN])
async def test_without_session_and_meta_another_version_header_gets_the_modern_eras_error(
    version: str, ask: Asking
) -> None:
    answer = await ask.post(request("resources/list", 5), {"mcp-protocol-version": version})
    assert answer.status_code == 400
    assert error_of(answer)["code"] == -32602


@pytest.mark.requirement("session.version-header")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("header", [None, *VERSIONS])
async def test_in_a_session_the_version_header_may_be_absent_or_any_of_the_era(
    version: str, header: str | None, ask: Asking
) -> None:
    session = {"mcp-session-id": (await ask.session(version))["mcp-session-id"]}
    headers = session if header is None else {**session, "mcp-protocol-version": header}
    assert result_of(await ask.post(request("ping"), headers)) == {}


@pytest.mark.requirement("session.version-header")
@pytest.mark.parametrize("header", [*STRANGE, MODERN])
async def test_in_a_session_any_other_version_header_is_400_and_the_session_lives(
    header: str, ask: Asking
) -> None:
    session = await ask.session()
    wrong = {**session, "mcp-protocol-version": header}
    answer = await ask.post(request("ping", 9), wrong)
    assert answer.status_code == 400
    assert error_of(answer)["id"] == 9
    for method in ("GET", "DELETE"):
        assert (await ask.send(method, {**wrong, "accept": BOTH})).status_code == 400
    assert result_of(await ask.post(request("ping"), session)) == {}


# --- The modern era's order of checks (2026-07-28, "Server Validation") -----------------------------------


MISTAKES: list[tuple[str, dict[str, Any], dict[str, str], int, int]] = [
    ("no meta", request("no/such"), modern_headers("x"), 400, -32602),
    (
        "no capabilities",
        request("no/such", _meta={META_VERSION: "v9"}),
        modern_headers("x"),
        400,
        -32602,
    ),
    (
        "no version in meta",
        request("no/such", _meta={META_CAPABILITIES: {}}),
        modern_headers("x"),
        400,
        -32602,
    ),
    (
        "header against meta, both unknown",
        request("no/such", _meta=modern_meta("v9")),
        modern_headers("no/such", **{"mcp-protocol-version": "v8"}),
        400,
        -32020,
    ),
    (
        "header against meta, meta unknown",
        request("no/such", _meta=modern_meta("v9")),
        modern_headers("no/such"),
        400,
        -32020,
    ),
    ("another method", modern_request("no/such"), modern_headers("resources/list"), 400, -32020),
    ("no method", modern_request("no/such"), {"mcp-protocol-version": MODERN}, 400, -32020),
    ("no version", modern_request("no/such"), {"mcp-method": "no/such"}, 400, -32020),
    (
        "method in another case",
        modern_request("resources/list"),
        modern_headers("RESOURCES/LIST"),
        400,
        -32020,
    ),
    (
        "version unknown, method too",
        request("no/such", _meta=modern_meta("v9")),
        modern_headers("no/such", **{"mcp-protocol-version": "v9"}),
        400,
        -32022,
    ),
    ("no name", modern_request("resources/read", uri="a:b"), modern_headers("resources/read"), 400, -32020),
    (
        "another name",
        modern_request("resources/read", uri="a:b"),
        modern_headers("resources/read", "a:c"),
        400,
        -32020,
    ),
    (
        "bad base64",
        modern_request("resources/read", uri="a:b"),
        modern_headers("resources/read", "=?base64?!?="),
        400,
        -32020,
    ),
    ("no such method", modern_request("no/such"), modern_headers("no/such"), 404, -32601),
    (
        "of the other era",
        modern_request("resources/subscribe", uri="a:b"),
        modern_headers("resources/subscribe"),
        404,
        -32601,
    ),
    ("initialize with meta", modern_request("initialize"), modern_headers("initialize"), 404, -32601),
    ("params", modern_request("resources/list", cursor=5), modern_headers("resources/list"), 400, -32602),
    (
        "cursor",
        modern_request("resources/list", cursor="eA"),
        modern_headers("resources/list"),
        400,
        -32602,
    ),
    (
        "not found",
        modern_request("resources/read", uri="a:b"),
        modern_headers("resources/read", "a:b"),
        400,
        -32602,
    ),
    (
        "filter",
        modern_request("subscriptions/listen", notifications=[]),
        modern_headers("subscriptions/listen"),
        400,
        -32602,
    ),
]


@pytest.mark.requirement("modern.meta", "modern.mirror", "modern.version", "modern.method", "modern.params")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[0])
async def test_each_mistake_of_a_modern_request_has_its_own_answer(
    mistake: tuple[str, dict[str, Any], dict[str, str], int, int], ask: Asking
) -> None:
    _, message, headers, status, code = mistake
    answer = await ask.post({**message, "id": "my-id"}, headers)
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["id"]) == (status, code, "my-id")


@pytest.mark.requirement("modern.version", "modern.discover")
async def test_an_unknown_version_is_told_the_supported_ones_and_discover_says_the_same(ask: Asking) -> None:
    message = request("server/discover", 3, _meta=modern_meta("v9"))
    headers = modern_headers("server/discover", **{"mcp-protocol-version": "v9"})
    data = error_of(await ask.post(message, headers))["data"]
    assert data == {"supported": [MODERN], "requested": "v9"}
    assert result_of(await ask.modern("server/discover"))["supportedVersions"] == data["supported"]


@pytest.mark.requirement("error.not-found")
async def test_a_resource_not_found_has_the_eras_code_and_names_the_uri(ask: Asking) -> None:
    modern = await ask.modern("resources/read", name="a:b", uri="a:b")
    assert (modern.status_code, error_of(modern)["code"], error_of(modern)["data"]) == (
        400, -32602, {"uri": "a:b"},
    )  # fmt: skip
    session = await ask.session()
    handshake = await ask.post(request("resources/read", uri="a:b"), session)
    assert (handshake.status_code, error_of(handshake)["code"], error_of(handshake)["data"]) == (
        200, -32002, {"uri": "a:b"},
    )  # fmt: skip


@pytest.mark.requirement("message.note")
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}},
        {"jsonrpc": "2.0", "method": "notifications/made/up"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"_meta": modern_meta()}},
    ],
)
async def test_a_stray_notification_of_the_modern_era_is_202_with_or_without_its_headers(
    message: dict[str, Any], ask: Asking
) -> None:
    """TypeScript clients close a request and also post its cancellation, without Mcp-Method."""
    answer = await ask.post(message, {"mcp-protocol-version": MODERN})
    assert (answer.status_code, answer.content) == (202, b"")


@pytest.mark.requirement("modern.one-message")
@pytest.mark.parametrize(
    "message",
    [{"jsonrpc": "2.0", "id": 4, "result": {}}, [modern_request("resources/list")], []],
    ids=["response", "batch", "empty batch"],
)
async def test_a_posted_response_or_batch_of_the_modern_era_is_400(message: Any, ask: Asking) -> None:
    answer = await ask.post(message, modern_headers("resources/list"))
    assert answer.status_code == 400
    assert error_of(answer)["code"] == -32600


# --- Header bytes that only a bare connection can send ----------------------------------------------------


async def raw_read(fleet: Fleet, tenant: str, uri: str, name: bytes) -> tuple[int, dict[str, Any]]:
    body = json.dumps(modern_request("resources/read", uri=uri)).encode()
    start = head(
        MCP_Protocol_Version=MODERN,
        Mcp_Method="resources/read",
        Content_Length=str(len(body)),
        Broker_Tenant=tenant,
    )
    async with connected(fleet[0].address) as line:
        await line.write(start.removesuffix(b"\r\n") + b"Mcp-Name: " + name + b"\r\n\r\n" + body)
        answer = await line.answer()
    return answer.status, json.loads(answer.body)


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize("name", [b"  docs:x  ", b"\tdocs:x", b"docs:x"])
async def test_blanks_around_mcp_name_do_not_count(
    name: bytes, fleet: Fleet, publisher: Publisher, tenant: str
) -> None:
    await publisher.publish("docs:x", "text")
    status, body = await raw_read(fleet, tenant, "docs:x", name)
    assert status == 200, body


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize("name", ["docs:\u00e9".encode(), "docs:\u00e9".encode("latin-1"), b"docs:\xff"])
async def test_bytes_outside_ascii_in_mcp_name_are_refused_even_where_they_equal_the_body(
    name: bytes, fleet: Fleet, publisher: Publisher, tenant: str
) -> None:
    await publisher.publish("docs:\u00e9", "text")
    status, body = await raw_read(fleet, tenant, "docs:\u00e9", name)
    assert (status, body["error"]["code"]) == (400, -32020)


@pytest.mark.requirement("modern.mirror")
@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method"])
async def test_a_mirroring_header_that_comes_twice_is_refused(name: str, ask: Asking) -> None:
    """Who looks at the first line and who looks at the last would disagree."""
    message = modern_request("resources/list")
    headers = [("content-type", "application/json"), *modern_headers("resources/list").items()]
    twice = [*headers, (name, dict(headers)[name])]
    answer = await ask.http.post(ask.url, content=json.dumps(message), headers=twice)
    assert (answer.status_code, error_of(answer)["code"]) == (400, -32020)


@pytest.mark.requirement("modern.mirror")
async def test_header_names_are_of_any_case(fleet: Fleet) -> None:
    body = json.dumps(modern_request("server/discover")).encode()
    start = head(
        **{
            "MCP-PROTOCOL-VERSION": MODERN,
            "mCp-MeThOd": "server/discover",
            "CONTENT-LENGTH": str(len(body)),
        }
    )
    async with connected(fleet[0].address) as line:
        await line.write(start + body)
        assert (await line.answer()).status == 200


# --- Host and Origin --------------------------------------------------------------------------------------


@pytest.mark.requirement("endpoint.host")
@pytest.mark.parametrize(
    "host", ["evil.example.com", "localhost.evil.com", "127.0.0.1.example", "10.0.0.1", ""]
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
async def test_a_foreign_host_is_refused_before_anything_else(host: str, method: str, ask: Asking) -> None:
    answer = await ask.send(method, {"host": host, "accept": BOTH})
    assert answer.status_code == 421
    error_of(answer)


@pytest.mark.requirement("endpoint.origin")
@pytest.mark.parametrize(
    "origin", ["http://evil.example.com", "https://localhost.evil.com", "null", "file://", "http://10.0.0.1"]
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
async def test_a_foreign_origin_is_403_and_gets_no_cors_headers(
    origin: str, method: str, ask: Asking
) -> None:
    answer = await ask.send(method, {"origin": origin, "accept": BOTH})
    assert answer.status_code == 403
    error_of(answer)
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.requirement("endpoint.host", "endpoint.origin")
async def test_allowed_hosts_and_origins_are_settings(
    new_fleet: Callable[..., Fleet], redis_server: RedisServer, http: httpx.AsyncClient
) -> None:
    fleet = await asyncio.to_thread(
        new_fleet,
        redis_server.url,
        1,
        BROKER_HTTP__ALLOWED_HOSTS="mcp.example.org",
        BROKER_HTTP__ALLOWED_ORIGINS="https://app.example.org",
    )
    ask = Asking(http, fleet.url, "default")
    good = {"host": "mcp.example.org", "origin": "https://app.example.org"}
    assert result_of(await ask.post(initialize(), good))
    for name, value, status in (("host", "localhost", 421), ("origin", "http://localhost", 403)):
        assert (await ask.post(initialize(), {**good, name: value})).status_code == status
