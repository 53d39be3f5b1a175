"""What was published, owed and told in one run; counts only, knows no client and no server.

Rules:

1. *Owed*: one cue for each watcher and URI that changed while a group lasted, be it back to what it was.
   *Told*: the watcher knows what Redis holds. It believes only cues, so it was cued, or it came back after
   its own stream was cut, and read. What is owed and not told is *lost*.
2. *Repeated*: a cue whose read showed nothing new. Harmless, and no more than the faults make likely.
3. *Recovery*: seconds from when Redis answered again, or from the publish's acknowledgement if that came
   later, to the cue; of watchers whose own stream stood all the time.
"""

import time
from collections import Counter
from dataclasses import dataclass, field

Key = tuple[str, str]
"""A tenant and a URI."""


@dataclass
class Ledger:
    """The counts of one run."""

    faults: Counter[str] = field(default_factory=Counter[str])
    acknowledged: int = 0
    refused: int = 0
    """Publishes that got an error or no answer; Redis may have them all the same."""
    owed: int = 0
    cued: int = 0
    """Told by a cue on a stream that stood."""
    reread: int = 0
    """Told by a read after the watcher's own stream was cut and came back."""
    repeated: int = 0
    lost: list[str] = field(default_factory=list[str])
    recoveries: dict[str, float] = field(default_factory=dict[str, float])
    """Fault(s) of a group → the worst recovery of any such group, in seconds."""
    late: list[str] = field(default_factory=list[str])
    """Groups whose recovery took longer than promised."""
    calm: list[float] = field(default_factory=list[float])
    """Seconds from calling publish to the cue, while nothing is wrong."""
    at: dict[Key, float] = field(default_factory=dict[Key, float])
    """When each resource's last publish was acknowledged."""

    def published(self, key: Key, *, is_acknowledged: bool) -> None:
        """Count one publish."""
        if is_acknowledged:
            self.acknowledged += 1
            self.at[key] = time.monotonic()
        else:
            self.refused += 1

    def told(self, key: Key, cued_at: float | None, answered_at: float) -> float:
        """Count one owed cue that came, and return the recovery; `cued_at` is None if the stream was cut."""
        self.owed += 1
        if cued_at is None:
            self.reread += 1
            return 0.0
        self.cued += 1
        return max(0.0, cued_at - max(answered_at, self.at.get(key, 0.0)))

    def missed(self, what: str) -> None:
        """Count one owed cue that never came."""
        self.owed += 1
        self.lost.append(what)

    def recovered(self, group: str, seconds: float, bound: float) -> None:
        """Note how long a group's worst recovery took, in seconds, and whether that was promised."""
        self.recoveries[group] = max(seconds, self.recoveries.get(group, 0.0))
        if seconds > bound:
            self.late.append(f"{group}: {seconds:.2f} s, promised {bound:g} s")

    @property
    def worst(self) -> float:
        """The worst recovery of all, in seconds."""
        return max(self.recoveries.values(), default=0.0)

    def percentile(self, share: float) -> float:
        """Return the calm latency, in seconds, that `share` (0 to 1) of the cues did not exceed."""
        if not self.calm:
            return 0.0
        return sorted(self.calm)[min(len(self.calm) - 1, int(share * len(self.calm)))]
