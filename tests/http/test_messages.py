"""JSON-RPC at its edges, over HTTP and in both eras: ids, envelopes, batches, duplicates in flight.

Ids are compared as the bytes that were written: a number that went through a float would still be equal.
"""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.http.asking import Asking, error_of, initialize, modern_headers, modern_meta, request
from tests.support.mcp import MODERN

IDS = [
    "0", "-0", "1", "-1", "9007199254740991", "9007199254740993", "1.5", "1.50", "1e3", "-0.0",
    '""', '"0"', '"null"', '"a b"', '"\\u2028"', '"\\u00e9"', '"' + "x" * 2048 + '"',
]  # fmt: skip
BAD_IDS = ["null", "true", "[]", "{}", '"' + "x" * 2049 + '"']

META = json.dumps(modern_meta())
DISCOVER = f'"method":"server/discover","params":{{"_meta":{META}}}'
NOT_JSON = [
    b"", b" ", b"{", b"nope", b"{'a':1}", b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"jsonrpc":"2.0"}x', b"NaN",
    '{"jsonrpc":"2.0"}'.encode("utf-16"), b"[1,2", b"\x00", b'{"a":Infinity}',
]  # fmt: skip
NO_ENVELOPE = [
    b"1", b'"x"', b"null", b"true", b"{}", b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"method":5}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}',
    b'{"jsonrpc":"2.0","result":{}}', b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
    b"[" * 65 + b"]" * 65,
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 70 + b"]" * 70 + b"}}",
]  # fmt: skip


def id_in(body: bytes) -> str:
    """Return the id of an answer as its bytes."""
    found = re.match(rb'\{"jsonrpc":"2\.0","id":(.*?),"(?:result|error)":', body)
    assert found is not None, body
    return found[1].decode()


@pytest.mark.requirement("message.id")
@pytest.mark.parametrize("written", IDS)
async def test_an_id_comes_back_as_it_was_written_in_both_eras(written: str, ask: Asking) -> None:
    expected = written if not written.startswith('"') else json.dumps(json.loads(written))
    body = f'{{"jsonrpc":"2.0","id":{written},{DISCOVER}}}'.encode()
    modern = await ask.post(body, modern_headers("server/discover"))
    assert (modern.status_code, id_in(modern.content)) == (200, expected)
    session = await ask.session()
    for method in ("ping", "no/such"):
        handshake = await ask.post(
            f'{{"jsonrpc":"2.0","id":{written},"method":"{method}"}}'.encode(), session
        )
        assert (handshake.status_code, id_in(handshake.content)) == (200, expected)


@pytest.mark.requirement("message.id")
@pytest.mark.parametrize("written", BAD_IDS)
async def test_an_id_that_is_none_is_400_and_is_not_echoed(written: str, ask: Asking) -> None:
    modern = await ask.post(
        f'{{"jsonrpc":"2.0","id":{written},{DISCOVER}}}'.encode(), modern_headers("server/discover")
    )
    handshake = await ask.post(
        f'{{"jsonrpc":"2.0","id":{written},"method":"ping"}}'.encode(), await ask.session()
    )
    for answer in (modern, handshake):
        assert answer.status_code == 400
        error = error_of(answer)
        assert (error["code"], error["id"]) == (-32600, None)


@pytest.mark.requirement("message.parse")
@pytest.mark.parametrize("body", NOT_JSON)
async def test_what_is_not_json_is_a_parse_error_whoever_sends_it(body: bytes, ask: Asking) -> None:
    for headers in ({}, await ask.session(), modern_headers("server/discover")):
        answer = await ask.post(body, headers)
        assert (answer.status_code, error_of(answer)["code"]) == (400, -32700), (body, headers)


@pytest.mark.requirement("message.envelope")
@pytest.mark.parametrize("body", NO_ENVELOPE)
async def test_json_that_is_no_message_is_an_invalid_request_whoever_sends_it(
    body: bytes, ask: Asking
) -> None:
    session = await ask.session()
    for headers in ({}, session, modern_headers("server/discover")):
        answer = await ask.post(body, headers)
        assert (answer.status_code, error_of(answer)["code"]) == (400, -32600), (body, headers)
    assert (await ask.post(request("ping"), session)).status_code == 200


@pytest.mark.requirement("message.concurrent")
async def test_the_same_id_twice_in_flight_is_answered_twice(ask: Asking) -> None:
    session = await ask.session()
    answers = await asyncio.gather(
        *[ask.post(request("resources/list", 7), session) for _ in range(4)],
        *[ask.modern("resources/list", 7) for _ in range(4)],
    )
    assert [(answer.status_code, answer.json()["id"]) for answer in answers] == [(200, 7)] * 8


@pytest.mark.requirement("message.concurrent")
async def test_the_same_id_of_many_clients_reaches_each_its_own_answer(ask: Asking) -> None:
    """Each session asks for a resource of its own name under the same id."""
    sessions = await asyncio.gather(*[ask.session() for _ in range(8)])
    answers = await asyncio.gather(
        *[
            ask.post(request("resources/read", 0, uri=f"docs:{number}"), session)
            for number, session in enumerate(sessions)
        ]
    )
    named = [error_of(answer)["data"]["uri"] for answer in answers]
    assert named == [f"docs:{number}" for number in range(8)]


# --- Messages that want no answer -------------------------------------------------------------------------


@pytest.mark.requirement("message.note")
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}},
        {"jsonrpc": "2.0", "method": "notifications/made/up", "params": {}},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
        {"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "no"}},
    ],
)
async def test_a_notification_or_response_in_a_session_is_exactly_202(
    message: dict[str, object], ask: Asking
) -> None:
    """TypeScript clients open their stream only after exactly 202."""
    answer = await ask.post(message, await ask.session())
    assert (answer.status_code, answer.content) == (202, b"")
    assert "content-type" not in answer.headers


# --- Batches ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("message.batch")
async def test_a_batch_of_a_2025_03_26_session_is_answered_as_one_array(ask: Asking) -> None:
    session = await ask.session("2025-03-26")
    batch: list[dict[str, Any]] = [
        request("ping", 1),
        {"jsonrpc": "2.0", "method": "notifications/made/up"},
        request("no/such", "two"),
        request("resources/read", 3.5, uri="docs:missing"),
        {"jsonrpc": "2.0", "id": 9, "result": {}},
    ]
    answer = await ask.post(batch, session)
    assert answer.status_code == 200
    first, second, third = answer.json()
    assert first == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (second["id"], second["error"]["code"]) == ("two", -32601)
    assert (third["id"], third["error"]["code"]) == (3.5, -32002)


@pytest.mark.requirement("message.batch")
async def test_a_batch_that_asks_nothing_is_202(ask: Asking) -> None:
    notes = [{"jsonrpc": "2.0", "method": "notifications/made/up"}] * 2
    answer = await ask.post(notes, await ask.session("2025-03-26"))
    assert (answer.status_code, answer.content) == (202, b"")


@pytest.mark.requirement("message.batch")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_batch_of_a_later_session_is_400_and_nothing_of_it_happens(version: str, ask: Asking) -> None:
    session = await ask.session(version)
    answer = await ask.post([request("ping", 1)], session)
    assert answer.status_code == 400
    assert "2025-03-26" in error_of(answer)["message"]
    assert (await ask.post(request("ping"), session)).status_code == 200


@pytest.mark.requirement("message.batch")
@pytest.mark.parametrize(
    "batch",
    [[], [1], [request("ping"), {}], [initialize()], [request("ping")] * 101, [[request("ping")]]],
    ids=["empty", "number", "one bad", "initialize", "too many", "nested"],
)
async def test_a_malformed_batch_is_400_as_a_whole(batch: list[object], ask: Asking) -> None:
    answer = await ask.post(batch, await ask.session("2025-03-26"))
    assert (answer.status_code, error_of(answer)["code"]) == (400, -32600)


@pytest.mark.requirement("message.batch")
async def test_a_batch_without_a_session_is_400(ask: Asking) -> None:
    for headers in ({}, {"mcp-protocol-version": "2025-03-26"}, {"mcp-protocol-version": MODERN}):
        assert (await ask.post([request("ping")], headers)).status_code == 400
