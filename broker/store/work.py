"""Calls as a worker process takes them: from its groups' streams, by a consumer group, until answered.

Rules:

1. A call that was taken stays pending until its answer is out: what a worker that died had taken, another one
   claims once it has been idle for `IDLE_MS`. Who lives says so before that (`keep`).
2. The answer comes before the acknowledgement: a worker that dies between has its call done twice, never not.
3. A pending entry without a body (taken back by its caller, or trimmed) is acknowledged and forgotten; a
   consumer that is gone is removed once nothing is pending for it (field report 154).
4. An entry that is no call is removed and logged: it must not stop one worker after the other.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from broker.core import trace
from broker.core.identity import TenantId
from broker.store.client import READ_BLOCK_MS
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.registry import CONSUMERS

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = logging.getLogger(__name__)

IDLE_MS = 2500
"""A pending call that nobody said to be at work on for so long is another worker's."""
LOST_MS = 120_000
"""A pending call so old has no caller any more, whatever its deadline was."""
INLINE_BYTES = 64_000
"""A larger answer is a key of its own and not in the inbox."""
REPLY_MS = 60_000
"""How long an answer, and an inbox that nobody reads, are kept."""
INBOX_LENGTH = 20_000


@dataclass(frozen=True, slots=True)
class Task:
    """A call that this process has taken."""

    tenant: TenantId
    group: str
    entry: str
    call: str
    replica: str
    budget_ms: int
    """How long the caller waits, from `placed_ms` on."""
    request: bytes
    trace: str = ""
    """The trace context of the caller."""

    @property
    def placed_ms(self) -> int:
        """When the call was placed, by Redis' clock."""
        return int(self.entry.partition("-")[0])


class WorkStore:
    """One worker process's view of one group for some tenants.

    Every method raises StoreUnavailable or WrongStore as store/errors.py says.
    """

    def __init__(self, commands: "Redis", reader: "Redis", keys: Keys, group: str, worker: str) -> None:
        self._commands = cast("Any", commands)  # replies are untyped; _tasks looks at them
        self._reader = cast("Any", reader)
        self._keys = keys
        self._group = group
        self._worker = worker

    async def take(self, tenants: Sequence[TenantId], count: int, wait_ms: int | None) -> list[Task]:
        """Take up to `count` new calls of each tenant, waiting up to `wait_ms` (None: not at all).

        Of one shard only, on a cluster; so are `notes`.
        """
        names = {self._keys.calls(tenant, self._group): tenant for tenant in tenants}
        with translated():
            reply = await self._reader.xreadgroup(
                CONSUMERS,
                self._worker,
                dict.fromkeys(names, ">"),
                count=count,
                block=wait_ms,
            )
        taken: list[Task] = []
        for name, entries in reply or ():
            taken += await self._tasks(names[name.decode()], entries)
        return taken

    async def keep(self, tenant: TenantId, entries: Sequence[str]) -> None:
        """Say that this process is still at work on these."""
        name = self._keys.calls(tenant, self._group)
        with translated():
            await self._commands.xclaim(
                name, CONSUMERS, self._worker, min_idle_time=0, message_ids=list(entries), justid=True
            )

    async def claim(self, tenant: TenantId, count: int, but: Collection[str] = ()) -> list[Task]:
        """Take over up to `count` calls whose workers are silent, `but` not these entries."""
        name = self._keys.calls(tenant, self._group)
        with translated():
            idle = await self._commands.xpending_range(
                name, CONSUMERS, "-", "+", count + len(but), idle=IDLE_MS
            )
            ids = [each["message_id"] for each in idle if each["message_id"].decode() not in but][:count]
            if not ids:
                return []
            # Who claims second at this moment finds them no longer idle, and gets none.
            found = await self._commands.xclaim(
                name, CONSUMERS, self._worker, min_idle_time=IDLE_MS, message_ids=ids
            )
            gone = set(ids) - {entry for entry, fields in found if fields}
            if gone:
                await self._forget_missing(name, gone)
        return await self._tasks(tenant, found)

    async def answer(self, task: Task, result: bytes) -> None:
        """Send an answer, and be done with the call."""
        name = self._keys.calls(task.tenant, self._group)
        inbox = self._keys.inbox(task.replica)
        pipeline = self._commands.pipeline(transaction=False)
        fields: dict[str, str | bytes] = {"c": task.call}
        if len(result) > INLINE_BYTES:
            pipeline.set(self._keys.reply(task.replica, task.call), result, px=REPLY_MS)
        else:
            fields["v"] = result
        pipeline.xadd(inbox, fields, maxlen=INBOX_LENGTH, approximate=True)
        pipeline.pexpire(inbox, REPLY_MS)
        with translated():
            if self._keys.is_sharded:
                # The inbox is elsewhere; first it, then the rest (rule 2).
                await pipeline.execute()
                pipeline = self._commands.pipeline(transaction=False)
            pipeline.xack(name, CONSUMERS, task.entry)
            pipeline.xdel(name, task.entry)
            await pipeline.execute()

    async def drop(self, task: Task) -> None:
        """Be done with a call that nobody waits for."""
        name = self._keys.calls(task.tenant, self._group)
        with translated():
            await (
                self._commands.pipeline(transaction=False)
                .xack(name, CONSUMERS, task.entry)
                .xdel(name, task.entry)
                .execute()
            )

    async def release(self, task: Task) -> None:
        """Leave a call that was taken to whoever looks next for silent ones."""
        name = self._keys.calls(task.tenant, self._group)
        with translated():
            await self._commands.xclaim(
                name, CONSUMERS, self._worker, 0, [task.entry], idle=IDLE_MS, justid=True
            )

    async def notes(self, after: dict[TenantId, str]) -> list[tuple[TenantId, str, dict[bytes, bytes]]]:
        """Return the notes behind these entries, by tenant, waiting up to a second for the first."""
        names = {self._keys.notes(tenant, self._group): tenant for tenant in after}
        with translated():
            reply = await self._reader.xread(
                {name: after[tenant] for name, tenant in names.items()}, count=100, block=READ_BLOCK_MS
            )
        return [
            (names[name.decode()], entry.decode(), fields)
            for name, entries in reply or ()
            for entry, fields in entries
        ]

    async def tidy(self, tenant: TenantId) -> None:
        """Forget pending calls that nobody can wait for, and consumers that are gone."""
        name = self._keys.calls(tenant, self._group)
        with translated():
            lost = await self._commands.xpending_range(name, CONSUMERS, "-", "+", 100, idle=LOST_MS)
            if lost:
                ids = [each["message_id"] for each in lost]
                await self._commands.xack(name, CONSUMERS, *ids)
                await self._commands.xdel(name, *ids)
            live = await self._commands.zrange(self._keys.workers(tenant, self._group), 0, -1)
            live += await self._commands.zrange(self._keys.leaving(tenant, self._group), 0, -1)
            for consumer in await self._commands.xinfo_consumers(name, CONSUMERS):
                is_gone = consumer["name"] not in live and consumer["idle"] > LOST_MS
                if is_gone and not consumer["pending"]:
                    await self._commands.xgroup_delconsumer(name, CONSUMERS, consumer["name"])

    async def leave(self, tenant: TenantId) -> None:
        """Remove this process as a consumer, if nothing is pending for it."""
        name = self._keys.calls(tenant, self._group)
        with translated():
            mine = await self._commands.xpending_range(
                name, CONSUMERS, "-", "+", 1, consumername=self._worker
            )
            if not mine:
                await self._commands.xgroup_delconsumer(name, CONSUMERS, self._worker)

    async def _forget_missing(self, name: str, ids: set[bytes]) -> None:
        """Acknowledge those of `ids` that have no body any more; the rest somebody else has claimed."""
        for entry in ids:
            if not await self._commands.xrange(name, entry, entry):
                await self._commands.xack(name, CONSUMERS, entry)

    async def _tasks(self, tenant: TenantId, entries: Sequence[tuple[bytes | None, Any]]) -> list[Task]:
        """Return the calls in `entries`; what is none is removed, else each worker would stumble over it."""
        tasks: list[Task] = []
        for entry, fields in entries:
            if not entry or not fields:
                continue
            try:
                tasks.append(self._task(tenant, entry, fields))
            except (KeyError, ValueError) as error:
                _log.warning("call_malformed", extra={"entry": entry.decode(), "why": repr(error)})
                name = self._keys.calls(tenant, self._group)
                with translated():
                    await self._commands.xack(name, CONSUMERS, entry)
                    await self._commands.xdel(name, entry)
        return tasks

    def _task(self, tenant: TenantId, entry: bytes, fields: dict[bytes, bytes]) -> Task:
        return Task(
            tenant=tenant,
            group=self._group,
            entry=entry.decode(),
            call=fields[b"c"].decode(),
            replica=fields[b"r"].decode(),
            budget_ms=int(fields[b"b"]),
            request=fields[b"q"],
            trace=trace.read(fields.get(b"tp")),
        )
