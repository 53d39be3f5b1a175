"""One open response stream: what it watches, what it has still to be told, and how that is written.

Knows neither HTTP nor a dialect: bytes come from a `Renderer` (wire/) and go to a `Writer` (http/). Rules:

1. While nothing waits, a connection owns no task, timer or queue.
2. Marking never awaits: a marked connection is written by the dispatcher, once, with everything that waits.
3. While the writer is blocked, cues coalesce in the backlog; the writer reports when it is free again.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from broker.core.backlog import Backlog
from broker.core.hub import Topic
from broker.core.identity import Principal

W = TypeVar("W")


class CloseReason(enum.StrEnum):
    """Why a stream ended; the value is a metric label."""

    CLIENT_LEFT = "client_left"
    SESSION_ENDED = "session_ended"
    REPLACED = "replaced"
    """More older GET streams of one session than are kept."""
    DRAINING = "draining"
    SLOW_CONSUMER = "slow_consumer"
    EXPIRED = "expired"
    """Its credential was about to end."""
    REVOKED = "revoked"
    """Its credential, or its tenant's access, was withdrawn."""
    ROTATED = "rotated"
    """It reached its greatest age."""
    CUT = "cut"
    """An operator ended it."""


class Position(Protocol):
    """Where the reader of a connection's log stands: what a low-water id is made of."""

    @property
    def epoch(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def is_settled(self) -> bool: ...


class Renderer(Protocol[W]):
    """A dialect's bytes for one connection."""

    def cue(self, topic: Topic[W], position: Position | None) -> bytes:
        """Return the frame that tells of `topic`, of which nothing older waits: `cues` of one."""
        ...

    def cues(self, taken: Sequence[tuple[Topic[W], int | None]], position: Position | None) -> bytes:
        """Return the frames that tell of `taken`; without ids where `position` is None."""
        ...

    def ending(self, retry_ms: int | None) -> bytes:
        """Return what is written last when we end the stream (jittered retry, final result)."""
        ...


class Writer(Protocol):
    """The way to the socket. No method awaits."""

    is_blocked: bool
    blocked_since: float
    """Loop time at which it became blocked; meaningless while it is not."""
    on_ready: Callable[[], None] | None

    def write(self, data: bytes) -> None:
        """Write a part of the body. Only while not blocked."""
        ...

    def finish(self, data: bytes) -> None:
        """Write the last part and end the body cleanly, at once or when no longer blocked."""
        ...

    def abort(self) -> None:
        """Cut the connection without an end."""
        ...


class Dispatch(Protocol):
    """Where marked connections line up to be written."""

    def add(self, connection: "Connection[W]") -> None: ...


KEEP_ALIVE = b":\n"
"""An SSE comment; see wire/sse.py, rule 2, for why no blank line follows."""


class Connection(Generic[W]):
    """One open stream (a watcher, for the hub)."""

    __slots__ = (
        "__weakref__",
        "_dispatch",
        "_is_dirty",
        "backlog",
        "ending",
        "is_open",
        "is_settled",
        "position",
        "principal",
        "renderer",
        "topics",
        "writer",
    )

    def __init__(
        self, principal: Principal, renderer: Renderer[W], position: Position, dispatch: Dispatch
    ) -> None:
        self.principal = principal
        self.renderer = renderer
        self.position = position
        self.backlog: Backlog[W] = Backlog()
        self.topics: dict[str, Topic[W]] = {}
        """What it watches, by URI (or list key)."""
        self.writer: Writer | None = None
        self.is_open = False
        """Whether cues may be written: not before the acknowledgement."""
        self.is_settled = False
        """Whether every comparison for this connection is done, so that ids prove something."""
        self.ending: CloseReason | None = None
        self._dispatch = dispatch
        self._is_dirty = False

    def __repr__(self) -> str:
        state = "ending" if self.ending else "open" if self.is_open else "opening"
        return f"<Connection {state} {len(self.topics)} topics, {len(self.backlog)} waiting>"

    def start(self, writer: Writer) -> None:
        """Let cues flow to `writer`: the acknowledgement (or the first comment) is out."""
        self.writer = writer
        if self.ending is not None:
            # Ended while it was being opened.
            writer.finish(self.renderer.ending(None))
            return
        writer.on_ready = self._ready
        self.is_open = True
        self._ready()

    def mark(self) -> None:
        """Line up to be written, once."""
        if not self._is_dirty:
            self._is_dirty = True
            self._dispatch.add(self)

    def flush(self) -> int:
        """Write everything that may be told now in one write; returns how many cues."""
        self._is_dirty = False
        writer = self.writer
        if writer is None or not self.is_open or writer.is_blocked or self.ending is not None:
            return 0
        backlog = self.backlog
        waiting = backlog.waiting
        if waiting is None:
            return 0
        position = self.position if self.is_settled and self.position.is_settled else None
        if isinstance(waiting, tuple) and not waiting[0].is_held:
            # Backlog.take and cues, for the commonest case: without their lists a cue costs a third less.
            backlog.waiting = None
            writer.write(self.renderer.cue(waiting[0], position))
            return 1
        taken = backlog.take()
        if taken:
            writer.write(self.renderer.cues(taken, position))
        return len(taken)

    def keep_alive(self, now: float, write_deadline: float) -> None:
        """Write a comment, so that no proxy takes the stream for dead; cut one that no longer drains.

        `now` in loop time and `write_deadline` in seconds.
        """
        writer = self.writer
        if writer is None:
            return
        if not writer.is_blocked:
            if self.ending is None:
                writer.write(KEEP_ALIVE)
        elif now - writer.blocked_since > write_deadline:
            self.ending = self.ending or CloseReason.SLOW_CONSUMER
            writer.abort()

    def end(self, reason: CloseReason, retry_ms: int | None = None) -> None:
        """End the stream cleanly: what waits is told first, then the dialect's ending. Twice is once."""
        if self.ending is not None:
            return
        writer = self.writer
        if writer is not None:
            last = self.renderer.ending(retry_ms)
            taken = self.backlog.take() if self.is_open else []
            if taken:
                last = self.renderer.cues(taken, None) + last
            writer.finish(last)
        self.ending = reason

    def _ready(self) -> None:
        if self.backlog:
            self.mark()
