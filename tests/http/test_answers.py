"""Forms of an answer: Accept and Content-Type, nothing compressed, nothing kept, CORS on everything."""

import json
from typing import Any

import httpx
import pytest

from tests.http.asking import (
    Asking,
    error_of,
    initialize,
    modern_headers,
    modern_request,
    request,
    result_of,
)
from tests.support.mcp import BOTH, Modern
from tests.support.replica import Fleet
from tests.support.sse import Frame, Reader
from workers import Publisher

JSON = "application/json"
STREAM = "text/event-stream"
DISCOVER = modern_headers("server/discover")


def frames_of(answer: httpx.Response) -> list[Frame]:
    """Return the frames of an answer that is a stream, every byte checked."""
    reader = Reader()
    frames = reader.feed(answer.content)
    reader.end()
    return frames


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize(
    "accept",
    [
        BOTH, "text/event-stream, application/json", "application/json", "*/*", "application/*", "",
        "APPLICATION/JSON", "text/event-stream;q=0.5, application/json;q=0.1", "text/html, */*;q=0.1",
    ],
)  # fmt: skip
async def test_json_is_the_answer_wherever_it_is_accepted(accept: str, ask: Asking) -> None:
    for message, headers in ((modern_request("server/discover"), DISCOVER), (initialize(), {})):
        answer = await ask.post(message, {**headers, "accept": accept})
        assert answer.headers["content-type"] == JSON
        result_of(answer)


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize("accept", [STREAM, "text/*", "text/event-stream, application/json;q=0"])
async def test_who_accepts_only_a_stream_gets_the_same_answer_as_one_event(accept: str, ask: Asking) -> None:
    begun = await ask.post(initialize(), {"accept": accept})
    session = {"mcp-session-id": begun.headers["mcp-session-id"], "accept": accept}
    answers = [
        begun,
        await ask.post(request("ping"), session),
        await ask.post(modern_request("server/discover"), {**DISCOVER, "accept": accept}),
        await ask.post(
            modern_request("resources/list"), {**modern_headers("resources/list"), "accept": accept}
        ),
    ]
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == STREAM
        (frame,) = frames_of(answer)
        assert frame.id is None, "an id would make clients resume what cannot be resumed"
        assert frame.message is not None
        assert "result" in frame.message


@pytest.mark.requirement("endpoint.accept", "message.batch")
async def test_a_batch_is_one_event_too(ask: Asking) -> None:
    session = await ask.session("2025-03-26")
    answer = await ask.post([request("ping", 1), request("ping", 2)], {**session, "accept": STREAM})
    assert answer.content.startswith(b"event: message\ndata: [")
    assert answer.content.count(b"\n\n") == 1


@pytest.mark.requirement("endpoint.accept", "error.sentence")
async def test_an_error_is_json_whatever_is_accepted(ask: Asking) -> None:
    """Clients read the status first, and an error's body as JSON."""
    session = await ask.session()
    for accept in (BOTH, JSON, STREAM):
        answer = await ask.post(request("no/such"), {**session, "accept": accept})
        assert (answer.status_code, error_of(answer)["code"]) == (200, -32601)


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize(
    "accept", ["text/html", "image/png", "application/json;q=0", "text/event-stream;q=0"]
)
async def test_who_accepts_neither_is_406_and_told_what_there_is(accept: str, ask: Asking) -> None:
    session = await ask.session()
    for message, headers in (
        (modern_request("server/discover"), DISCOVER),
        (initialize(), {}),
        (request("ping"), session),
    ):
        answer = await ask.post(message, {**headers, "accept": accept})
        assert answer.status_code == 406
        assert STREAM in error_of(answer)["message"]


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize("accept", [JSON, "text/html", "text/event-stream;q=0, */*"])
async def test_a_stream_needs_to_be_accepted(accept: str, ask: Asking) -> None:
    session = await ask.session()
    listen = modern_request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
    for answer in (
        await ask.send("GET", {**session, "accept": accept}),
        await ask.post(listen, {**modern_headers("subscriptions/listen"), "accept": accept}),
    ):
        assert answer.status_code == 406
        error_of(answer)


@pytest.mark.requirement("endpoint.content-type")
@pytest.mark.parametrize(
    "content_type",
    [JSON, "Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"'],
)
async def test_json_in_utf8_is_read(content_type: str, ask: Asking) -> None:
    result_of(await ask.post(initialize(), {"content-type": content_type}))


@pytest.mark.requirement("endpoint.content-type")
@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
async def test_any_other_type_is_415_and_unread(content_type: str, ask: Asking) -> None:
    answer = await ask.post(initialize(), {"content-type": content_type})
    assert answer.status_code == 415
    error_of(answer)


@pytest.mark.requirement("endpoint.accept")
async def test_a_get_with_a_content_type_and_both_types_accepted_is_a_stream(ask: Asking) -> None:
    """Python's clients send that."""
    session = await ask.session()
    headers = {**session, "accept": BOTH, "content-type": JSON, "cache-control": "no-store"}
    async with ask.http.stream("GET", ask.url, headers={**headers, "broker-tenant": ask.tenant}) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, STREAM)


@pytest.mark.requirement("endpoint.verbatim")
@pytest.mark.parametrize("encoding", ["gzip", "gzip, deflate, br, zstd", "*", "identity;q=0, gzip"])
async def test_nothing_is_compressed(
    encoding: str, ask: Asking, publisher: Publisher, fleet: Fleet, tenant: str
) -> None:
    """A compressed stream is held back by whoever compresses; contents may mix secrets and guesses."""
    await publisher.publish("docs:x", "x" * 5000)
    read = await ask.post(
        modern_request("resources/read", uri="docs:x"),
        modern_headers("resources/read", "docs:x", **{"accept-encoding": encoding}),
    )
    session = await ask.session()
    headers = {**session, "accept": STREAM, "accept-encoding": encoding, "broker-tenant": tenant}
    async with ask.http.stream("GET", fleet.url, headers=headers) as stream:
        for answer in (read, stream):
            assert "content-encoding" not in answer.headers
            assert answer.headers["cache-control"] == "no-store"


# --- CORS -------------------------------------------------------------------------------------------------

PAGE = "http://localhost:5173"


def check_cors(answer: httpx.Response) -> None:
    assert answer.headers["access-control-allow-origin"] == PAGE, answer
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert "mcp-session-id" in exposed
    assert "www-authenticate" in exposed
    assert "origin" in answer.headers["vary"].lower()


@pytest.mark.requirement("endpoint.cors")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_preflight_allows_what_browser_clients_send(method: str, ask: Asking) -> None:
    answer = await ask.send(
        "OPTIONS",
        {
            "origin": PAGE,
            "access-control-request-method": method,
            "access-control-request-headers": "content-type,mcp-protocol-version,mcp-session-id,mcp-method,"
            "mcp-name,last-event-id,authorization",
        },
    )
    assert (answer.status_code, answer.content) == (204, b"")
    check_cors(answer)
    allowed = answer.headers["access-control-allow-headers"].lower()
    for name in ("content-type", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name",
                 "last-event-id", "authorization", "accept"):  # fmt: skip
        assert name in allowed
    assert method in answer.headers["access-control-allow-methods"]


@pytest.mark.requirement("endpoint.cors")
async def test_every_answer_can_be_read_by_a_page_that_may_call(ask: Asking) -> None:
    session = await ask.session()
    origin = {"origin": PAGE}
    answers = {
        200: await ask.post(initialize(), origin),
        202: await ask.post({"jsonrpc": "2.0", "method": "notifications/made/up"}, {**session, **origin}),
        400: await ask.post(b"{", origin),
        404: await ask.post(request("ping"), {**origin, "mcp-session-id": "gone"}),
        405: await ask.send("PUT", origin),
        406: await ask.post(initialize(), {**origin, "accept": "text/html"}),
        413: await ask.post(b" " * 1_000_001, origin),
        415: await ask.post(initialize(), {**origin, "content-type": "text/plain"}),
        204: await ask.send("DELETE", {**session, **origin}),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        check_cors(answer)


@pytest.mark.requirement("endpoint.cors")
async def test_a_stream_can_be_read_by_a_page_that_may_call(ask: Asking) -> None:
    session = await ask.session()
    own = {"origin": PAGE, "broker-tenant": ask.tenant, "accept": BOTH}
    async with ask.http.stream("GET", ask.url, headers={**session, **own}) as stream:
        assert stream.status_code == 200
        check_cors(stream)
    listen = modern_request("subscriptions/listen", notifications={"resourcesListChanged": True})
    headers = modern_headers("subscriptions/listen", **own, **{"content-type": JSON})
    async with ask.http.stream("POST", ask.url, content=json.dumps(listen), headers=headers) as stream:
        assert stream.status_code == 200
        check_cors(stream)


@pytest.mark.requirement("endpoint.cors")
async def test_without_an_origin_there_are_no_cors_headers(ask: Asking) -> None:
    answer = await ask.post(initialize())
    assert not [name for name in answer.headers if name.startswith("access-control-")]


# --- Hints ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("modern.caching")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("server/discover", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/read", {"uri": "docs:x"}),
    ],
)
async def test_every_cacheable_result_says_for_how_long_and_for_whom(
    method: str, params: dict[str, Any], ask: Asking, publisher: Publisher
) -> None:
    await publisher.publish("docs:x", "text")
    result = result_of(await ask.modern(method, name=params.get("uri"), **params))
    assert result["resultType"] == "complete"
    assert isinstance(result["ttlMs"], int)
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] == ("public" if method == "server/discover" else "private")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcp-resource-broker"


@pytest.mark.requirement("modern.caching")
async def test_a_publisher_may_say_how_long_its_resource_keeps(
    publisher: Publisher, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    await publisher.publish("docs:x", "text", ttl_ms=60_000, cache_scope="public")
    read = await Modern(fleet.url, tenant, http).ask("resources/read", uri="docs:x")
    assert (read["ttlMs"], read["cacheScope"]) == (60_000, "public")
