"""What a connection to a node of a cluster has adopted: which logs go on there by its word.

Pure. "Run id first" (greeting.py, rule 1) holds for each log by itself on a cluster (ADR 0008):

1. A connection whose node says that it is a replica is closed; it never writes when that one is promoted.
2. Each connection adopts a log before its first command on that log's slot, not before: a node has some of
   the logs, and which they are changes. What was adopted counts as long as the slot does not change hands as
   far as we know (`SlotMap.turn`).
3. Who answers is a *reign*: the run id and the replication id, which is another one after each promotion. A
   connection that was silent for a moment looks whether the reign is still the same, else its node may have
   been a replica meanwhile, and may be the primary again of what another one had written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import exceptions as rx

from broker.store.address import Shape
from broker.store.errors import StoreUnavailable, ours
from broker.store.greeting import Server, read, refusal

IDLE_SECONDS = 0.25
"""Nobody is demoted, follows another, and is promoted again in less."""


@dataclass(frozen=True, slots=True)
class Reign:
    """One server's time as a primary, from its start or promotion on."""

    run_id: str
    replication_id: str

    @property
    def identity(self) -> str:
        """What a log's head keeps of it."""
        return f"{self.run_id}.{self.replication_id}"


@dataclass(slots=True)
class Standing:
    """What a connection has adopted, under which reign; times by any clock that does not jump, in seconds."""

    reign: Reign
    used_at: float
    adopted: dict[int, int] = field(default_factory=dict[int, int])
    """Slot → its turn when its log was adopted."""

    def is_idle(self, now: float) -> bool:
        """Whether it must look again who answers."""
        return now - self.used_at > IDLE_SECONDS

    def look(self, reign: Reign) -> None:
        """Take in who answers now."""
        if reign != self.reign:
            self.reign = reign
            self.adopted.clear()


def reign_of(*sections: bytes) -> Reign:
    """Read the answers to INFO server and INFO replication.

    Raises:
        Ours: it is a replica, or no server that will do.
    """
    server: Server = read(*sections)
    why = refusal(server, Shape.CLUSTER)
    if why is None and server.role != "master":
        why = StoreUnavailable(f"This node of the cluster is a read-only replica of {server.primary} now.")
    if why is not None:
        raise ours(why)
    return Reign(server.run_id, server.replication_id)


def packed_for(connection: Any, args: Sequence[Any], *, is_asking: bool) -> list[bytes]:
    """Return a command's bytes as this connection packs them, behind ASKING where the slot is on its way."""
    asking: list[bytes] = connection.pack_command("ASKING") if is_asking else []
    return [*asking, *connection.pack_command(*args)]


def check_uncut(connection: Any) -> None:
    """See that the connection is the one that has adopted: sending would open another without a word.

    Raises:
        RedisError: it was cut meanwhile.
    """
    if not connection.is_connected:
        raise rx.ConnectionError("the connection was cut")
