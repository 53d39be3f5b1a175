"""Media types, Content-Type, Host, Origin and CORS: decided by headers and settings alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.headers import (
    EVENT_STREAM,
    JSON,
    Form,
    Perimeter,
    accepts,
    answer_form,
    check_content_type,
    check_host,
    check_origin,
    check_stream,
    cors,
    preflight,
)
from broker.wire.refusal import Refusal

# --- Accept (field reports 100 and 101) ---


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/json, text/event-stream",
        "text/event-stream, application/json",
        "text/event-stream,application/json",
        "Application/JSON;charset=utf-8 , TEXT/EVENT-STREAM",
        "application/*, text/*",
        "text/event-stream;q=0.9, application/json",
        "text/html, */*;q=0.1",
        "application/json",
        "application/json;q=0.001",
        "*/*;q=0, application/json",
        "application/json;level=1;q=high",
    ],
)
def test_json_is_the_answer_wherever_it_is_accepted(accept: str | None) -> None:
    assert answer_form({} if accept is None else {"accept": accept}) is Form.JSON


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize(
    "accept",
    [
        "text/event-stream",
        "text/*",
        "application/json;q=0, */*",
        "application/json; Q=0.0, text/event-stream",
        "application/*;q=0, text/event-stream;q=0.1",
        "image/png, text/event-stream",
    ],
)
def test_who_accepts_only_a_stream_gets_a_stream(accept: str) -> None:
    assert answer_form({"accept": accept}) is Form.STREAM
    check_stream({"accept": accept})


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize(
    "accept", ["image/png", "text/html", "*/*;q=0", "application/jsonx", "json", ",,", "*"]
)
def test_who_accepts_neither_is_told_what_there_is(accept: str) -> None:
    for check in (answer_form, check_stream):
        with pytest.raises(Refusal, match="text/event-stream") as caught:
            check({"accept": accept})
        assert caught.value.status == 406


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize("accept", [None, "", "*/*", "text/*", "text/event-stream", "application/json, */*"])
def test_a_stream_needs_a_range_that_has_it(accept: str | None) -> None:
    check_stream({} if accept is None else {"accept": accept})


@pytest.mark.requirement("endpoint.accept")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream;q=0, */*", "application/*"])
def test_without_such_a_range_there_is_no_stream(accept: str) -> None:
    with pytest.raises(Refusal):
        check_stream({"accept": accept})


@pytest.mark.requirement("endpoint.accept")
@given(st.lists(st.sampled_from(["application/json", "text/event-stream;q=0.5", "image/*"]), min_size=1))
def test_the_order_of_ranges_means_nothing(ranges: list[str]) -> None:
    def read(parts: list[str]) -> tuple[bool, bool]:
        headers = {"accept": ", ".join(parts)}
        return accepts(headers, JSON), accepts(headers, EVENT_STREAM)

    assert read(ranges) == read(ranges[::-1])


@pytest.mark.requirement("endpoint.accept")
@given(st.text())
def test_no_accept_header_raises_anything_but_a_refusal(accept: str) -> None:
    assert accepts({"accept": accept}, JSON) in (True, False)


# --- Content-Type (field report 103) ---


@pytest.mark.requirement("endpoint.content-type")
@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
    ],
)
def test_json_in_utf8_is_read(value: str) -> None:
    check_content_type({"content-type": value})


@pytest.mark.requirement("endpoint.content-type")
@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "text/plain",
        "text/plain; charset=application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/jsonx",
        "text/json",
        "application/json, text/plain",
    ],
)
def test_any_other_type_is_refused_unread(value: str | None) -> None:
    """A page in a browser can send forms and text anywhere without a preflight."""
    with pytest.raises(Refusal, match="application/json") as caught:
        check_content_type({} if value is None else {"content-type": value})
    assert caught.value.status == 415


# --- Host and Origin (field report 109) ---

LOCAL = Perimeter()
PUBLIC = Perimeter(frozenset({"MCP.example.org", "10.0.0.1:8443"}), frozenset({"https://App.example.org"}))
OPEN = Perimeter(frozenset({"*"}), frozenset({"*"}))


@pytest.mark.requirement("endpoint.host")
@pytest.mark.parametrize(
    ("perimeter", "host"),
    [
        (LOCAL, "localhost"),
        (LOCAL, "LOCALHOST:8000"),
        (LOCAL, "127.0.0.1:8000"),
        (LOCAL, "127.8.9.1"),
        (LOCAL, "[::1]:8000"),
        (LOCAL, "[::1]"),
        (PUBLIC, "mcp.example.org"),
        (PUBLIC, "mcp.EXAMPLE.org:443"),
        (PUBLIC, "10.0.0.1:8443"),
        (OPEN, "anything"),
        (OPEN, ""),
    ],
)
def test_an_allowed_host_is_answered(perimeter: Perimeter, host: str) -> None:
    check_host({"host": host}, perimeter)


@pytest.mark.requirement("endpoint.host")
@pytest.mark.parametrize(
    ("perimeter", "host"),
    [
        (LOCAL, None),
        (LOCAL, ""),
        (LOCAL, "evil.example.com"),
        (LOCAL, "localhost.evil.example.com"),
        (LOCAL, "127.0.0.1.evil.example.com"),
        (LOCAL, "localhost@evil.example.com"),
        (LOCAL, "evil.example.com/localhost"),
        (LOCAL, "localhost:x"),
        (LOCAL, "[::1"),
        (LOCAL, "0.0.0.0:8000"),
        (LOCAL, "10.0.0.1"),
        (LOCAL, "2130706433"),
        (LOCAL, "localhost,evil.example.com"),
        (PUBLIC, "localhost"),
        (PUBLIC, "mcp.example.org.evil.com"),
        (PUBLIC, "10.0.0.1"),
        (PUBLIC, "10.0.0.1:8444"),
    ],
)
def test_a_foreign_host_is_refused_with_the_setting_named(perimeter: Perimeter, host: str | None) -> None:
    with pytest.raises(Refusal, match="allowed hosts") as caught:
        check_host({} if host is None else {"host": host}, perimeter)
    assert 400 <= caught.value.status < 500


@pytest.mark.requirement("endpoint.origin")
@pytest.mark.parametrize(
    ("perimeter", "origin"),
    [
        (LOCAL, None),
        (LOCAL, "http://localhost:6274"),
        (LOCAL, "http://127.0.0.1:8000"),
        (LOCAL, "https://[::1]"),
        (PUBLIC, None),
        (PUBLIC, "https://app.example.org"),
        (OPEN, "null"),
        (OPEN, "http://evil.example.com"),
    ],
)
def test_an_allowed_origin_or_none_may_call(perimeter: Perimeter, origin: str | None) -> None:
    check_origin({} if origin is None else {"origin": origin}, perimeter)


@pytest.mark.requirement("endpoint.origin")
@pytest.mark.parametrize(
    ("perimeter", "origin"),
    [
        (LOCAL, "http://evil.example.com"),
        (LOCAL, "null"),
        (LOCAL, ""),
        (LOCAL, "localhost"),
        (LOCAL, "file://localhost"),
        (LOCAL, "http://localhost.evil.example.com"),
        (LOCAL, "http://localhost@evil.example.com"),
        (LOCAL, "http://localhost, http://evil.example.com"),
        (PUBLIC, "http://localhost:3000"),
        (PUBLIC, "http://app.example.org"),
        (PUBLIC, "https://app.example.org:444"),
        (PUBLIC, "https://app.example.org.evil.com"),
        (PUBLIC, "null"),
    ],
)
def test_a_foreign_origin_is_a_403_and_gets_no_cors_headers(perimeter: Perimeter, origin: str) -> None:
    with pytest.raises(Refusal, match="allowed origins") as caught:
        check_origin({"origin": origin}, perimeter)
    assert caught.value.status == 403
    assert cors({"origin": origin}, perimeter) == ()
    assert preflight({"origin": origin}, perimeter) == ()


@pytest.mark.requirement("endpoint.host", "endpoint.origin")
def test_who_may_call_does_not_depend_on_forwarding_headers() -> None:
    headers = {"host": "evil.example.com", "x-forwarded-host": "localhost", "forwarded": "host=localhost"}
    with pytest.raises(Refusal):
        check_host(headers, LOCAL)


@pytest.mark.requirement("endpoint.host", "endpoint.origin")
@given(st.text())
def test_no_host_or_origin_raises_anything_but_a_refusal(value: str) -> None:
    assert LOCAL.has_host(value) in (True, False)
    assert PUBLIC.has_origin(value) in (True, False)
    assert LOCAL.has_origin(f"http://{value}") in (True, False)


# --- CORS (field report 110) ---


@pytest.mark.requirement("endpoint.cors")
def test_browser_clients_see_the_session_id_on_every_answer() -> None:
    headers = dict(cors({"origin": "http://localhost:6274"}, LOCAL))
    assert headers[b"access-control-allow-origin"] == b"http://localhost:6274"
    assert headers[b"vary"] == b"Origin"
    exposed = {name.strip() for name in headers[b"access-control-expose-headers"].split(b",")}
    assert exposed >= {b"Mcp-Session-Id", b"MCP-Protocol-Version", b"WWW-Authenticate"}
    assert cors({}, LOCAL) == ()


@pytest.mark.requirement("endpoint.cors")
def test_a_preflight_allows_every_method_and_header_of_both_eras() -> None:
    headers = dict(preflight({"origin": "http://localhost:6274"}, LOCAL))
    assert set(headers[b"access-control-allow-methods"].split(b", ")) >= {b"GET", b"POST", b"DELETE"}
    allowed = {name.lower() for name in headers[b"access-control-allow-headers"].split(b", ")}
    assert allowed >= {
        b"content-type",
        b"accept",
        b"authorization",
        b"mcp-session-id",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
        b"last-event-id",
    }


@pytest.mark.requirement("endpoint.cors")
def test_an_origin_that_would_split_a_header_is_not_repeated() -> None:
    assert cors({"origin": "http://x\r\nset-cookie: a=b"}, OPEN) == ()
