"""Calls to workers from this replica: each placed in its group's stream, and answered in our inbox.

Rules:

1. Without a live worker a call is refused at once, and one that waits is given up within a second or two;
   nobody sits out a deadline for that.
2. A call that nobody waits for any more is taken back, and whoever runs it is told. Best effort.
3. An answer that nobody waits for is dropped: a call may be done twice (work.py, rule 2).
"""

import asyncio
import dataclasses
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from broker.callbacks.inbox import Inbox
from broker.callbacks.sharing import Ask, Sharing
from broker.core.declaration import CallResult, Contents, Failure, decode_result
from broker.core.errors import (
    BadRequest,
    BrokerError,
    LimitReached,
    ResourceNotFound,
    WorkerFailed,
    WorkerLate,
    WorkerUnavailable,
)
from broker.core.identity import TenantId
from broker.store import registry
from broker.store.calls import CallStore
from broker.store.client import Client
from broker.store.keys import Keys
from broker.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

LATE_MS = 500
CHECK_SECONDS = 1.0
"""How often is asked whether somebody is at work on what waits."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """How calls are treated. `deadline` in seconds; the rest are limits of one replica."""

    deadline: float = 10.0
    running_per_tenant: int = 500
    kept_bytes: int = 64_000_000
    report: float = 5.0
    """How often is repeated what is watched here, to workers that want to know."""
    unheard: float = 30.0
    """How long what a worker registered stays once nobody repeats it."""


@dataclass(slots=True)
class _Pending:
    tenant: TenantId
    group: str
    since: float
    reply: "asyncio.Future[CallResult]"


class Calls:
    """The calls of one replica that wait for an answer. `shared` is how requests come to share them."""

    def __init__(
        self,
        redis: Client,
        store: CallStore,
        keys: Keys,
        *,
        rules: CallRules,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        metrics: Metrics,
    ) -> None:
        self._redis = redis
        self._store = store
        self._keys = keys
        self._rules = rules
        self._spawn = spawn
        self._metrics = metrics
        self.admit: Callable[[TenantId], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
        """What a call waits for and may be refused by: the tenant's quota (tenants/quotas.py)."""
        self._pending: dict[str, _Pending] = {}
        self._running: Counter[TenantId] = Counter()
        self._inbox = Inbox(store, self._deliver, spawn)
        self.shared = Sharing(
            self._execute, max_bytes=rules.kept_bytes, patience=2 * rules.deadline + CHECK_SECONDS
        )

    def __repr__(self) -> str:
        return f"<Calls {len(self._pending)} pending, {self.shared!r}>"

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for a worker."""
        return not self._pending and self.shared.is_idle

    async def run(self) -> None:
        """Read the inbox, and look after what waits, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inbox.run(), name="inbox")
            group.create_task(self._check_forever(), name="calls")

    # -- one call ------------------------------------------------------------------------------------------

    async def _execute(self, ask: Ask) -> CallResult:
        async with self.admit(ask.tenant):
            return await self._call(ask)

    async def _call(self, ask: Ask) -> CallResult:
        if self._running[ask.tenant] >= self._rules.running_per_tenant:
            raise LimitReached(
                f"{self._rules.running_per_tenant} reads of this tenant wait for workers on this replica "
                "already; ask for less at once, or try again shortly."
            )
        call = secrets.token_hex(8)
        loop = asyncio.get_running_loop()
        pending = _Pending(ask.tenant, ask.group, loop.time(), loop.create_future())
        self._pending[call] = pending
        self._running[ask.tenant] += 1
        request = dataclasses.replace(ask.request, id=call, deadline=time.time() + self._rules.deadline)
        # A little more, so that it is we who say that it is too late.
        budget_ms = int(self._rules.deadline * 1000) + LATE_MS
        # A command is never cancelled for a client that left: that would cost its connection.
        placing = asyncio.ensure_future(
            self._store.place(ask.tenant, ask.group, call, request.encode(), budget_ms)
        )
        try:
            async with asyncio.timeout(self._rules.deadline):
                await asyncio.shield(placing)
                result = await pending.reply
        except BaseException as error:
            self._spawn(self._take_back(ask, call, placing))
            self._metrics.worker_called(_outcome(error), loop.time() - pending.since)
            if isinstance(error, TimeoutError):
                raise _late(self._rules.deadline) from None
            raise
        finally:
            del self._pending[call]
            self._running[ask.tenant] -= 1
            if not self._running[ask.tenant]:
                del self._running[ask.tenant]
        failed = isinstance(result, Failure) and result.reason == "internal"
        self._metrics.worker_called("failed" if failed else "answered", loop.time() - pending.since)
        return result

    async def _take_back(self, ask: Ask, call: str, placing: "asyncio.Future[str]") -> None:
        try:
            await self._store.cancel(ask.tenant, ask.group, call, await placing)
        except BrokerError:
            # It was never placed, or Redis is away: the deadline ends it.
            return

    def _deliver(self, call: str, data: bytes) -> None:
        pending = self._pending.get(call)
        if pending is None or pending.reply.done():
            return
        try:
            pending.reply.set_result(decode_result(data))
        except ValueError:
            _log.exception("answer_unreadable", extra={"call": call, "group": pending.group})
            pending.reply.set_exception(WorkerFailed(call))

    # -- who is at work ------------------------------------------------------------------------------------

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._check()
            except BrokerError as error:
                _log.debug("workers_unknown", extra={"error": str(error)})
            except Exception:  # a bug here must not end the replica
                _log.exception("workers_check_failed")

    async def _check(self) -> None:
        """Give up what waits for groups in which nobody is at work any more."""
        before = asyncio.get_running_loop().time() - CHECK_SECONDS
        waiting = [one for one in self._pending.values() if one.since <= before]
        by_shard: dict[int, list[tuple[TenantId, str]]] = {}
        for tenant, group in dict.fromkeys((one.tenant, one.group) for one in waiting):
            by_shard.setdefault(self._keys.shard(tenant), []).append((tenant, group))
        for failure in await asyncio.gather(
            *(self._check_some(waiting, groups) for groups in by_shard.values()), return_exceptions=True
        ):
            if failure is not None:
                raise failure

    async def _check_some(self, waiting: list[_Pending], groups: list[tuple[TenantId, str]]) -> None:
        counts = await registry.live(self._redis, self._keys, groups)
        gone = {group for group, count in zip(groups, counts, strict=True) if not count}
        for one in waiting:
            if (one.tenant, one.group) in gone and not one.reply.done():
                one.reply.set_exception(WorkerUnavailable())


def contents(uri: str, result: CallResult) -> bytes:
    """Return what was read.

    Raises:
        ResourceNotFound: the worker knows no such resource, or refuses it to this caller; alike.
        BadRequest: the URI's values cannot be read.
        WorkerFailed: the function failed, or answered with something else than contents.
    """
    match result:
        case Contents(body):
            return body
        case Failure("invalid", message):
            raise BadRequest(message)
        case Failure("not_found" | "forbidden"):
            raise ResourceNotFound(uri)
        case Failure():
            raise WorkerFailed(result.id)
        case _:
            raise WorkerFailed("no contents")


def _late(seconds: float) -> WorkerLate:
    return WorkerLate(
        f"The worker behind this resource did not answer within {seconds:g} seconds; try again shortly."
    )


def _outcome(error: BaseException) -> str:
    match error:
        case WorkerUnavailable():
            return "no_worker"
        case TimeoutError():
            return "timed_out"
        case asyncio.CancelledError():
            return "cancelled"
        case _:
            return "failed"
