"""What workers and brokers say to each other survives the way, also between neighbouring releases."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.declaration import (
    CallRequest,
    CallResult,
    Contents,
    Declaration,
    Failure,
    Instances,
    Values,
    decode_result,
    encode_result,
)
from broker.core.publication import encode_json

metas = st.dictionaries(
    st.sampled_from(["uri", "name", "title"]), st.text(st.characters(exclude_categories=["Cs"]))
)
words = st.text(max_size=9)
sets = st.frozensets(words, max_size=3)

declarations = st.builds(
    Declaration,
    uri=words,
    is_template=st.booleans(),
    meta=metas.map(encode_json),
    ttl_ms=st.none() | st.integers(0, 10**9),
    cache_scope=st.sampled_from([None, "public", "private"]),
    scopes=sets,
    is_personal=st.booleans(),
    has_list=st.booleans(),
    completes=st.lists(words, max_size=3).map(tuple),
    wants_demand=st.booleans(),
)
requests = st.builds(
    CallRequest,
    kind=st.sampled_from(["read", "list", "complete"]),
    declared=words,
    uri=words,
    tenant=words,
    subject=words,
    scopes=st.none() | sets,
    deadline=st.floats(0, 1e12),
    argument=words,
    value=words,
    arguments=st.dictionaries(words, words, max_size=3),
    trace=st.none() | words.filter(bool),
    id=words,
)
results = st.one_of(
    st.builds(Contents, metas.map(lambda meta: encode_json([meta]))),
    st.builds(Instances, st.lists(metas.map(encode_json), max_size=4).map(tuple)),
    st.builds(Values, st.lists(words, max_size=4).map(tuple), st.none() | st.integers(0), st.booleans()),
    st.builds(Failure, st.sampled_from(["not_found", "invalid", "internal", "forbidden"]), words, words),
)


@given(declarations)
def test_a_declaration_arrives_as_it_was_sent(declared: Declaration) -> None:
    assert Declaration.decode(declared.encode()) == declared


@given(requests)
def test_a_call_arrives_as_it_was_sent(request: CallRequest) -> None:
    assert CallRequest.decode(request.encode()) == request


@given(results)
def test_a_result_arrives_as_it_was_sent(result: CallResult) -> None:
    assert decode_result(encode_result(result)) == result


def test_contents_travel_raw() -> None:
    body = b'[{"uri":"x:y","text":"\\u2028\\\\"}]'
    assert encode_result(Contents(body)) == b"C" + body


def _with(data: bytes, **more: Any) -> bytes:
    said = cast("dict[str, Any]", json.loads(data))
    return json.dumps(said | more).encode()


def test_what_a_newer_release_adds_is_ignored() -> None:
    declared = Declaration("x:y", is_template=False, meta=b"{}", ttl_ms=0)
    request = CallRequest("read", "x:y", "x:y", "t", "s", None, 1.0)
    assert Declaration.decode(_with(declared.encode(), priority=7)) == declared
    assert CallRequest.decode(_with(request.encode(), priority=7)) == request
    failure = Failure("internal", "no")
    assert decode_result(b"F" + _with(encode_result(failure)[1:], retry_ms=7)) == failure


def test_what_an_older_release_leaves_out_has_its_default() -> None:
    said = b'{"uri":"x:y","is_template":false,"meta":"{}"}'
    assert Declaration.decode(said) == Declaration("x:y", is_template=False, meta=b"{}")
    assert decode_result(b'V{"values":["a"]}') == Values(("a",))
    assert decode_result(b'F{"reason":"internal","message":"no"}') == Failure("internal", "no")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"7", b"{", b"\xff", b'{"uri":1,"is_template":0,"meta":1}']
)
def test_anything_else_is_a_value_error(data: bytes) -> None:
    for decode in (Declaration.decode, CallRequest.decode, decode_result):
        with pytest.raises(ValueError, match=r".+"):
            decode(data)


@pytest.mark.parametrize("data", [b"X", b"V{}", b"V[]", b"F{}", b"V{", b'V{"values":7}'])
def test_a_result_that_is_none_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_result(data)
