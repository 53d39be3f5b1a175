"""Event streams as bytes: what every reader in the field takes the same way."""

import json

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import sse
from broker.wire.encoding import dumps
from tests.wire.strict_sse import Frame, frames

pytestmark = pytest.mark.requirement("sse.frame")

SEPARATORS = ["\n", "\r", "\r\n", "\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\0"]


def test_an_event_is_named_message_and_has_one_data_line() -> None:
    assert sse.event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'
    assert sse.event(b'{"a":1}', "tag.e.5") == b'id: tag.e.5\nevent: message\ndata: {"a":1}\n\n'


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_line_separator_in_our_own_json_splits_no_reader(separator: str) -> None:
    value = {"text": f"a{separator}b{separator}", "uri": f"a:{separator}"}
    assert [frame.message for frame in frames(sse.event(dumps(value)))] == [value]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_line_separator_in_a_publishers_json_splits_no_reader(separator: str) -> None:
    """Contents are spliced in as they were stored, and JSON lets these stand raw in a string."""
    value = {"text": f"a{separator}b", "é": "\u2027\u202a\u0084\u0086 €"}
    raw = json.dumps(value, ensure_ascii=False).encode()
    assert separator.encode() in raw
    assert [frame.message for frame in frames(sse.event(raw))] == [value]


def test_a_byte_order_mark_in_a_publishers_text_is_escaped() -> None:
    raw = json.dumps({"text": "\ufeffa"}, ensure_ascii=False).encode()
    event = sse.event(raw)
    assert b"\xef\xbb\xbf" not in event
    assert [frame.message for frame in frames(event)] == [{"text": "\ufeffa"}]


def test_pretty_printed_json_becomes_one_line() -> None:
    value = {"a": [1, {"b": "c\nd"}]}
    raw = json.dumps(value, indent=2).replace("\n", "\r\n").encode()
    assert [frame.message for frame in frames(sse.event(raw))] == [value]


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none(), max_size=4))
def test_any_json_object_arrives_as_it_was(value: dict[str, object]) -> None:
    raw = json.dumps(value, ensure_ascii=False).encode("utf-8")
    assert frames(sse.event(raw) + sse.comment() + sse.event(dumps(value), "x.y.1")) == [
        Frame(None, "message", None, sse.one_line(raw).decode()),
        Frame("x.y.1", "message", None, dumps(value).decode()),
    ]
    assert json.loads(sse.one_line(raw)) == value


def test_json_without_separators_is_not_copied() -> None:
    raw = '{"text":"plain \u2013 and \u201cquoted\u201d"}'.encode()
    assert sse.one_line(raw) == raw
    plain = b'{"text":"plain"}'
    assert sse.one_line(plain) is plain


@pytest.mark.requirement("sse.comment")
def test_a_comment_dispatches_nothing_even_after_an_event_with_an_id() -> None:
    """A blank line after an id is another, empty event to httpx-sse, which the Python clients use."""
    assert sse.comment() == sse.COMMENT
    assert sse.COMMENT.startswith(b":")
    assert b"\n\n" not in sse.COMMENT
    stream = sse.priming("t.e.1", 300) + sse.COMMENT + sse.COMMENT + sse.event(b"{}", "t.e.2") + sse.COMMENT
    assert [frame.id for frame in frames(stream)] == ["t.e.1", "t.e.2"]


@pytest.mark.requirement("stream.opening")
def test_the_priming_event_has_an_id_a_retry_and_empty_data() -> None:
    assert frames(sse.priming("t.e.1", 300)) == [Frame("t.e.1", None, 300, "")]


@pytest.mark.requirement("stream.opening")
def test_retry_is_a_line_in_front_of_the_next_frame_and_parting_an_event_of_its_own() -> None:
    assert frames(sse.retry(300) + sse.COMMENT) == []
    assert frames(sse.retry(300) + sse.event(b"{}")) == [Frame(None, "message", 300, "{}")]
    assert frames(sse.event(b"{}") + sse.parting(2500))[-1] == Frame(None, None, 2500, None)


def test_the_official_python_clients_reader_sees_the_same_events() -> None:
    stream = (
        sse.COMMENT
        + sse.priming("t.e.1", 300)
        + sse.COMMENT
        + sse.event(dumps({"text": "".join(SEPARATORS)}), "t.e.2")
        + sse.COMMENT
        + sse.retry(50)
        + sse.event('{"text":"\u2028"}'.encode())
        + sse.parting(2500)
    )
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=stream,
        request=httpx2.Request("GET", "http://localhost/mcp"),
    )
    seen = [(event.event, event.data, event.retry) for event in httpx2.EventSource(response)]
    assert seen == [(frame.event or "message", frame.data or "", frame.retry) for frame in frames(stream)]
    assert [event.id for event in httpx2.EventSource(response)] == ["t.e.1", "t.e.2", "t.e.2", "t.e.2"]


@pytest.mark.parametrize("bad", ["", "a\nb", "a\rb", "a\0b", "a\u2028b", "é", "\x7f"])
def test_an_id_that_would_break_the_frame_is_a_programming_error(bad: str) -> None:
    for write in (lambda: sse.event(b"{}", bad), lambda: sse.priming(bad, 1), lambda: sse.head(bad)):
        with pytest.raises(ValueError, match="event id"):
            write()


@pytest.mark.parametrize(
    "stream",
    [
        b"data: {}\r\n\r\n",
        b"data: {}\n",
        b"data: {}",
        b"\n",
        b"data: {}\n:\n\n",
        b"data: a\ndata: b\n\n",
        b"data\n\n",
        b"datum: {}\n\n",
        "data: a\u2028b\n\n".encode(),
    ],
)
def test_the_strict_reader_is_strict(stream: bytes) -> None:
    with pytest.raises(AssertionError):
        frames(stream)
