"""Calls to workers as a replica makes them: placed in a group's stream, answered in the replica's inbox.

The inbox is a stream of this replica alone, read by one connection of its own; it expires by itself when
nobody is answered there any more. The other side is work.py.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker.core import trace
from broker.core.errors import Unavailable, WorkerUnavailable
from broker.core.identity import ReplicaId, TenantId
from broker.store.client import READ_BLOCK_MS, disconnect
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.registry import LAPSE_MS, STREAM_MS
from broker.store.scripts import Call, Value, run, script

if TYPE_CHECKING:
    from redis.asyncio import Redis

MAX_WAITING = 10_000
"""Calls that may wait in one group's stream; more are refused."""
NOTES_LENGTH = 1000
INBOX_COUNT = 256
"""Answers that one read of the inbox may bring."""


class Letter(NamedTuple):
    """One answer in the inbox; without a `result` it is a key of its own (`CallStore.fetch`)."""

    entry: str
    call: str
    result: bytes | None


class CallStore:
    """The calls of one replica. Methods raise StoreUnavailable or WrongStore as store/errors.py says."""

    def __init__(self, commands: "Redis", reader: "Redis", keys: Keys, replica: ReplicaId) -> None:
        self._commands = commands
        self._reader = reader
        self._keys = keys
        self._replica = replica

    async def place(self, tenant: TenantId, group: str, call: str, request: bytes, budget_ms: int) -> str:
        """Hand a call to a group and return the entry's id. The answer comes within `budget_ms` or never.

        Raises:
            WorkerUnavailable: the group has no live worker.
            Unavailable: too many calls wait for the group already.
        """
        args: list[Value] = [
            LAPSE_MS, MAX_WAITING, STREAM_MS, "c", call, "q", request, "r", self._replica, "b", budget_ms,
        ]  # fmt: skip
        if context := trace.current():
            args += ["tp", context]
        names = [self._keys.calls(tenant, group), self._keys.workers(tenant, group)]
        placed: Call[str] = Call(script("call"), names, args, _entry)
        return await run(self._commands, placed)

    async def cancel(self, tenant: TenantId, group: str, call: str, entry: str) -> bool:
        """Take a call back that nobody waits for; False if it was answered already."""
        names = [self._keys.calls(tenant, group), self._keys.notes(tenant, group)]
        taken: Call[bool] = Call(script("cancel"), names, (entry, call, NOTES_LENGTH, STREAM_MS), bool)
        return await run(self._commands, taken)

    async def letters(self, after: str) -> list[Letter]:
        """Return the answers behind the entry `after`, waiting up to a second for the first."""
        inbox = self._keys.inbox(self._replica)
        with translated():
            # Its replies are untyped; _letters looks at them.
            reply = await cast("Any", self._reader).xread(
                {inbox: after}, count=INBOX_COUNT, block=READ_BLOCK_MS
            )
        return _letters(reply)

    async def discard(self, upto: str) -> None:
        """Drop the answers up to the entry `upto`, which have been read."""
        n, _, sequence = upto.partition("-")
        after = f"{n}-{int(sequence) + 1}"
        with translated():
            await cast("Any", self._commands).xtrim(
                self._keys.inbox(self._replica), minid=after, approximate=True
            )

    async def fetch(self, call: str) -> bytes | None:
        """Return an answer that was too large for the inbox, once."""
        with translated():
            return await cast("Any", self._commands).getdel(self._keys.reply(self._replica, call))

    async def reconnect(self) -> None:
        """Drop the inbox reader's connection."""
        await disconnect(self._reader)


def _entry(reply: bytes) -> str:
    if reply == b"none":
        raise WorkerUnavailable
    if reply == b"full":
        raise Unavailable(
            f"{MAX_WAITING} reads wait for the worker of this resource already; try again shortly, and "
            "start more worker processes if this lasts."
        )
    return reply.decode()


def _letters(reply: Any) -> list[Letter]:
    if not reply:
        return []
    # Without a call's name it is no answer: nobody waits for "", and the reader must get past it.
    return [
        Letter(entry.decode(), fields.get(b"c", b"").decode(errors="replace"), fields.get(b"v"))
        for entry, fields in reply[0][1]
        if fields
    ]
