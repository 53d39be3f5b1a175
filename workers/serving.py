"""Runs workers: says that they live, keeps their declarations registered, and carries calls to them.

    await serve(worker)                     # until cancelled
    async with serving(worker): ...         # beside something else

Rules:

1. Nothing here ends because Redis does: loops wait and go on, and what Redis lost is registered again.
2. On a cluster each log's tenants are served by themselves, so that a node that is silent holds up only those
   whose it is; what the process takes on at once is one number for all of them.
3. A process that leaves is first given no more calls, then finishes what it has taken; if it is the last of
   its group it also takes what waits. Its registrations stay: they are swept when nobody repeats them, so a
   restart changes no list.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from broker.core.errors import BrokerError
from broker.core.identity import TenantId
from broker.store import registry
from broker.store.client import Client, Connect, commands, follow, keys_at, reader
from broker.store.demand import DemandStore
from broker.store.scripts import Call, run
from broker.store.work import WorkStore
from workers.calling import Calling, Room, ServingRules
from workers.demand import Tending
from workers.ending import end
from workers.registration import Registrar
from workers.served import Served
from workers.settings import Settings

_log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0


class Server:
    """One worker in this process for some tenants, all of one log, between `start` and `leave`."""

    def __init__(
        self, worker: Served, tenants: Sequence[TenantId], how: Connect, rules: ServingRules, room: Room
    ) -> None:
        self.id = secrets.token_hex(6)
        self._worker = worker
        self._how = how
        self._rules = rules
        self._tenants = tenants
        self._group = registry.check_group(worker.name)
        self._redis: Client = commands(how)
        self._readers = [reader(how, self._redis) for _ in range(2)]
        calls, notes = (WorkStore(self._redis, one, how.keys, self._group, self.id) for one in self._readers)
        self._store = calls
        self._notes = notes
        self._calling = Calling(calls, tenants, worker, rules=rules, room=room)
        self._tending = Tending(
            worker, tenants, DemandStore(self._redis, how.keys, self._group, self.id), self._rules.linger
        )
        self._registrar: Registrar | None = None
        self._after: dict[TenantId, str] = {}
        self._epochs: dict[TenantId, str] = {}
        self._tend: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._following: asyncio.Task[None] | None = None
        self._ends: list[Callable[[], object]] = []
        self._is_leaving = False

    def __repr__(self) -> str:
        return f"<Server {self._group!a} {self.id} {self._calling!r}>"

    @property
    def others(self) -> int:
        """How many other processes of the group live, as of the last heartbeat."""
        return self._calling.others

    async def start(self) -> None:
        """Register and begin to take calls.

        Raises:
            Conflict: another living worker has one of the URIs.
            StoreUnavailable, WrongStore: from the store. Whatever was begun is undone by `leave`.
        """
        worker = self._worker
        self._registrar = Registrar(self._redis, self._how.keys, worker, self._tenants, self._rules.repeat)
        # Alive first: what is registered and not answered would be an error to whoever reads it.
        await self._beat()
        await self._registrar.start()
        self._ends.append(worker.on_change(self._registrar.change))
        loops = (
            self._registrar.run(), self._beat_forever(), self._calling.take_forever(),
            self._calling.keep_forever(), self._calling.claim_forever(), self._calling.tidy_forever(),
            self._note_forever(),
        )  # fmt: skip
        self._tend = asyncio.get_running_loop().create_task(self._tending.run())
        self._following = asyncio.get_running_loop().create_task(follow(self._redis, *self._readers))
        self._tasks = [self._tend, *(asyncio.get_running_loop().create_task(loop) for loop in loops)]
        _log.info("worker_serves", extra={"group": self._group, "resources": self._registrar.count})

    async def ended(self) -> None:
        """Return when a loop has died, which none should.

        Raises:
            Exception: whatever it died of.
        """
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def leave(self) -> None:
        """Take no more calls, finish those that were taken, and close."""
        for forget in self._ends:
            forget()
        self._is_leaving = True
        try:
            with contextlib.suppress(BrokerError):
                is_last = await self._say_leaving()
                self._calling.leave()
                if is_last:
                    await self._calling.drain()
            self._calling.leave()
            await self._calling.finish()
            if self._tend is not None:
                await end({self._tend})
            with contextlib.suppress(BrokerError):
                await self._tending.leave()
                for tenant in self._tenants:
                    await run(self._redis, self._leave(tenant, is_done=True))
                    await self._store.leave(tenant)
        finally:
            await end(self._tasks if self._following is None else [*self._tasks, self._following])
            for client in (*self._readers, self._redis):
                await client.aclose()

    # -- living --------------------------------------------------------------------------------------------

    async def _beat_forever(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                if self._is_leaving:
                    await self._say_leaving()
                else:
                    await self._beat()
                failures = 0
            except BrokerError as error:
                failures += 1
                if failures == 1:
                    _log.warning("worker_lost_redis", extra={"group": self._group, "error": str(error)})

    async def _beat(self) -> None:
        for tenant in self._tenants:
            asked = time.monotonic()
            beat = await run(self._redis, registry.beat(self._how.keys, tenant, self._group, self.id))
            self._calling.clock = beat.server_ms - (asked + time.monotonic()) * 500
            self._calling.others = self._tending.others = beat.live - 1
            self._after.setdefault(tenant, f"{beat.server_ms}-0")
            epoch = self._epochs.get(tenant)
            self._epochs[tenant] = beat.epoch
            registrar = self._registrar
            if registrar is None or epoch is None:
                continue
            if beat.epoch != epoch or beat.declared < registrar.count:
                # Redis began anew, or something of ours is gone: say everything again.
                registrar.change()

    async def _say_leaving(self) -> bool:
        """Say that we take no more; return whether nobody else does."""
        others = [await run(self._redis, self._leave(tenant)) for tenant in self._tenants]
        return not any(others)

    def _leave(self, tenant: TenantId, *, is_done: bool = False) -> Call[int]:
        return registry.leave(self._how.keys, tenant, self._group, self.id, is_done=is_done)

    async def _note_forever(self) -> None:
        """Read what every process of the group is told."""
        while True:
            try:
                for tenant, entry, fields in await self._notes.notes(self._after):
                    self._after[tenant] = entry
                    if fields.get(b"k") == b"x":
                        self._calling.cancel(fields.get(b"c", b"").decode(errors="replace"))
                    elif fields.get(b"k") == b"w":
                        self._tending.wake()
            except BrokerError:
                await asyncio.sleep(0.5)


def connect(url: str | None = None, *, prefix: str | None = None) -> Connect:
    """Return how workers reach Redis: by `url`, BROKER_REDIS_URL, or a broker of this machine.

    Raises:
        Misconfigured: there is none.
    """
    settings = Settings()
    found, access = settings.find(url, "serve from")
    return Connect(found, keys_at(found, settings.prefix if prefix is None else prefix), access=access)


@contextlib.asynccontextmanager
async def serving(
    *workers: Served, url: str | None = None, prefix: str | None = None, rules: ServingRules | None = None
) -> AsyncGenerator[Sequence[Server]]:
    """Serve `workers` while the block runs; they take calls when it begins, and have left when it ends.

    Raises:
        Conflict: another living worker has one of the URIs.
        StoreUnavailable, WrongStore, Misconfigured: Redis cannot be used.
    """
    how = connect(url, prefix=prefix)
    rules = rules or ServingRules()
    servers: list[Server] = []
    for worker in workers:
        room = Room(rules.concurrency)
        servers += [Server(worker, tenants, how, rules, room) for tenants in how.keys.by_log(worker.tenants)]
    try:
        for server in servers:
            await server.start()
        yield servers
    finally:
        await asyncio.gather(*(server.leave() for server in servers))


async def serve(
    *workers: Served, url: str | None = None, prefix: str | None = None, rules: ServingRules | None = None
) -> None:
    """Serve `workers` until cancelled; cancelling lets them finish what they have taken.

    Raises:
        Conflict, StoreUnavailable, WrongStore, Misconfigured: as `serving`.
    """
    async with serving(*workers, url=url, prefix=prefix, rules=rules) as servers:
        await asyncio.gather(*(server.ended() for server in servers))
