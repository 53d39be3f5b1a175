"""Whatever is sent, there is an answer: no 500, no unhandled exception, no hang, and no stream cut short.

The bytes of bodies, JSON that almost is a message, and headers of every kind, asked of the whole app in
process; and raw bytes on a connection to a real replica. What was hard once stays in `corpus/`, a file a
request: its method and headers as lines, an empty line, its body ($SESSION stands for a session's id). Each
run asks the same; FUZZ_EXAMPLES=5000 asks that many, and others each time.
"""

import asyncio
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.http.asking import META_CAPABILITIES, META_CLIENT, META_VERSION, connected
from tests.http.in_process import Answer, InProcess, running
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.support.sse import Reader

pytestmark = [
    pytest.mark.requirement("endpoint.no-500"),
    # The broker, in its thread, draws jitter from the same generator; hypothesis takes that for ours.
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
]

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*"))
STATUSES = {200, 202, 204, 400, 403, 404, 405, 406, 413, 415, 421, 429}
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
FUZZ = settings(
    max_examples=EXAMPLES or 120,
    deadline=None,
    derandomize=not EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def app(redis_server: RedisServer) -> Iterator[InProcess]:
    prefix = f"fuzz{secrets.token_hex(3)}"
    with running(redis_server.url, prefix) as app:
        yield app
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture(scope="module")
def session(app: InProcess) -> bytes:
    """Give a session of each test's own app."""
    body = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}'
    answer = app.ask("POST", [(b"host", b"localhost"), (b"content-type", b"application/json")], [body])
    return answer.headers[b"mcp-session-id"]


def check(answer: Answer) -> None:
    """Check what holds for every answer."""
    assert answer.status in STATUSES, answer
    kind = answer.headers.get(b"content-type")
    if kind == b"application/json":
        body: Any = json.loads(answer.body)
        for one in cast("list[Any]", body if isinstance(body, list) else [body]):
            assert one["jsonrpc"] == "2.0"
            assert ("result" in one) != ("error" in one)
            assert "error" not in one or one["error"]["message"]
    elif kind == b"text/event-stream":
        Reader().feed(answer.body)
    else:
        assert answer.body == b""


def header_lines(text: bytes) -> list[tuple[bytes, bytes]]:
    pairs = [line.partition(b":") for line in text.splitlines()]
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_was_found_once_is_answered_for_ever(path: Path, app: InProcess, session: bytes) -> None:
    head, _, body = path.read_bytes().partition(b"\n\n")
    method, _, lines = head.partition(b"\n")
    check(app.ask(method.decode(), header_lines(lines.replace(b"$SESSION", session)), [body]))


# --- Strategies -------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
METHODS = st.sampled_from([
    "initialize", "ping", "server/discover", "resources/list", "resources/read", "resources/templates/list",
    "resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "completion/complete",
    "logging/setLevel", "tools/list", "prompts/list", "notifications/initialized", "",
])  # fmt: skip
MAYBE_URI = st.sampled_from(["docs:x", "docs://caf\u00e9/%2e%2e", "test://template/1/data", "x", ""]) | JSON
META = st.fixed_dictionaries(
    {},
    optional={
        META_VERSION: st.sampled_from(["2026-07-28", "v9"]) | JSON,
        META_CAPABILITIES: st.just(cast("dict[str, Any]", {})) | JSON,
        META_CLIENT: st.just({"name": "fuzz", "version": "1"}) | JSON,
        "org.resource-broker/known": st.dictionaries(st.just("docs:x"), st.text() | JSON) | JSON,
        "org.resource-broker/token": st.text() | JSON,
        "traceparent": st.text() | JSON,
    },
)
FILTER = st.fixed_dictionaries(
    {},
    optional={
        "resourceSubscriptions": st.lists(MAYBE_URI, max_size=3) | JSON,
        "resourcesListChanged": st.booleans() | JSON,
    },
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "uri": MAYBE_URI,
        "cursor": st.text() | JSON,
        "protocolVersion": st.sampled_from(["2025-11-25", "2026-07-28"]) | JSON,
        "capabilities": JSON,
        "clientInfo": JSON,
        "level": st.sampled_from(["info", "loud"]) | JSON,
        "notifications": FILTER | JSON,
        "ref": st.fixed_dictionaries(
            {"type": st.sampled_from(["ref/resource", "ref/prompt", ""])},
            optional={"uri": MAYBE_URI, "name": JSON},
        )
        | JSON,
        "argument": st.fixed_dictionaries({"name": st.text() | JSON, "value": st.text() | JSON}) | JSON,
        "context": st.fixed_dictionaries({"arguments": st.dictionaries(st.text(), JSON, max_size=2)}) | JSON,
        "_meta": META | JSON,
    },
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": st.integers() | st.text() | st.floats(allow_nan=False) | JSON,
        "method": METHODS | JSON,
        "params": PARAMS | JSON,
        "result": JSON,
        "error": JSON,
    },
)


def _modern(method: str, params: dict[str, Any], identity: object) -> dict[str, Any]:
    meta: dict[str, Any] = {META_VERSION: "2026-07-28", META_CAPABILITIES: {}}
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": {**params, "_meta": meta}}


MODERN_MESSAGE = st.builds(_modern, METHODS, PARAMS, st.integers() | st.text())
VALUE = st.binary(max_size=40)
SOUP = st.lists(
    st.tuples(
        st.sampled_from([
            b"accept", b"content-type", b"content-length", b"origin", b"mcp-session-id", b"mcp-method",
            b"mcp-protocol-version", b"mcp-name", b"last-event-id", b"broker-tenant", b"host", b"expect",
            b"authorization", b"accept-encoding", b"traceparent", b"connection", b"transfer-encoding",
        ])
        | st.binary(min_size=1, max_size=10),
        VALUE
        | st.sampled_from([
            b"*/*", b"application/json", b"text/event-stream", b"2026-07-28", b"2025-11-25", b"localhost",
            b"http://localhost", b"=?base64?ZG9jczp4?=", b"null", b"9" * 30, b"-1", b"",
        ]),
    ),
    max_size=8,
)  # fmt: skip

BASE = [(b"host", b"localhost"), (b"content-type", b"application/json")]


def mirrored(message: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Return the headers that mirror a message."""
    uri = message["params"].get("uri")
    lines = [(b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", text_of(message["method"]))]
    return [*lines, (b"mcp-name", text_of(uri))] if uri else lines


def text_of(value: object) -> bytes:
    return str(value).encode("utf-8", "replace")


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


# --- Properties -------------------------------------------------------------------------------------------


@FUZZ
@given(body=st.binary(max_size=300), pieces=st.integers(1, 4))
def test_any_bytes_are_answered(body: bytes, pieces: int, app: InProcess, session: bytes) -> None:
    cut = [body[at : at + 1 + len(body) // pieces] for at in range(0, len(body), 1 + len(body) // pieces)]
    for more in ([], [(b"mcp-session-id", session)], [(b"mcp-protocol-version", b"2026-07-28")]):
        check(app.ask("POST", BASE + more, cut or [b""]))


@FUZZ
@given(message=MESSAGE | st.lists(MESSAGE, max_size=3) | JSON)
def test_any_json_is_answered_in_and_outside_a_session(message: Any, app: InProcess, session: bytes) -> None:
    for more in ([], [(b"mcp-session-id", session)]):
        check(app.ask("POST", BASE + more, [encode(message)]))


@FUZZ
@given(message=MODERN_MESSAGE)
def test_any_request_that_looks_modern_is_answered(message: dict[str, Any], app: InProcess) -> None:
    check(app.ask("POST", [*BASE, *mirrored(message)], [encode(message)]))


@FUZZ
@given(
    method=st.sampled_from(["GET", "POST", "DELETE", "OPTIONS", "PUT", "HEAD"]),
    soup=SOUP,
    message=MODERN_MESSAGE,
)
def test_any_headers_are_answered(
    method: str,
    soup: list[tuple[bytes, bytes]],
    message: dict[str, Any],
    app: InProcess,
    session: bytes,
) -> None:
    body = [encode(message)] if method == "POST" else [b""]
    own = [(b"mcp-session-id", session)] if method != "DELETE" else []
    for more in ([], own):
        check(app.ask(method, [*BASE, *more, *soup], body))


def _post(head: bytes, rest: bytes) -> bytes:
    return b"POST /mcp HTTP/1.1\r\n" + head + b"\r\n\r\n" + rest


@settings(FUZZ, max_examples=60)
@given(data=st.binary(max_size=200) | st.builds(_post, st.binary(max_size=60), st.binary(max_size=60)))
def test_any_bytes_on_a_connection_are_answered_or_end_it(data: bytes, fleet: Fleet) -> None:
    async def send() -> None:
        async with connected(fleet[0].address) as line:
            await line.write(data)
            line.finish()
            await line.closed(5)

    asyncio.run(send())
