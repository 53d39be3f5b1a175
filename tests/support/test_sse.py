"""The checker refuses what it must: a test that leans on it can fail."""

import pytest

from tests.support.sse import BadStream, Reader

CUE = b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"docs://1"}}'


def test_frames_are_read_in_any_pieces() -> None:
    priming = b":\nid: a.1\nretry: 1000\ndata:\n\n"
    stream = priming + b"id: a.2\nevent: message\ndata: " + CUE + b"\n\n:\n: ping\nretry: 5\n\nretry: 6\n:\n"
    for size in (1, 2, 7, len(stream)):
        reader = Reader()
        pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
        frames = [frame for piece in pieces for frame in reader.feed(piece)]
        reader.end()
        assert [frame.comment for frame in frames] == ["", None, None, "", "ping", None, None, ""]
        assert [frame.id for frame in frames] == [None, "a.1", "a.2", *[None] * 5]
        assert [frame.retry for frame in frames] == [None, 1000, None, None, None, 5, 6, None]
        assert [frame.method for frame in frames if frame.message] == ["notifications/resources/updated"]
        assert frames[2].params == {"uri": "docs://1"}


@pytest.mark.parametrize(
    "frame",
    [
        b"event: message\r\ndata: " + CUE,
        b"event: message\ndata: " + CUE + b"\r",
        b"\xef\xbb\xbfdata: ",
        b"event: message\ndata: \xff",
        b"event: message\ndata: {}",
        b"event: message\ndata: [1]",
        b"event: message\ndata: {",
        b"event: message\ndata: " + CUE + b"\ndata: ",
        b"event: message\nevent: message\ndata: " + CUE,
        b"event: ping\ndata: " + CUE,
        b"data: " + CUE,
        b"event: message",
        b"event:message\ndata: " + CUE,
        b"id: a b\nevent: message\ndata: " + CUE,
        b"id: \nevent: message\ndata: " + CUE,
        b"retry: soon",
        b"\nevent: message\ndata: " + CUE,
        b": ping\n\nevent: message\ndata: " + CUE,
        b"event: message\n: ping\ndata: " + CUE,
        b"unknown: x",
        b"event: message\ndata: " + CUE.replace(b"docs", "\u2028".encode()),
    ],
)
def test_a_frame_that_the_broker_must_not_write_is_refused(frame: bytes) -> None:
    with pytest.raises(BadStream):
        Reader().feed(frame + b"\n\n")


def test_a_stream_that_ends_within_a_frame_is_refused() -> None:
    reader = Reader()
    reader.feed(b"event: message\nda")
    with pytest.raises(BadStream):
        reader.end()
