"""Which requests share one execution of a worker's function, and which may have an earlier result.

Knows no Redis and no worker: `execute` is given. Rules (design section 6):

1. A request joins only an execution that begins after the request came: of each key one runs and at most one
   waits to be next. What began before may have looked before the change that the request was made for.
2. Or it is given an earlier result if that is within its declared time to live and its revision equals the
   one that the request itself has read. A touch raises the revision, so nothing stale follows a cue.
3. A result's revision was read before its execution began: it is never older than it says.
4. An execution that nobody waits for any more is cancelled.
5. Results take bounded memory: the longest unused go first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from broker.core.declaration import CallRequest, CallResult, Contents, Failure, Instances
from broker.core.errors import BrokerError, WorkerLate
from broker.core.identity import TenantId
from broker.core.revision import Stamp

OVERHEAD = 500
"""Bytes that a kept result costs besides its contents."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants of a worker. Equal keys may share."""

    key: Hashable
    tenant: TenantId
    group: str
    request: CallRequest
    stamp: Stamp
    """Where the resource stood when the request had come."""
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, where its resource stood before it was made, and how old it is."""

    result: CallResult
    stamp: Stamp
    age_ms: int = 0


@dataclass(slots=True)
class _Kept:
    answer: Answer
    began: float
    ends: float
    size: int


class _Execution:
    """One execution, running or next, and who waits for it."""

    __slots__ = ("ask", "began", "task", "waiting")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.began: float | None = None
        self.task: asyncio.Task[CallResult] | None = None
        self.waiting: dict[asyncio.Future[Answer], Ask] = {}


class _Slot:
    """The executions of one key."""

    __slots__ = ("next", "running")

    def __init__(self, running: _Execution) -> None:
        self.running = running
        self.next: _Execution | None = None


class Sharing:
    """The shared executions of one replica. `patience` is how many seconds a request waits in all."""

    def __init__(
        self, execute: Callable[[Ask], Awaitable[CallResult]], *, max_bytes: int, patience: float
    ) -> None:
        self._execute = execute
        self._max_bytes = max_bytes
        self._patience = patience
        self._slots: dict[Hashable, _Slot] = {}
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<Sharing {len(self._slots)} running, {len(self._kept)} kept in {self._bytes} bytes>"

    @property
    def kept(self) -> int:
        """How many results are kept."""
        return len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """How much memory they take."""
        return self._bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nobody waits."""
        return not self._slots

    async def answer(self, ask: Ask) -> Answer:
        """Return what `ask` is answered with, by rules 1 and 2. Cancelling it takes the request back.

        Raises:
            WorkerLate: not in time.
            BrokerError: as `execute`.
        """
        kept = self._earlier(ask)
        if kept is not None:
            return kept
        execution = self._join(ask)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        execution.waiting[future] = ask
        try:
            async with asyncio.timeout(self._patience):
                return await future
        except TimeoutError:
            raise WorkerLate(
                "The worker behind this resource did not answer in time; try again shortly."
            ) from None
        finally:
            execution.waiting.pop(future, None)
            self._left(ask.key, execution)

    # -- executions ----------------------------------------------------------------------------------------

    def _join(self, ask: Ask) -> _Execution:
        slot = self._slots.get(ask.key)
        if slot is None:
            execution = _Execution(ask)
            self._slots[ask.key] = _Slot(execution)
            self._start(execution)
            return execution
        if slot.running.began is None:
            execution = slot.running
        elif slot.next is None:
            execution = slot.next = _Execution(ask)
        else:
            execution = slot.next
        # Who came last has read the revision last, as far as that can be said.
        execution.ask = ask
        return execution

    def _start(self, execution: _Execution) -> None:
        execution.task = asyncio.get_running_loop().create_task(self._run(execution))
        # Also where it is cancelled before its first step.
        execution.task.add_done_callback(lambda task: self._ended(execution, task))

    async def _run(self, execution: _Execution) -> CallResult:
        # From here on nobody joins.
        execution.began = asyncio.get_running_loop().time()
        return await self._execute(execution.ask)

    def _left(self, key: Hashable, execution: _Execution) -> None:
        """Somebody waits no more: what is for nobody is not done."""
        if execution.waiting:
            return
        slot = self._slots.get(key)
        if slot is None:
            return
        if slot.next is execution:
            slot.next = None
        elif slot.running is execution and execution.task is not None:
            execution.task.cancel()

    def _ended(self, execution: _Execution, task: "asyncio.Task[CallResult]") -> None:
        key = execution.ask.key
        slot = self._slots[key]
        error: BaseException | None = None
        answer: Answer | None = None
        if not task.cancelled():
            error = task.exception()
            if error is None:
                answer = Answer(task.result(), execution.ask.stamp)
                self._keep(execution, answer)
        for future in execution.waiting:
            if future.done():
                continue
            if answer is not None:
                future.set_result(answer)
            elif isinstance(error, BrokerError):
                future.set_exception(error)
            elif error is not None:
                future.set_exception(RuntimeError(f"an execution failed: {error!r}"))
            else:
                future.cancel()
        self._advance(key, slot)

    def _advance(self, key: Hashable, slot: _Slot) -> None:
        """Give those who wait for the next execution what has just come, if they may; start the rest."""
        execution, slot.next = slot.next, None
        if execution is not None:
            for future, ask in execution.waiting.items():
                kept = self._earlier(ask)
                if kept is not None and not future.done():
                    future.set_result(kept)
            execution.waiting = {f: ask for f, ask in execution.waiting.items() if not f.done()}
        if execution is None or not execution.waiting:
            del self._slots[key]
            return
        slot.running = execution
        self._start(execution)

    # -- earlier results -----------------------------------------------------------------------------------

    def _earlier(self, ask: Ask) -> Answer | None:
        kept = self._kept.get(ask.key)
        if kept is None:
            return None
        now = asyncio.get_running_loop().time()
        if now >= kept.ends or kept.answer.stamp.revision != ask.stamp.revision:
            # Another revision is only ever replaced by its own execution: ours may be the older look.
            if now >= kept.ends:
                self._drop(ask.key)
            return None
        self._kept.move_to_end(ask.key)
        return Answer(kept.answer.result, kept.answer.stamp, int((now - kept.began) * 1000))

    def _keep(self, execution: _Execution, answer: Answer) -> None:
        ask = execution.ask
        if ask.ttl_ms <= 0 or execution.began is None or isinstance(answer.result, Failure):
            return
        size = OVERHEAD + _size(answer.result)
        if size > self._max_bytes // 4:
            return
        self._drop(ask.key)
        ends = execution.began + ask.ttl_ms / 1000
        self._kept[ask.key] = _Kept(answer, execution.began, ends, size)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Hashable) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


def _size(result: CallResult) -> int:
    match result:
        case Contents(body):
            return len(body)
        case Instances(metas):
            return sum(len(meta) + 50 for meta in metas)
        case _:
            return 0
