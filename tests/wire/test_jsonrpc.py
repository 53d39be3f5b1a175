"""Envelopes: what is JSON, what is a message, and ids that come back as they were written."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import jsonrpc
from broker.wire.jsonrpc import Notification, Request, Response, parse
from broker.wire.refusal import INVALID_REQUEST, PARSE_ERROR, Refusal

IDS = [
    "0", "-0", "-1", "1", "9007199254740993", "123456789012345678901234567890", "1.5", "1.50", "1e3", "1E400",
    '""', '"1"', '"01"', '"null"', '"a\\"b"', '"listen:0"', f'"{"a" * 1000}"',
]  # fmt: skip


def refusal(body: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(body)
    answer = json.loads(caught.value.body())
    assert answer["jsonrpc"] == "2.0"
    assert answer["error"]["code"] == caught.value.code
    assert caught.value.status == 400
    return caught.value


# --- Ids (field report 92) ---


@pytest.mark.requirement("message.id")
@pytest.mark.parametrize("text", IDS)
def test_an_id_comes_back_as_it_was_written(text: str) -> None:
    message = parse(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % text.encode())
    assert isinstance(message, Request)
    assert b'"id":%b,' % text.encode() in jsonrpc.result(message.id, b"{}")
    assert b'"id":%b,' % text.encode() in jsonrpc.error(message.id, -1, "no")


@pytest.mark.requirement("message.id")
@pytest.mark.parametrize("text", ['"é"', '"\\u00e9"', '"\u2028"', '"\\ud800"', '"\\u0000"', '"😀"'])
def test_an_id_in_any_script_comes_back_as_the_same_string_in_ascii(text: str) -> None:
    message = parse(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % text.encode())
    assert isinstance(message, Request)
    answer = jsonrpc.result(message.id, b"{}")
    assert answer.isascii()
    assert json.loads(answer)["id"] == json.loads(text)


@pytest.mark.requirement("message.id")
def test_an_integer_a_string_and_a_fraction_keep_their_types() -> None:
    for text, kind in ((b"1", int), (b'"1"', str), (b"1.0", float)):
        message = parse(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % text)
        assert isinstance(message, Request)
        assert isinstance(message.id, kind)


@pytest.mark.requirement("message.id")
@pytest.mark.parametrize("text", ["null", "true", "false", "{}", "[]", "[1]", '{"id":1}', f'"{"a" * 2049}"'])
def test_an_id_of_another_kind_is_refused_and_cannot_be_echoed(text: str) -> None:
    """An id of null was once answered like a notification, with 202 (field report 95)."""
    refused = refusal(b'{"jsonrpc":"2.0","id":%b,"method":"resources/subscribe"}' % text.encode())
    assert refused.code == INVALID_REQUEST
    assert json.loads(refused.body())["id"] is None


# --- What is JSON (field report 98) ---


@pytest.mark.requirement("message.parse")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n\t",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"pi',
        b'{"a":1,}',
        b"{'a':1}",
        b'{"a":NaN}',
        b"Infinity",
        b"-Infinity",
        b'{"a":01}',
        b'{"a":"\n"}',
        b'{"a":1}{"b":2}',
        b'{"a":1} x',
        b"// no\n{}",
        b"\xff\xfe{\x00}\x00",
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-16-be"),
        '{"a":1}'.encode("utf-32"),
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b"\0",
        b'\\"',
    ],
)
def test_bytes_that_are_not_json_are_a_parse_error(body: bytes) -> None:
    refused = refusal(body)
    assert refused.code == PARSE_ERROR
    assert refused.message.startswith("The body is not JSON: ")
    assert refused.id is None


@pytest.mark.requirement("message.envelope")
@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"true",
        b"1",
        b'"x"',
        b"[]",
        b"{}",
        b"[1]",
        b"[[]]",
        b"[null]",
        b'[{"jsonrpc":"2.0","method":"a"},1]',
        b'{"id":1,"method":"ping"}',
        b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"method":null}',
        b'{"jsonrpc":"2.0","id":1,"method":1}',
        b'{"jsonrpc":"2.0","id":1,"method":["ping"]}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
        b'{"jsonrpc":"2.0","method":"ping","params":1}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"result":1}',
        b'{"jsonrpc":"2.0","id":1,"error":"x"}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"uri":"a:1","uri":"a:2"}}',
    ],
)
def test_json_that_is_no_envelope_is_an_invalid_request(body: bytes) -> None:
    assert refusal(body).code == INVALID_REQUEST


@pytest.mark.requirement("message.envelope")
@pytest.mark.parametrize(
    "rest", [b'"method":"ping"', b'"jsonrpc":"2.0"', b'"jsonrpc":"2.0","method":"a","params":[]']
)
def test_a_wrong_envelope_still_echoes_an_id_that_is_known(rest: bytes) -> None:
    assert refusal(b'{"id":"x",%b}' % rest).id == "x"


@pytest.mark.requirement("message.envelope")
def test_a_request_without_params_has_none() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":0,"method":"ping"}') == Request(0, "ping", {})
    assert parse(b' {"jsonrpc":"2.0","method":"n","params":{"a":[1]}}\r\n') == Notification("n", {"a": [1]})


@pytest.mark.requirement("message.envelope")
def test_a_posted_response_is_recognised() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":3,"result":{}}') == Response(3)
    assert parse(b'{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"no"}}') == Response("a")


@pytest.mark.requirement("message.batch")
def test_a_batch_is_a_list_and_one_broken_message_refuses_all_of_it() -> None:
    good = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert parse(b"[%b,%b]" % (good, good)) == [Request(1, "ping", {})] * 2
    assert refusal(b'[%b,{"jsonrpc":"2.0","id":2}]' % good).code == INVALID_REQUEST
    assert isinstance(parse(b"[" + b",".join([good] * 100) + b"]"), list)
    assert "at most 100" in refusal(b"[" + b",".join([good] * 101) + b"]").message


# --- Bounds ---


@pytest.mark.requirement("message.bounds")
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"b":'])
@pytest.mark.parametrize("depth", [65, 1_000, 100_000])
def test_deep_nesting_is_refused_and_not_recursed(opening: bytes, depth: int) -> None:
    assert refusal(opening * depth).code == INVALID_REQUEST


@pytest.mark.requirement("message.bounds")
def test_depth_is_counted_in_brackets_and_not_in_strings() -> None:
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    params: dict[str, Any] = {"deep": deep, "text": '[{"' * 1000, "wide": [[]] * 1000}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": params}
    message = parse(json.dumps(body).encode())
    assert isinstance(message, Request)
    assert message.params == params
    body["params"] = {**params, "deep": [deep]}
    assert "64 levels" in refusal(json.dumps(body).encode()).message


@pytest.mark.requirement("message.bounds")
def test_ten_thousand_objects_are_read_and_more_are_refused() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[%b]}}'
    assert isinstance(parse(body % b",".join([b"{}"] * 9_997)), Request)
    assert "10000 arrays and objects" in refusal(body % b",".join([b"{}"] * 9_998)).message


@pytest.mark.requirement("message.bounds")
@pytest.mark.parametrize("number", ["9" * 1001, "1." + "0" * 1000, "1e" + "0" * 1000])
def test_a_number_of_too_many_digits_is_refused(number: str) -> None:
    assert refusal(b'{"jsonrpc":"2.0","id":%b,"method":"x"}' % number.encode()).code == INVALID_REQUEST


@pytest.mark.requirement("message.bounds")
@pytest.mark.parametrize(
    "body",
    [
        b'"' + b'\\"' * 500_000,
        b'["' + b"[" * 1_000_000,
        b"[" + b'"' * 1_000_001,
        b'{"a":"' + b"\\" * 1_000_001,
        b"[" * 1_000_000,
        b"[" * 65 + b'"\\"' * 300_000,
        b"[" + b"{}," * 300_000 + b"{}]",
        b"[" + b'"[",' * 250_000 + b"1]",
        b"[" + b"1," * 500_000 + b"1]",
    ],
    ids=["quotes", "open", "odd quotes", "backslashes", "brackets", "mixed", "objects", "strings", "numbers"],
)
def test_a_hostile_megabyte_is_refused_in_linear_time(body: bytes) -> None:
    """The ceiling is several times what the slowest takes; a quadratic scan of a megabyte takes minutes."""
    began = time.process_time()
    refusal(body)
    assert time.process_time() - began < 1


def judge(body: bytes) -> Refusal | None:
    """The refusal of a body, or None; any other exception is a failure."""
    try:
        parse(body)
    except Refusal as refused:
        return refused
    return None


@pytest.mark.requirement("message.parse")
@given(st.binary(max_size=200))
def test_no_bytes_make_parse_raise_anything_but_a_refusal(body: bytes) -> None:
    refused = judge(body)
    assert refused is not None, "random bytes with an envelope in them"
    assert refused.status == 400
    assert json.loads(refused.body())["error"]["code"] in (PARSE_ERROR, INVALID_REQUEST)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
members = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"])


@pytest.mark.requirement("message.envelope")
@given(st.dictionaries(members, json_values | st.just("2.0"), max_size=6))
def test_no_json_makes_parse_raise_anything_but_a_refusal(envelope: dict[str, Any]) -> None:
    refused = judge(json.dumps(envelope).encode())
    if refused is None:
        assert envelope["jsonrpc"] == "2.0"
    else:
        assert refused.code == INVALID_REQUEST


@pytest.mark.requirement("message.envelope")
@given(st.text() | st.integers(), st.text(), st.dictionaries(st.text(), json_values, max_size=3))
def test_a_well_formed_request_is_read_as_it_was_meant(id_: str | int, method: str, params: Any) -> None:
    body = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    assert parse(json.dumps(body).encode()) == Request(id_, method, params)


# --- Writing ---


@pytest.mark.requirement("sse.frame")
@given(json_values)
def test_what_is_written_is_one_line_of_ascii_and_reads_the_same(value: object) -> None:
    written = jsonrpc.dumps(value)
    assert written.isascii()
    assert len(written.decode().splitlines()) == 1
    assert json.loads(written) == value


@pytest.mark.requirement("sse.frame")
@pytest.mark.parametrize(
    "separator", ["\u2028", "\u2029", "\u0085", "\r", "\n", "\x0b", "\x0c", "\x1c", "\0"]
)
def test_every_line_separator_in_a_string_is_escaped(separator: str) -> None:
    written = jsonrpc.dumps({"text": f"a{separator}b"})
    assert len(written.splitlines()) == 1
    assert json.loads(written) == {"text": f"a{separator}b"}


@pytest.mark.requirement("resource.contents")
def test_a_result_is_spliced_in_as_it_stands() -> None:
    assert jsonrpc.result(1, b'{"a": [1 ]}') == b'{"jsonrpc":"2.0","id":1,"result":{"a": [1 ]}}'


@pytest.mark.requirement("error.sentence")
def test_an_error_has_data_only_where_there_is_some_and_a_null_id_only_where_none_is_known() -> None:
    assert jsonrpc.error(None, -32700, "x") == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}'
    )
    assert json.loads(jsonrpc.error("", 1, "x", {"uri": "a:b"}))["error"]["data"] == {"uri": "a:b"}
    assert json.loads(jsonrpc.error("", 1, "x"))["id"] == ""
