"""The last change is always told: a random schedule of everything that can go wrong (promise 2).

Followers believe cues only (tests/support/follower.py). Publishes, new and leaving subscribers, cuts of
clients and of Redis, trims, rollbacks, FLUSHALL, crashes of replicas and of Redis come in a seeded random
order. When nothing more happens, each follower must soon know what Redis holds; nothing else will wake it.

`CHAOS_SEED` runs another schedule, `CHAOS_STEPS` a longer one. A failure prints the seed and the schedule.
"""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import pytest

from broker.core.errors import BrokerError
from broker.store.keys import Keys
from tests.support.fault_proxy import FaultProxy
from tests.support.follower import Follower, close_all
from tests.support.mcp import Handshake, Modern
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.rollback import Snapshot
from tests.support.wait import until, within
from workers import Publisher

SEEDS = [int(seed) for seed in os.environ.get("CHAOS_SEED", "1,2").split(",")]
STEPS = int(os.environ.get("CHAOS_STEPS", "60"))
TENANTS = ["acme", "other"]
URIS = [f"docs://{name}" for name in "abcdefgh"]
CONTROL: dict[str, Any] = {"MODULE": os.environ["CHAOS_MODULE"]} if "CHAOS_MODULE" in os.environ else {}
"""`CHAOS_MODULE=tests.support.no_resync` is the control: it must fail."""
FOLLOWERS = 12
QUIET = 25.0
"""Seconds until everybody must know: dead replicas lapse after 5, clients come back, reads follow."""

Truth = dict[tuple[str, str], str | None]


@dataclass
class Storm:
    """Everything that can be hurt, and who watches."""

    redis: RedisServer
    fleet: Fleet
    to_redis: list[FaultProxy]
    to_replicas: list[FaultProxy]
    publishers: dict[str, Publisher]
    http: httpx.AsyncClient
    rng: random.Random
    followers: list[Follower] = field(default_factory=list[Follower])
    done: list[str] = field(default_factory=list[str])
    number: int = 0

    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{proxy.port}/mcp" for proxy in self.to_replicas]

    async def step(self) -> None:
        """Do one thing, chosen by weight."""
        kinds = {
            self.publish: 30,
            self.follow: 8,
            self.leave: 4,
            self.cut_clients: 10,
            self.cut_redis: 10,
            self.black_hole: 3,
            self.trim_unread: 6,
            self.roll_back: 4,
            self.flush: 2,
            self.crash_replica: 4,
            self.crash_redis: 2,
        }
        (kind,) = self.rng.choices(list(kinds), list(kinds.values()))
        await self.do(kind)

    async def do(self, kind: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do one thing, in bounded time."""
        self.done.append(kind.__name__)
        await within(kind(), f"the end of {kind.__name__} after {self.done}", 60)

    async def publish(self) -> None:
        """Publish a burst; what Redis refuses meanwhile is not published."""
        for _ in range(self.rng.randint(1, 6)):
            self.number += 1
            tenant, uri = self.rng.choice(TENANTS), self.rng.choice(URIS)
            try:
                if self.rng.random() < 0.05:
                    await self.publishers[tenant].remove(uri)
                else:
                    await self.publishers[tenant].publish(uri, f"{tenant}|{uri}|{self.number}", name=uri)
            except BrokerError:
                self.done.append("refused")

    async def follow(self) -> None:
        """Let somebody new subscribe."""
        if len(self.followers) < 2 * FOLLOWERS:
            self.add_follower()
        await asyncio.sleep(0)

    def add_follower(self) -> None:
        self.followers.append(
            Follower(
                self.rng.choice((Handshake, Modern)),
                self.urls,
                self.rng.choice(TENANTS),
                self.rng.sample(URIS, self.rng.randint(1, 6)),
                http=self.http,
                rng=random.Random(self.rng.random()),
            )
        )

    async def leave(self) -> None:
        if len(self.followers) > FOLLOWERS // 2:
            await self.followers.pop(self.rng.randrange(len(self.followers))).close()

    async def cut_clients(self) -> None:
        proxy = self.rng.choice(self.to_replicas)
        await asyncio.to_thread(self.rng.choice((proxy.cut, proxy.reset)))

    async def cut_redis(self) -> None:
        proxy = self.rng.choice(self.to_redis)
        await asyncio.to_thread(self.rng.choice((proxy.cut, proxy.reset)))

    async def black_hole(self) -> None:
        """Swallow a replica's connections to Redis under publishes; end them, or let all of it come late."""
        proxy = self.rng.choice(self.to_redis)
        proxy.black_hole(up=self.rng.random() < 0.7, down=True)
        for _ in range(3):
            await self.publish()
            await asyncio.sleep(self.rng.uniform(0, 0.5))
        if self.rng.random() < 0.5:
            proxy.cut()
        proxy.pass_all()

    async def trim_unread(self) -> None:
        """Trim away entries that one replica has not read: a gap."""
        proxy = self.rng.choice(self.to_redis)
        proxy.black_hole(up=True, down=True)
        await self.publish()
        with self.redis.client() as client:
            client.xtrim(Keys(self.fleet.prefix).log(), maxlen=self.rng.choice((0, 1)), approximate=False)
        proxy.pass_all()

    async def roll_back(self) -> None:
        """Take Redis back to before some changes that were told already: a fork.

        Not while somebody is still subscribing: a subscription that was acknowledged, rolled back, and known
        to no replica yet is lost with Redis' own memory, and nobody can tell of it. Nor while somebody reads
        what no cue told of: that may be a change that its replica never hears of, since Redis loses it.
        """
        await until(lambda: all(f.is_idle for f in self.followers), lambda: f"idle: {self.followers}", 50)
        with self.redis.client() as client:
            snapshot = Snapshot(client, self.fleet.prefix)
            await self.publish()
            await asyncio.sleep(self.rng.uniform(0, 0.2))
            snapshot.restore()

    async def flush(self) -> None:
        with self.redis.client() as client:
            client.execute_command("FLUSHALL")  # pyright: ignore[reportUnknownMemberType] - untyped

    async def crash_replica(self) -> None:
        await asyncio.to_thread(self.rng.choice(self.fleet.replicas).restart)

    async def crash_redis(self) -> None:
        await asyncio.to_thread(self.redis.restart, keep_data=self.rng.random() < 0.7)


@pytest.fixture
async def storm(
    own_redis: RedisServer,
    new_fleet: Callable[..., Fleet],
    prefix: str,
    http: httpx.AsyncClient,
    seed: int,
) -> AsyncIterator[Storm]:
    """Give three replicas, each with a faulty way to Redis and a faulty way from its clients."""
    fleet = new_fleet(own_redis.url, 0)
    to_redis = [FaultProxy(own_redis.address) for _ in range(3)]
    for proxy in to_redis:
        fleet.add(1, redis_url=proxy.redis_url, **CONTROL)
    to_replicas = [FaultProxy(replica.address) for replica in fleet.replicas]
    publishers = {tenant: Publisher(own_redis.url, tenant=tenant, prefix=prefix) for tenant in TENANTS}
    storm = Storm(own_redis, fleet, to_redis, to_replicas, publishers, http, random.Random(seed))
    yield storm
    await close_all(storm.followers)
    for publisher in publishers.values():
        await publisher.aclose()
    for proxy in (*to_redis, *to_replicas):
        proxy.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", SEEDS)
async def test_when_it_is_quiet_everybody_knows_the_last_change(storm: Storm, seed: int) -> None:
    for _ in range(FOLLOWERS):
        storm.add_follower()
    await until(lambda: all(f.is_idle for f in storm.followers), "everybody subscribed", 30)
    for _ in range(STEPS):
        await storm.step()
        await asyncio.sleep(storm.rng.uniform(0, 0.1))
    # Last of all what hides changes: no later publish covers it up.
    for kind in storm.rng.sample([storm.trim_unread, storm.roll_back, storm.black_hole], 3):
        await storm.do(kind)
    truth = await _truth(storm)
    await until(
        lambda: all(_knows(follower, truth) for follower in storm.followers),
        lambda: _report(storm, truth, seed),
        QUIET,
    )


async def _truth(storm: Storm) -> Truth:
    """Return what Redis holds, past caches and replicas."""
    truth: Truth = {}
    for tenant, publisher in storm.publishers.items():
        for uri in URIS:
            stored = await publisher.read(uri)
            truth[tenant, uri] = None if stored is None else json.loads(stored.contents)[0]["text"]
    return truth


def _knows(follower: Follower, truth: Truth) -> bool:
    follower.check()
    for text in follower.known.values():
        assert text is None or text.startswith(f"{follower.tenant}|"), f"{follower!r} read another's {text}"
    expected = {uri: truth[follower.tenant, uri] for uri in follower.uris}
    return follower.is_idle and follower.known == expected


def _report(storm: Storm, truth: Truth, seed: int) -> str:
    lost = [follower for follower in storm.followers if not _knows(follower, truth)]
    with storm.redis.client() as client:
        untyped = cast("Any", client)
        names = untyped.scan_iter(f"{storm.fleet.prefix}:*:subs:*")
        kept = {name: untyped.hgetall(name) for name in names}
    schedule = f"CHAOS_SEED={seed}\n{storm.done}"
    return f"everybody knows the last change\n{schedule}\ntruth {truth}\nbehind {lost}\nRedis keeps {kept}"
