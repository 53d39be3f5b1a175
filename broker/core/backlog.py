"""What one connection has still to be told: an ordered set, not a queue.

Pure. A cue says "this changed", so a key waits at most once however often it changes, and memory is
bounded by what the connection subscribed to (promise 6). Beside each waiting topic stands the n of the
first change that it has not been told: that gives the low-water id (design section 3), below which
everything has been written on this stream.
"""

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from broker.core.hub import Topic

W = TypeVar("W")


class Backlog(Generic[W]):
    """The waiting topics of one connection, oldest first change first."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: tuple[Topic[W], int] | dict[Topic[W], int] | None = None
        """What waits, and since when: nothing, one topic, or several. For the hub and connections only.

        One is by far the commonest, and a tuple that the hub makes once for all watchers of a key: where
        each had a dict of its own, marking and taking cost 1.1 µs a cue, and now 0.27.
        """

    def __len__(self) -> int:
        waiting = self.waiting
        return 0 if waiting is None else 1 if isinstance(waiting, tuple) else len(waiting)

    def __contains__(self, topic: "Topic[W]") -> bool:
        waiting = self.waiting
        return waiting is not None and (
            waiting[0] is topic if isinstance(waiting, tuple) else topic in waiting
        )

    def __repr__(self) -> str:
        return f"<Backlog {len(self)} waiting>"

    def add(self, topic: "Topic[W]", n: int) -> bool:
        """Let `topic` wait since change `n`; True if it did not wait already."""
        waiting = self.waiting
        if waiting is None:
            self.waiting = (topic, n)
            return True
        if isinstance(waiting, tuple):
            waiting = dict((waiting,))
        first = waiting.get(topic)
        # A catch-up or a rolled-back log: the low-water must stay below the older one as well.
        if first is None or n < first:
            waiting[topic] = n
            self.waiting = waiting
        return first is None

    def discard(self, topic: "Topic[W]") -> None:
        """Forget `topic`: nobody wants to be told any more."""
        waiting = self.waiting
        if isinstance(waiting, tuple):
            if waiting[0] is topic:
                self.waiting = None
        elif waiting is not None and waiting.pop(topic, None) is not None and not waiting:
            self.waiting = None

    def take(self) -> "list[tuple[Topic[W], int | None]]":
        """Remove and return the topics that may be told now, oldest first, each with its low-water n.

        Once that cue is written, everything at or below its low-water n has been written on this stream: n
        is just below the first change of the oldest topic that then still waits, and None if none does (the
        reader's own position is the mark then).
        """
        waiting = self.waiting
        if waiting is None:
            return []
        if not isinstance(waiting, tuple):
            return self._take(waiting)
        if waiting[0].is_held:
            return []
        self.waiting = None
        return [(waiting[0], None)]

    def _take(self, waiting: "dict[Topic[W], int]") -> "list[tuple[Topic[W], int | None]]":
        ready = [item for item in waiting.items() if not item[0].is_held]
        rest = {topic: n for topic, n in waiting.items() if topic.is_held}
        self.waiting = rest or None
        oldest = min(rest.values()) if rest else None
        taken: list[tuple[Topic[W], int | None]] = []
        # Backwards, so that the minimum of what still waits after each one costs one step. Entries come in
        # log order, but a catch-up may add older ones late, so the last need not be the newest.
        for topic, n in reversed(ready):
            taken.append((topic, None if oldest is None else oldest - 1))
            oldest = n if oldest is None else min(oldest, n)
        taken.reverse()
        return taken
