"""Which node of a cluster has which slot, and what an answer that says otherwise means.

Pure: decides, sends nothing. Rules:

1. Every key of ours carries one of sixteen tags (keys.py), so there are sixteen slots and one log in each;
   all that a command, script or pipeline names is in one of them.
2. What we know of the cluster may be old. MOVED corrects it for one slot at once; whatever else goes wrong
   with a node makes the shells (cluster.py, cluster_sync.py) ask the others.
3. A slot's `turn` counts how often it changed hands as far as we know: what a connection had adopted before
   does not count after (adoption.py).
4. ASK is for one command and changes nothing we know. TRYAGAIN and CLUSTERDOWN pass by waiting: a slot that
   is on its way refuses scripts whose keys are not all in one place, before they run.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redis import exceptions as rx
from redis.crc import key_slot

from broker.store.address import Host
from broker.store.errors import is_cut

RETRIES = 2
"""How often a command is sent again after a connection failed, as on a single node."""
PATIENCE = 1.0
"""Seconds that are waited in all for what passes by waiting."""
PAUSE_MIN = 0.02
PAUSE_MAX = 0.2
REDIRECTIONS = 8
"""MOVED and ASK in a row that are followed; nodes that disagree send a command to and fro."""
ASKED_AT_ONCE = 3
"""Nodes that are asked together where the slots are; the first answer is taken."""

_STREAMS = frozenset({"XREAD", "XREADGROUP"})
_SCRIPTS = frozenset({"EVAL", "EVALSHA"})
_WAIT = "WAIT"
_EXHAUSTED = "No connection available"


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key."""
    return key_slot(key.encode() if isinstance(key, str) else key)


def slot_in(command: Sequence[Any]) -> int:
    """Return the slot of the first key that `command` names.

    Raises:
        ValueError: it names none; such a command must be sent to a node (client.node_of).
    """
    name = command[0]
    if name in _SCRIPTS:
        at = 3
    elif name in _STREAMS:
        at = next((i for i, word in enumerate(command) if word in ("STREAMS", b"STREAMS")), len(command)) + 1
    else:
        at = 1
    if at >= len(command):
        raise ValueError(f"{name} names no key, so it has no place on a cluster")
    return slot_of(command[at])


def slot_of_all(commands: Iterable[Sequence[Any]]) -> int:
    """Return the slot of several commands; WAIT among them goes with the others.

    Raises:
        ValueError: they are of several slots, or of none.
    """
    slots = {slot_in(command) for command in commands if command[0] != _WAIT}
    if len(slots) != 1:
        raise ValueError(f"one pipeline is for one slot, not {len(slots)}")
    return slots.pop()


@dataclass
class SlotMap:
    """Who has what, as far as we know."""

    owners: dict[int, Host] = field(default_factory=dict[int, Host])
    nodes: frozenset[Host] = frozenset()
    """All nodes, replicas too: any may be asked."""
    turns: dict[int, int] = field(default_factory=dict[int, int])

    def turn(self, slot: int) -> int:
        """Return how often a slot has changed hands."""
        return self.turns.get(slot, 0)

    def renew(self, slot: int) -> None:
        """Let what was adopted in a slot count no more."""
        self.turns[slot] = self.turn(slot) + 1

    def give(self, slot: int, owner: Host) -> None:
        """Take in that a slot is `owner`'s."""
        if self.owners.get(slot) not in (None, owner):
            self.renew(slot)
        self.owners[slot] = owner
        self.nodes |= {owner}

    def learn(self, ranges: Sequence[Any], asked: Host, wanted: Iterable[int]) -> frozenset[Host]:
        """Take in CLUSTER SLOTS as the node `asked` answered it; return who has no slot of ours any more."""
        before = frozenset(self.owners.values())
        nodes: set[Host] = set()
        found: dict[int, Host] = {}
        for begin, end, *holders in ranges:
            hosts = [_host(holder, asked) for holder in holders]
            nodes.update(hosts)
            found |= {slot: hosts[0] for slot in wanted if begin <= slot <= end}
        for slot, owner in found.items():
            self.give(slot, owner)
        if nodes:
            self.nodes = frozenset(nodes)
        return before - frozenset(self.owners.values())

    def to_ask(self, seeds: Sequence[Host]) -> list[list[Host]]:
        """Return whom to ask for the slots, in groups to be asked together, at random: one may be cut off."""
        known = [*self.nodes]
        random.shuffle(known)
        everybody = list(dict.fromkeys([*known, *seeds]))
        return [everybody[at : at + ASKED_AT_ONCE] for at in range(0, len(everybody), ASKED_AT_ONCE)]


def _host(holder: Sequence[Any], asked: Host) -> Host:
    """Return one node of CLUSTER SLOTS. A node that does not know its name has the one we reached it by."""
    name = holder[0].decode() if isinstance(holder[0], bytes) else (holder[0] or "")
    return (name if name not in ("", "?") else asked[0], int(holder[1]))


class Next(NamedTuple):
    """What to do before a command is sent again."""

    pause: float = 0.0
    moved: tuple[int, Host] | None = None
    """This slot is there."""
    ask_at: Host | None = None
    """Only the next attempt goes there, after ASKING."""
    is_doubtful: bool = False
    """Ask the nodes where the slots are."""


class Attempts:
    """The attempts of one command or pipeline. `now` is any clock in seconds that does not jump."""

    def __init__(self, now: float, retries: int) -> None:
        self._until = now + PATIENCE
        self._retries = retries
        self._failures = 0
        self._redirections = 0
        self._waits = 0

    def after(self, error: Exception, at: Host, now: float) -> Next | None:
        """Decide what follows an error that the node `at` gave; None: it is the answer."""
        match error:
            case rx.MovedError() | rx.AskError():
                self._redirections += 1
                redirected: Any = error  # its fields have no types
                there: Host = (redirected.host or at[0], redirected.port)
                pause = 0.0 if self._redirections <= REDIRECTIONS // 2 else self._pause()
                if self._redirections > REDIRECTIONS and now > self._until:
                    return None
                if isinstance(error, rx.MovedError):
                    return Next(pause, moved=(redirected.slot_id, there), is_doubtful=True)
                return Next(pause, ask_at=there)
            case rx.TryAgainError() | rx.ClusterDownError() | rx.MasterDownError() | rx.BusyLoadingError():
                if now > self._until:
                    return None
                return Next(self._pause(), is_doubtful=not isinstance(error, rx.TryAgainError))
            case _ if is_of_connection(error) and _EXHAUSTED not in str(error):
                self._failures += 1
                return Next(self._pause(), is_doubtful=True) if self._failures <= self._retries else None
            case _:
                return None

    def _pause(self) -> float:
        self._waits += 1
        return min(PAUSE_MAX, PAUSE_MIN * 2.0**self._waits) * random.uniform(0.5, 1.0)


def left_of(
    pending: Sequence[int], sent: Sequence[int], replies: Sequence[Any], *, is_whole: bool
) -> list[int]:
    """Return which of several commands have still to be sent; all of them, if they are one `is_whole`."""
    left = [i for i in pending if i not in sent or is_redirection(replies[i])]
    return list(range(len(replies))) if left and is_whole else left


def is_whole(commands: Iterable[Sequence[Any]]) -> bool:
    """Whether commands make sense together only: WAIT speaks of what its own connection wrote."""
    return any(command[0] == _WAIT for command in commands)


def turn_of(pending: Sequence[int], replies: Sequence[Any], *, is_asking: bool) -> Sequence[int]:
    """Return which of several commands are sent next: after an ASK those that got it, else all.

    If none got it, it was for what comes before them, and is for all.
    """
    if not is_asking:
        return pending
    return [i for i in pending if isinstance(replies[i], rx.AskError)] or pending


def is_of_connection(error: Exception) -> bool:
    """Whether an error says that no answer came, rather than what the answer is."""
    return isinstance(error, rx.ConnectionError | rx.TimeoutError | OSError) or is_cut(error)


def is_redirection(reply: object) -> bool:
    """Whether a reply says that the command was not run here and now, and may be elsewhere or later."""
    return isinstance(reply, rx.AskError | rx.TryAgainError | rx.ClusterDownError | rx.MasterDownError)
