"""Everything that a chaos run hurts, and who watches: replicas and workers as processes, publishers, clients.

Rules:

1. The storm does what a fault asks and counts it (ledger.py); which fault comes when is the plan's business.
2. A refused publish is not repeated, as a job that has newer news soon would; a touch is the word that a
   file changed, and is repeated until it is acknowledged, as its job must.
3. Each reads and publishes with a name of its own in its contents: a byte of another tenant ends the run.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from broker.core.errors import BrokerError
from tests.chaos import worker
from tests.chaos.ledger import Key, Ledger
from tests.chaos.shape import Shape, until_synced
from tests.support.fault_proxy import FaultProxy
from tests.support.follower import Follower, close_all
from tests.support.mcp import Handshake, Modern, RpcError, new_http
from tests.support.process import Process
from tests.support.replica import Fleet
from tests.support.wait import until
from workers import Publisher

TENANTS = ("acme", "other")
LIVE = "acme"
"""The tenant whose worker answers."""
URIS = tuple(f"docs://{name}" for name in "abcdefgh")
FOLLOWERS = 10
REPLICAS = 3
NARROW = 2
"""The replica whose pool of connections is as small as that, for the fault that exhausts it: the last one."""


class Storm:
    """One run's processes and clients. Made by `storm`."""

    def __init__(
        self, shape: Shape, fleet: Fleet, http: httpx.AsyncClient, rng: random.Random, directory: Path
    ) -> None:
        self.shape = shape
        self.fleet = fleet
        self.http = http
        self.rng = rng
        self.ledger = Ledger()
        self.to_replicas = [FaultProxy(replica.address) for replica in fleet.replicas]
        self.publishers = {
            tenant: Publisher(shape.url, tenant=tenant, prefix=fleet.prefix) for tenant in TENANTS
        }
        self.followers: list[Follower] = []
        self.workers: list[Process] = []
        self.is_touch_owed = False
        self._directory = directory
        self._number = 0
        self.file.write_text(f"{LIVE}|{worker.URI}|0")

    @property
    def file(self) -> Path:
        """What the worker answers with."""
        return self._directory / "live"

    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{proxy.port}/mcp" for proxy in self.to_replicas]

    # -- publishing

    def keys(self, rng: random.Random, count: int) -> list[Key]:
        """Return different resources."""
        return rng.sample([(tenant, uri) for tenant in TENANTS for uri in URIS], count)

    async def burst(self, rng: random.Random, count: int | None = None) -> None:
        """Publish to different resources at once; what is refused is not published."""
        keys = self.keys(rng, count or rng.randint(2, 6))
        await asyncio.gather(*(self.publish(key, is_removal=rng.random() < 0.05) for key in keys))

    @asynccontextmanager
    async def publishing(self, rng: random.Random) -> AsyncGenerator[None]:
        """Publish around what the block does, which must be short: before anybody can hear it, or meanwhile.

        What no broker has heard when the block begins, Redis and its replicas have.
        """
        if rng.random() < 0.5:
            burst = asyncio.create_task(self.burst(rng))
            await asyncio.sleep(rng.uniform(0, 0.01))
            yield
            await burst
            return
        for replica in self.fleet.replicas:
            replica.process.pause()
        try:
            await self.burst(rng)
            for tenant in TENANTS:
                await asyncio.to_thread(until_synced, self.shape, tenant)
            yield
        finally:
            for replica in self.fleet.replicas:
                replica.process.resume()

    async def publish(self, key: Key, *, is_removal: bool = False) -> bool:
        """Publish something new, or remove it; returns whether that was acknowledged."""
        tenant, uri = key
        self._number += 1
        text = f"{tenant}|{uri}|{self._number}"
        try:
            if is_removal:
                await self.publishers[tenant].remove(uri)
            else:
                await self.publishers[tenant].publish(uri, text, name=uri)
        except BrokerError:
            self.ledger.published(key, is_acknowledged=False)
            return False
        self.ledger.published(key, is_acknowledged=True)
        return True

    async def touch(self) -> None:
        """Change the worker's file, and say so."""
        self._number += 1
        self.file.write_text(f"{LIVE}|{worker.URI}|{self._number}")
        await self.say_touched()

    async def say_touched(self) -> None:
        """Say that the file changed; the word is owed until it is acknowledged."""
        key = (LIVE, worker.URI)
        self.is_touch_owed = True
        try:
            await self.publishers[LIVE].touch(worker.URI)
        except BrokerError:
            self.ledger.published(key, is_acknowledged=False)
        else:
            self.is_touch_owed = False
            self.ledger.published(key, is_acknowledged=True)

    # -- clients

    def add_follower(self, rng: random.Random, *, is_live: bool = False) -> None:
        """Let somebody subscribe to some URIs of one tenant, in either era."""
        tenant = LIVE if is_live else rng.choice(TENANTS)
        uris = rng.sample(URIS, rng.randint(1, 6))
        self.follow(rng.choice((Handshake, Modern)), tenant, [*uris, worker.URI] if is_live else uris, rng)

    def follow(
        self, era: type[Handshake] | type[Modern], tenant: str, uris: Sequence[str], rng: random.Random
    ) -> None:
        """Let a client of that era subscribe."""
        own = random.Random(rng.random())
        self.followers.append(Follower(era, self.urls, tenant, uris, http=self.http, rng=own))

    async def until_quiet(self, seconds: float) -> None:
        """Wait until every follower stands and has read all that it was cued for."""
        await until(
            self.is_quiet, lambda: f"all quiet: {[f for f in self.followers if not f.is_idle]}", seconds
        )

    def is_quiet(self) -> bool:
        return all(follower.is_idle for follower in self.followers)

    # -- workers

    def start_worker(self) -> Process:
        """Start one more worker process; its log is in the storm's directory."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("BROKER_")}
        env = clean | {
            "BROKER_REDIS_URL": self.shape.url,
            "BROKER_PREFIX": self.fleet.prefix,
            "BROKER_TENANT": LIVE,
            "CHAOS_FILE": str(self.file),
        }
        name = f"worker-{len(self.workers)}"
        argv = [sys.executable, "-m", "workers", "run", "tests.chaos.worker"]
        process = Process(name, argv, self._directory / f"{name}.log", env)
        process.start()
        self.workers.append(process)
        return process

    async def aclose(self) -> None:
        await close_all(self.followers)
        for publisher in self.publishers.values():
            await publisher.aclose()
        for process in self.workers:
            process.kill()
        for proxy in self.to_replicas:
            proxy.close()


@asynccontextmanager
async def storm(
    shape: Shape,
    seed: int,
    *,
    replicas: int = REPLICAS,
    workers: int = 2,
    settings: Mapping[str, str] | None = None,
) -> AsyncGenerator[Storm]:
    """Start replicas and workers on a shape of Redis; everything ends with the block, the shape stays.

    Raises:
        AssertionError: at the end, if a replica logged a traceback.
    """
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mrb-chaos-")))
        http = await stack.enter_async_context(new_http())
        fleet = Fleet(shape.url, shape.keys.prefix, **(settings or {}))
        stack.push_async_callback(asyncio.to_thread, fleet.close)
        for number in range(replicas):
            narrow = {"BROKER_REDIS__POOL_SIZE": "3"} if number == NARROW else {}
            await asyncio.to_thread(fleet.add, 1, redis_url=shape.way(number), **narrow)
        made = Storm(shape, fleet, http, rng, directory)
        stack.push_async_callback(made.aclose)
        for _ in range(workers):
            made.start_worker()
        yield made
    assert fleet.surprises == [], "\n".join(fleet.surprises)


async def populate(storm: Storm, followers: int = FOLLOWERS) -> None:
    """Let clients of both eras subscribe, two of them to what the worker serves, and wait until they have."""
    if storm.workers:
        await until(lambda: _answers(storm), lambda: f"the worker answers\n{logs(storm.workers)}", 30)
    for number in range(followers):
        storm.add_follower(storm.rng, is_live=bool(storm.workers) and number < 2)
    await storm.until_quiet(30)


async def _answers(storm: Storm) -> bool:
    """Whether the worker answers through the first replica."""
    reader = Modern(storm.urls()[0], LIVE, storm.http)
    try:
        await reader.read(worker.URI)
    except (RpcError, httpx.TransportError):
        return False
    return True


def logs(processes: Sequence[Process]) -> str:
    """Return the ends of their logs."""
    return "\n".join(f"{process!r}\n{process.tail(20)}" for process in processes)


def now() -> float:
    """Return the clock of the ledger, in seconds."""
    return time.monotonic()
