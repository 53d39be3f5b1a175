"""What each era writes on a stream: two connection.Renderers over the pre-encoded cues of wire/cue.py."""

from collections.abc import Sequence

from broker.core.hub import Topic
from broker.core.identity import SessionId
from broker.streams.connection import Position
from broker.wire import eventid, modern, sse
from broker.wire.cue import HANDSHAKE_PLAIN, Cue, handshake_head, modern_tail
from broker.wire.encoding import RequestId

Taken = Sequence[tuple[Topic[Cue], int | None]]


class ListenRenderer:
    """Frames of one subscriptions/listen."""

    __slots__ = ("_id", "_tail")

    def __init__(self, request_id: RequestId) -> None:
        self._id = request_id
        self._tail = modern_tail(request_id)

    def cue(self, topic: Topic[Cue], position: Position | None) -> bytes:
        """Return the frame of one topic."""
        del position
        return topic.wire.modern + self._tail

    def cues(self, taken: Taken, position: Position | None) -> bytes:
        """Return one frame per topic; the modern era has no event ids."""
        del position
        tail = self._tail
        return b"".join([topic.wire.modern + tail for topic, _ in taken])

    def ending(self, retry_ms: int | None) -> bytes:
        """Return the final result: the listen ended on purpose (2026-07-28, "Graceful Closure")."""
        del retry_ms
        return sse.event(modern.finished(self._id))


class GetRenderer:
    """Frames of one GET stream of a session, with low-water ids (design section 3)."""

    __slots__ = ("_tag",)

    def __init__(self, session: SessionId) -> None:
        self._tag = eventid.tag(session)

    def cue(self, topic: Topic[Cue], position: Position | None) -> bytes:
        """Return the frame of one topic; without an id where nothing can be proven."""
        if position is None:
            return HANDSHAKE_PLAIN + topic.wire.handshake
        return handshake_head(eventid.format(self._tag, position.epoch, position.n)) + topic.wire.handshake

    def cues(self, taken: Taken, position: Position | None) -> bytes:
        """Return one frame per topic; without an id where nothing can be proven."""
        if position is None:
            return b"".join([HANDSHAKE_PLAIN + topic.wire.handshake for topic, _ in taken])
        tag, epoch, n = self._tag, position.epoch, position.n
        return b"".join(
            [
                # A read may have been ahead of the log: what waits since then is above where the reader is.
                handshake_head(eventid.format(tag, epoch, n if low is None or low > n else low))
                + topic.wire.handshake
                for topic, low in taken
            ]
        )

    def ending(self, retry_ms: int | None) -> bytes:
        """Return when to come back, where we know better than the client."""
        return b"" if retry_ms is None else sse.parting(retry_ms)
