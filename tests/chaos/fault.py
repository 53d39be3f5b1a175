"""What a fault of a chaos run is, and the rules that each keeps.

Rules:

1. A fault publishes while it lasts what it may hide, and nothing after: no later change covers it up.
2. It ends when Redis answers again. What is still broken then (a dead replica of Redis, say) is healed by the
   shape once the group was judged.
3. A fault that must have been seen to count (an error that Redis gives) checks that it was.
4. All that it decides comes from the random numbers it is given.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.chaos.plan import Kind
from tests.chaos.storm import Storm

ERROR = 2.0
"""Promise 2: seconds until everybody is told once Redis answers again after an error or a reset."""
SILENT = 4.0
"""Promise 2: the same after a silent loss."""
CLIENTS = 10.0
"""Seconds until the clients of a broker's replica that was hurt are served by another: its entry in the
registry lapses after five, and they come back by themselves."""

EVERYWHERE = ("standalone", "sentinel", "cluster")


@dataclass(frozen=True)
class Fault:
    """One way to hurt, where it can be done, and within what everybody must know again, in seconds.

    `loses` says that Redis itself may lose what it acknowledged: then the promise is of what survived.
    """

    name: str
    run: Callable[[Storm, random.Random], Awaitable[None]]
    bound: float = ERROR
    shapes: tuple[str, ...] = EVERYWHERE
    loses: bool = False
    weight: int = 1

    @property
    def kind(self) -> Kind:
        """What a plan knows of it."""
        return Kind(self.name, self.loses, self.weight)
