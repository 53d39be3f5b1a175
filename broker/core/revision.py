"""When a resource last changed: (epoch, n, mark), design section 3.

n is the position in the log, the mark is 32 random bits of the call that made it. After a rollback of
Redis n repeats with other contents, so revisions are compared as a whole and never by n alone; the only
ordering used anywhere is n within one epoch (low-water ids).
"""

from typing import NamedTuple


class Revision(NamedTuple):
    """The place of a change in a log. `ABSENT` where there never was one."""

    n: int
    mark: str

    def __str__(self) -> str:
        return f"{self.n}:{self.mark}"

    @classmethod
    def parse(cls, text: str) -> "Revision":
        """Read what `str` wrote.

        Raises:
            ValueError: for anything else.
        """
        n, colon, mark = text.partition(":")
        if not colon or not n.isascii() or not n.isdigit():
            raise ValueError(f"not a revision: {text!r}")
        return cls(int(n), mark)


ABSENT = Revision(0, "")
"""The revision of what was never published (or whose tombstone is gone)."""


class Stamp(NamedTuple):
    """A revision with the epoch of its log: what leaves the broker (ETag, `_meta`, publish answers)."""

    epoch: str
    n: int
    mark: str

    def __str__(self) -> str:
        return f"{self.epoch}.{self.n}.{self.mark}"

    @property
    def revision(self) -> Revision:
        """The part that is compared."""
        return Revision(self.n, self.mark)

    @classmethod
    def parse(cls, text: str) -> "Stamp":
        """Read what `str` wrote.

        Raises:
            ValueError: for anything else.
        """
        epoch, _, rest = text.partition(".")
        n, dot, mark = rest.partition(".")
        # The mark of `ABSENT` is empty: what was never published has a stamp, too.
        if not dot or not epoch or not n.isascii() or not n.isdigit():
            raise ValueError(f"not a revision: {text!r}")
        return cls(epoch, int(n), mark)
