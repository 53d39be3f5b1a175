"""Which faults come in which order: decided from a seed alone, before anything runs.

Pure. Rules:

1. The same seed, faults and length give the same plan; each step has a seed of its own, so that leaving one
   out changes no other. What the machine does meanwhile is not in our hands: a replay is of the plan.
2. A group's steps follow each other without waiting; at its end everybody must come to know everything.
3. What may lose writes opens a group: it waits until all is quiet, since of a change that somebody read
   uncued, and that Redis then lost, nobody can tell (docs/reliability.md).
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

MOST_AT_ONCE = 3


class Kind(NamedTuple):
    """What a plan knows of a fault. `weight` is how often it comes beyond the first time."""

    name: str
    loses: bool = False
    weight: int = 1


class Step(NamedTuple):
    """One fault to inject, and the seed of all that it decides itself."""

    number: int
    fault: str
    seed: str

    @property
    def rng(self) -> random.Random:
        return random.Random(self.seed)


Group = tuple[Step, ...]


def plan(seed: int, kinds: Sequence[Kind], steps: int, *, is_complete: bool) -> list[Group]:
    """Return groups of `steps` steps in all; a complete plan has each kind once, and then the rest.

    Raises:
        ValueError: a complete plan needs as many steps as there are kinds.
    """
    rng = random.Random(seed)
    chosen = list(kinds) if is_complete else []
    if len(chosen) > steps:
        raise ValueError(f"{len(chosen)} kinds of faults do not fit into {steps} steps")
    chosen += rng.choices(kinds, [kind.weight for kind in kinds], k=steps - len(chosen))
    rng.shuffle(chosen)
    groups: list[list[Kind]] = []
    room = 0
    for kind in chosen:
        if room == 0 or kind.loses:
            groups.append([])
            room = rng.randint(1, MOST_AT_ONCE)
        groups[-1].append(kind)
        room -= 1
    numbers = iter(range(1, steps + 1))
    return [tuple(_step(seed, next(numbers), kind) for kind in group) for group in groups]


def exactly(seed: int, names: Sequence[str]) -> list[Group]:
    """Return a plan of these faults in this order, each a group of its own."""
    return [(_step(seed, number, Kind(name)),) for number, name in enumerate(names, 1)]


def shown(groups: Sequence[Group]) -> str:
    """Return a plan in one line, for people: groups in brackets."""
    return " ".join(f"[{' '.join(step.fault for step in group)}]" for group in groups)


def _step(seed: int, number: int, kind: Kind) -> Step:
    return Step(number, kind.name, f"{seed}/{number}/{kind.name}")
