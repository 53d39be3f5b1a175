"""What is measured, as the load generator sees it: where to knock, where to publish, whose CPU to count.

A `System` starts itself afresh for one run and is gone after it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from tests.bench.plan import Audience, Record

WARM_STREAMS = 20
"""Streams that are opened and closed before anything is measured: imports, caches, the allocator."""

Books = Mapping[str, float]
"""What a server counted itself: read before and after a run."""


async def _as_it_is(_: Sequence[int]) -> None:
    """Prepare nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running system."""

    doors: list[str]
    """HOST:PORT of each replica; stream i goes to the i-th, round and round."""
    publisher: str
    """HOST:PORT of where publishes go."""
    servers: list[int]
    """The processes whose CPU and memory count."""
    stores: list[int]
    """Redis', counted apart."""
    opens: Callable[[int, int], Record]
    """The request that opens stream i and watches from URI j on; j is -1 for where its audience puts it."""
    publishes: Callable[[int], Record]
    """A publish of a topic, another one each time."""
    ready: Literal["acknowledged", "head", "body"] = "acknowledged"
    coalesces: bool = False
    prepares: Callable[[Sequence[int]], Awaitable[None]] = _as_it_is
    """Makes sure that topics are known before they are published, so that no list changes in a run."""
    books: Callable[[], Books] = dict[str, float]


class System(Protocol):
    """Something that tells its subscribers."""

    name: str

    def running(self, audience: Audience) -> AbstractAsyncContextManager[Target]:
        """Start it for `audience`, and end it."""
        ...
