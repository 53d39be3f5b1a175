"""Takes calls, lets the worker answer them, and sends the answers.

Rules:

1. A call is taken only when there is room for it: in all, and for its tenant. What is not taken waits in
   Redis, where any process of the group can have it.
2. A call that was taken is kept claimed while it runs, and a silent process's call is claimed from it.
3. No loop here dies of Redis: it waits and goes on.
4. A call that this process cannot know (another release of the group declares it) is left to the others for a
   while, before it is answered as unknown.
5. A call of a sync function that finds no free thread for `CROWDED_SECONDS` is left to the others, too, as
   long as there are any: a sibling may be idle. Functions that hang cost their own process, not the group.
6. Ages and deadlines are taken from the monotonic clock, set by Redis' clock once a second. What this machine
   thinks the time is, and when somebody corrects it, decides nothing.
"""

import asyncio
import dataclasses
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from broker.core.declaration import CallRequest, CallResult, Failure, encode_result
from broker.core.errors import BrokerError
from broker.core.identity import TenantId
from broker.core.publication import MAX_CONTENT_BYTES
from broker.store.client import READ_BLOCK_MS
from broker.store.work import Task, WorkStore
from workers import ending, tracing
from workers.served import Served

_log = logging.getLogger(__name__)

T = TypeVar("T")

KEEP_SECONDS = 0.8
CLAIM_SECONDS = 0.5
TIDY_SECONDS = 30.0
CROWDED_WAIT_MS = 50
"""How long a read waits while a tenant has no room: its calls are not asked for, and must not wait long."""
PASS_MS = 4000
"""How old a call must be until it is answered as unknown here, if other processes may know it."""
CROWDED_SECONDS = 0.3
"""How long a call waits for a free thread here, if other processes may have one."""
CROWDED_PASS_SECONDS = 1.0
"""How long it is left to them then: longer than each of them takes to look (`CLAIM_SECONDS`)."""
CROWDED_LOOK_SECONDS = 0.01
ANSWER_OVERHEAD = 1000


@dataclass(frozen=True, slots=True)
class ServingRules:
    """How much a process takes on. Times in seconds."""

    concurrency: int = 64
    per_tenant: int | None = None
    """None: all of `concurrency` for a worker of one tenant, half of it for each tenant of several."""
    grace: float = 15.0
    """How long a process that leaves finishes what it has taken."""
    max_answer_bytes: int = MAX_CONTENT_BYTES
    linger: float = 30.0
    """How long a URI counts as watched after its last watcher has left."""
    repeat: float = 10.0
    """How often registrations are repeated; well below what brokers wait for (30 s)."""

    def share(self, tenants: int) -> int:
        """Return how much of it one tenant of so many may have, so that none can take it all."""
        if self.per_tenant is not None:
            return self.per_tenant
        return self.concurrency if tenants == 1 else max(1, self.concurrency // 2)


class Room:
    """What one process takes on at once, whichever log its tenants are in."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.running = 0
        self.freed = asyncio.Event()
        """Set when there may be room again."""

    @property
    def left(self) -> int:
        """How many more calls there is room for."""
        return max(0, self.capacity - self.running)


class Calling:
    """One worker's calls for `tenants`, which are all of one log."""

    def __init__(
        self,
        store: WorkStore,
        tenants: Sequence[TenantId],
        worker: Served,
        *,
        rules: ServingRules,
        room: Room,
    ) -> None:
        self._store = store
        self._tenants = tenants
        self._worker = worker
        self._rules = rules
        self._share = rules.share(len(worker.tenants))
        self._running: dict[str, tuple[Task, asyncio.Task[None]]] = {}
        self._count: Counter[TenantId] = Counter()
        self._passed: dict[str, float] = {}
        """Entries left to the others, each until when."""
        self._room = room
        self._turn = 0
        self._is_leaving = False
        self.others = 0
        """How many other processes of the group live."""
        self.clock = 0.0
        """What Redis' clock is ahead of our monotonic one, in ms."""

    def __repr__(self) -> str:
        return f"<Calling {len(self._running)} running>"

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered."""
        return not self._running

    # -- taking --------------------------------------------------------------------------------------------

    async def take_forever(self) -> None:
        """Take calls until `leave`."""
        failures = 0
        while not self._is_leaving:
            tenants, count = self._openings()
            if not tenants:
                self._room.freed.clear()
                await self._room.freed.wait()
                continue
            wait_ms = READ_BLOCK_MS if len(tenants) == len(self._tenants) else CROWDED_WAIT_MS
            try:
                await self._accept(await self._store.take(tenants, count, wait_ms))
                failures = 0
            except BrokerError as error:
                failures += 1
                if failures == 1:
                    _log.warning("calls_lost_redis", extra={"error": str(error)})
                await asyncio.sleep(_backoff(failures))

    async def drain(self) -> None:
        """Take everything that waits: this is the last process of its group."""
        while True:
            taken = await self._store.take(self._tenants, self._rules.concurrency, None)
            for task in taken:
                self._begin(task)
            if not taken:
                return

    def leave(self) -> None:
        """Take nothing more."""
        self._is_leaving = True
        self._room.freed.set()

    async def finish(self) -> None:
        """Wait for what runs, within the grace; what is left is left to the other processes."""
        tasks = [running for _, running in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=self._rules.grace)
        await ending.end([running for _, running in self._running.values()])

    def cancel(self, call: str) -> None:
        """Nobody waits for `call` any more."""
        running = self._running.get(call)
        if running is not None:
            running[1].cancel("taken back")

    def _left(self, tenant: TenantId) -> int:
        """Return how many more calls of `tenant` there is room for."""
        return max(0, min(self._room.left, self._share - self._count[tenant]))

    def _openings(self) -> tuple[list[TenantId], int]:
        """Return whose calls may be taken, and how many of each: one read asks the same number of all."""
        tenants = [tenant for tenant in self._tenants if self._left(tenant)]
        if not tenants:
            return [], 0
        if len(tenants) > self._room.left:
            # There is not one for each: they take turns.
            self._turn = (self._turn + 1) % len(tenants)
            tenants = (tenants[self._turn :] + tenants[: self._turn])[: self._room.left]
        return tenants, min(self._room.left // len(tenants), *map(self._left, tenants))

    # -- answering -----------------------------------------------------------------------------------------

    async def _accept(self, tasks: Sequence[Task]) -> None:
        """Begin what there is room for; while we asked for it, the other loop may have filled the room."""
        left: list[Task] = []
        for task in tasks:
            if self._left(task.tenant) or task.call in self._running:
                self._begin(task)
            else:
                left.append(task)
        for task in left:
            await self._store.release(task)

    def _begin(self, task: Task) -> None:
        if task.call in self._running:
            return
        self._count[task.tenant] += 1
        self._room.running += 1
        running = asyncio.get_running_loop().create_task(self._serve(task), name=f"call {task.call}")
        self._running[task.call] = task, running
        running.add_done_callback(lambda done: self._ended(task, done))

    def _ended(self, task: Task, done: "asyncio.Task[None]") -> None:
        del self._running[task.call]
        self._count[task.tenant] -= 1
        self._room.running -= 1
        self._room.freed.set()
        if not done.cancelled() and done.exception() is not None:
            _log.error("call_not_answered", exc_info=done.exception(), extra={"call": task.call})

    async def _serve(self, task: Task) -> None:
        end = time.monotonic() + (task.budget_ms - self._age_ms(task)) / 1000
        try:
            if end <= time.monotonic():
                await self._store.drop(task)
                return
            request = CallRequest.decode(task.request)
            pass_seconds = await self._pass_seconds(task, request)
            if pass_seconds:
                # Before it is let go: we must not be the next who finds it.
                self._passed[task.entry] = time.monotonic() + pass_seconds
                await self._store.release(task)
                return
            # Authors and their libraries know no other clock than the wall's.
            request = dataclasses.replace(request, deadline=time.time() + end - time.monotonic())
            with tracing.answered(task.trace, task.tenant):
                result = await self._worker.call(request)
        except ValueError:
            _log.exception("call_unreadable", extra={"call": task.call})
            result = Failure("internal", "The worker cannot read this call.", task.call)
        except asyncio.CancelledError:
            if not self._is_leaving:
                await self._store.drop(task)
            raise
        await self._send(task, self._encoded(task, result), end)

    def _age_ms(self, task: Task) -> float:
        """Return how long ago a call was placed."""
        return time.monotonic() * 1000 + self.clock - task.placed_ms

    async def _pass_seconds(self, task: Task, request: CallRequest) -> float:
        """Return for how many seconds a call is left to the other processes; 0 if it is answered here."""
        if self.others and not self._knows(request.declared):
            return max(0.0, PASS_MS - self._age_ms(task)) / 1000
        patience = time.monotonic() + CROWDED_SECONDS
        while self.others and self._worker.is_crowded(request):
            if time.monotonic() > patience:
                return CROWDED_PASS_SECONDS
            await asyncio.sleep(CROWDED_LOOK_SECONDS)
        return 0.0

    def _knows(self, declared: str) -> bool:
        return any(declaration.uri == declared for declaration in self._worker.declarations())

    def _encoded(self, task: Task, result: CallResult) -> bytes:
        data = encode_result(result)
        limit = self._rules.max_answer_bytes + ANSWER_OVERHEAD
        if len(data) <= limit:
            return data
        _log.error(
            "answer_too_large",
            extra={"call": task.call, "bytes": len(data), "limit": self._rules.max_answer_bytes},
        )
        return encode_result(Failure("internal", "The answer is larger than is allowed.", task.call))

    async def _send(self, task: Task, data: bytes, until: float) -> None:
        failures = 0
        while True:
            try:
                await self._store.answer(task, data)
            except BrokerError as error:
                failures += 1
                if time.monotonic() > until:
                    _log.warning("answer_not_sent", extra={"call": task.call, "error": str(error)})
                    return
                await asyncio.sleep(_backoff(failures))
            else:
                return

    # -- upkeep --------------------------------------------------------------------------------------------

    async def keep_forever(self) -> None:
        """Say that we are at work on what runs."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            by_tenant: dict[TenantId, list[str]] = {}
            for task, _ in self._running.values():
                by_tenant.setdefault(task.tenant, []).append(task.entry)
            for tenant, entries in by_tenant.items():
                await _attempt("calls_not_kept", self._store.keep(tenant, entries))

    async def claim_forever(self) -> None:
        """Take over what silent processes have taken, as far as there is room."""
        while True:
            await asyncio.sleep(CLAIM_SECONDS * random.uniform(0.7, 1.3))
            if self._is_leaving:
                continue
            now = time.monotonic()
            self._passed = {entry: until for entry, until in self._passed.items() if until > now}
            for tenant in self._tenants:
                if self._left(tenant):
                    claim = self._store.claim(tenant, self._left(tenant), self._passed)
                    claimed = await _attempt("calls_not_claimed", claim)
                    await _attempt("calls_not_left", self._accept(claimed or ()))

    async def tidy_forever(self) -> None:
        """Forget what nobody can wait for."""
        while True:
            await asyncio.sleep(TIDY_SECONDS * random.uniform(0.7, 1.3))
            for tenant in self._tenants:
                await _attempt("calls_not_tidied", self._store.tidy(tenant))


async def _attempt(event: str, work: Awaitable[T]) -> T | None:
    """Do `work`; what Redis refuses is tried again at the next turn."""
    try:
        return await work
    except BrokerError as error:
        _log.debug(event, extra={"error": str(error)})
        return None


def _backoff(failures: int) -> float:
    return min(1.0, 0.05 * 2 ** min(failures, 5)) * random.uniform(0.5, 1.0)
