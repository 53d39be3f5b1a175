"""Publishing that waits until replicas of Redis have it, too (WAIT).

Rules:

1. WAIT counts replicas for what its own connection wrote, so each round is one pipeline: the call, a small
   write of ours, WAIT. The small write makes a call that wrote nothing (unchanged, replayed) wait for what an
   earlier one wrote: replication is in one order, so who has the last write has all before.
2. A round is short, since a connection that waits must not look dead; the call carries a token, so sending it
   again, on any connection, changes nothing and gets the same answer.
3. Too few is an error, whatever was stored: nobody can take it for a success. It is no promise either way: a
   failover may still lose what k replicas had, if another one is promoted.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError

from broker.core.errors import BadRequest, NotReplicated
from broker.core.identity import TenantId
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from broker.store.scripts import Call

if TYPE_CHECKING:
    from redis import Redis as SyncRedis
    from redis.asyncio import Redis

ROUND_MS = 500
DEFAULT_MS = 1000
MAX_MS = 60_000
MAX_REPLICAS = 100
_BARRIER_MS = 1000


@dataclass(frozen=True, slots=True)
class Wait:
    """How many replicas are to confirm, and for how many ms they are waited for."""

    replicas: int
    ms: int


def wait(replicas: int | None, ms: int | None) -> Wait | None:
    """Return what a caller asked for, None if it does not want to wait.

    Raises:
        BadRequest: out of range.
    """
    if replicas is None:
        if ms is not None:
            raise BadRequest("How long to wait is given without how many replicas to wait for.")
        return None
    ms = DEFAULT_MS if ms is None else ms
    if not 1 <= replicas <= MAX_REPLICAS:
        raise BadRequest(f"Replicas to wait for are 1 to {MAX_REPLICAS}, not {replicas}.")
    if not 1 <= ms <= MAX_MS:
        raise BadRequest(f"Replicas are waited for from 1 to {MAX_MS} ms, not {ms}.")
    return Wait(replicas, ms)


class _Rounds:
    """The rounds of one call: what to send next, and what it has come to."""

    def __init__(self, keys: Keys, tenant: TenantId, call: Call[Outcome], asked: Wait) -> None:
        self._call = call
        self._asked = asked
        self._barrier = keys.token(tenant, f"w:{secrets.token_hex(8)}")
        self._ends = time.monotonic() + asked.ms / 1000
        self._is_known = True
        self.outcome: Outcome | None = None

    def queue(self, pipeline: Any) -> Any:
        """Fill `pipeline` with a round."""
        call = self._call
        left_ms = int((self._ends - time.monotonic()) * 1000)
        if self._is_known:
            pipeline.execute_command("EVALSHA", *call.command)
        else:
            pipeline.execute_command("EVAL", call.script.source, *call.command[1:])
        pipeline.execute_command("SET", self._barrier, "1", "PX", _BARRIER_MS)
        pipeline.execute_command("WAIT", self._asked.replicas, max(1, min(ROUND_MS, left_ms)))
        return pipeline

    def take(self, replies: Sequence[Any]) -> bool:
        """Take in what a round brought; whether it was the last.

        Raises:
            NotReplicated: it was, and too few have confirmed.
            BrokerError: what the call was refused with.
        """
        done, _, confirmed = replies
        if isinstance(done, NoScriptError):
            self._is_known = False
            return False
        with translated():
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        outcome = self._call.read(done)
        self.outcome = replace(outcome, replicas=int(confirmed))
        if confirmed >= self._asked.replicas:
            return True
        if time.monotonic() >= self._ends:
            raise NotReplicated(int(confirmed), self._asked.replicas)
        return False


async def run_waiting(
    redis: "Redis", keys: Keys, tenant: TenantId, call: Call[Outcome], asked: Wait
) -> Outcome:
    """Send `call`, and return its outcome once enough replicas have it.

    Raises:
        NotReplicated: it is stored and announced, but too few replicas said in time that they have it.
        BrokerError: as scripts.run.
    """
    rounds = _Rounds(keys, tenant, call, asked)
    client: Any = redis
    while True:
        with translated():
            replies = await rounds.queue(client.pipeline(transaction=False)).execute(raise_on_error=False)
        if rounds.take(replies) and rounds.outcome is not None:
            return rounds.outcome


def run_waiting_sync(
    redis: "SyncRedis", keys: Keys, tenant: TenantId, call: Call[Outcome], asked: Wait
) -> Outcome:
    """Do what `run_waiting` does, for plain scripts.

    Raises:
        NotReplicated, BrokerError: as there.
    """
    rounds = _Rounds(keys, tenant, call, asked)
    client: Any = redis
    while True:
        with translated():
            replies = rounds.queue(client.pipeline(transaction=False)).execute(raise_on_error=False)
        if rounds.take(replies) and rounds.outcome is not None:
            return rounds.outcome
