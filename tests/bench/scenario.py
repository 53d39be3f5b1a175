"""What is asked of a target: who watches, what is published, how fast. Pure.

Phases, each optional, in this order: idle, a rate (delays), flat out (CPU), bursts while nobody reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.bench.plan import Audience
from tests.bench.target import System

WARM = 3
"""Publishes before anything is measured."""
STRANGERS = 1000
"""How many different URIs are published that nobody watches."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run's load."""

    audience: Audience
    published: int = 1
    """Publishes go to the first so many topics, round and round; 0 is to URIs that nobody watches."""
    idle_ms: int = 0
    rate: float = 0
    """Publishes a second in the timed phase."""
    rate_count: int = 0
    flat_count: int = 0
    window: int = 1
    """Publishes on their way at once in the flat phase."""
    burst: int = 0
    repeat: int = 0
    gap_us: int = 0
    slow_ms: int = 0
    """How long nobody reads after a burst."""
    receive_buffer: int = 0
    """Bytes of a client's socket buffer; 0 leaves it to the kernel."""

    at_once: int = 0
    """Streams that are being opened at once; 0 leaves it to the load generator (64)."""
    patience: Mapping[str, int] = field(default_factory=dict[str, int])
    """How long the load generator waits for what, where that is not its own choice (loadgen/main.c)."""

    def topics(self) -> Iterator[int]:
        """Yield the topic of each publish, in order. The last of a phase is always one that is watched."""
        warm = self.audience.topics
        yield from (warm for _ in range(WARM))
        for count in (self.rate_count, self.flat_count, self.burst * self.repeat):
            for number in range(count):
                if self.published:
                    yield number % self.published
                else:
                    yield 0 if number == count - 1 else warm + 1 + number % STRANGERS

    def options(self) -> dict[str, float]:
        """Return what the load generator is told beside the plans."""
        given = {
            "idle-ms": self.idle_ms,
            "rate": self.rate,
            "rate-count": self.rate_count,
            "flat-count": self.flat_count,
            "window": self.window,
            "burst": self.burst,
            "repeat": self.repeat,
            "gap-us": self.gap_us,
            "slow-ms": self.slow_ms,
            "receive-buffer": self.receive_buffer,
            "at-once": self.at_once,
            **self.patience,
        }
        return {name: value for name, value in given.items() if value}

    def lighter(self, by: int) -> "Load":
        """Return the same for who would take minutes: the same streams, fewer publishes."""
        return replace(
            self,
            flat_count=max(self.flat_count // by, min(self.flat_count, 4)),
            rate_count=self.rate_count // by,
            repeat=max(self.repeat // by, min(self.repeat, 1)),
        )


@dataclass(frozen=True, slots=True)
class Entrant:
    """Who takes part in a scenario, how often, and with how much less to do."""

    system: Callable[[], System]
    rounds: int
    lighter: int = 1
    load: Load | None = None
    """Its own load, where it differs from the others' by more than its size."""
    x: float = 0
    """Where it stands on the plot's axis, if the scenario is one that grows something."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A row of the table, or a line of a plot."""

    name: str
    title: str
    load: Load
    entrants: Sequence[Entrant]

    @property
    def rounds(self) -> int:
        return max(entrant.rounds for entrant in self.entrants)

    @property
    def is_growth(self) -> bool:
        """Whether it is a line of a plot."""
        return any(entrant.x for entrant in self.entrants)

    def turns(self) -> Iterator[tuple[int, Entrant]]:
        """Yield who is measured, round after round, so that what is compared stands side by side in time."""
        for number in range(self.rounds):
            in_it = [entrant for entrant in self.entrants if number < entrant.rounds]
            yield from ((number, entrant) for entrant in (in_it if number % 2 == 0 else in_it[::-1]))
