"""A replica whose Redis can be hurt, and who watches there in both eras."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest

from broker.core.identity import SessionId, TenantId
from broker.core.revision import Stamp
from broker.store.keys import Keys
from tests.support.fault_proxy import FaultProxy
from tests.support.mcp import Handshake, Listening, Modern, Stream
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.rollback import Snapshot
from tests.support.wait import until
from workers import Publisher

TENANT = "acme"
LISTENED, SUBSCRIBED = "docs://listened", "docs://subscribed"
"""One for each era, so that neither's watcher can help the other's to a cue."""


@pytest.fixture
def proxy(own_redis: RedisServer) -> Iterator[FaultProxy]:
    """Give the way from a replica to this test's own Redis."""
    with FaultProxy(own_redis.address) as proxy:
        yield proxy


@dataclass
class Bench:
    """One test's Redis, fleet, publisher (which is never behind the proxy) and clients."""

    redis: RedisServer
    proxy: FaultProxy
    prefix: str
    new_fleet: Callable[..., Fleet]
    publisher: Publisher
    http: httpx.AsyncClient

    def fleet(self, count: int = 1, **settings: str) -> Fleet:
        """Start replicas that reach Redis through the proxy."""
        return self.new_fleet(self.proxy.redis_url, count, **settings)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.redis.client(), self.prefix)

    @property
    def log(self) -> str:
        return Keys(self.prefix).log()

    @property
    def head(self) -> str:
        return Keys(self.prefix).head()

    def fence(self, client: Handshake) -> int:
        """How often the session's stream has been taken."""
        assert client.session is not None
        name = Keys(self.prefix).session(TenantId(TENANT), SessionId(client.session))
        with self.redis.client() as redis:
            return int(cast("Any", redis).hget(name, "fence"))

    def run(self, *command: str) -> object:
        """Run a Redis command; the words `LOG` and `HEAD` stand for those keys."""
        words = [{"LOG": self.log, "HEAD": self.head}.get(word, word) for word in command]
        with self.redis.client() as client:
            return cast("Any", client).execute_command(*words)

    async def publish(self, text: str) -> Stamp:
        """Publish to both URIs, from behind no proxy; returns where the second change stands."""
        await self.publisher.publish(LISTENED, text)
        stamp = (await self.publisher.publish(SUBSCRIBED, text)).stamp
        assert stamp is not None
        return stamp

    async def watch(self, url: str) -> "Watch":
        """Open a listen stream for one URI and a session's stream for the other."""
        modern = Modern(url, TENANT, self.http)
        session = Handshake(url, TENANT, self.http)
        await session.initialize()
        await session.subscribe(SUBSCRIBED)
        return Watch(modern, session, await modern.listen([LISTENED]), await session.get_stream())


@dataclass
class Watch:
    """A watcher of each era."""

    modern: Modern
    session: Handshake
    listening: Listening
    stream: Stream

    @property
    def counts(self) -> tuple[int, int]:
        """How often each was cued."""
        return self.listening.cues.count(LISTENED), self.stream.cues.count(SUBSCRIBED)

    async def cued_after(self, counts: tuple[int, int], seconds: float) -> None:
        """Wait until both were cued again since `counts`."""
        await until(
            lambda: all(now > then for now, then in zip(self.counts, counts, strict=True)),
            lambda: f"both cued again: {counts} -> {self.counts}\n{self.listening!r}\n{self.stream!r}",
            seconds,
        )

    async def read(self) -> str:
        """Return what both URIs hold, each read as its era does."""
        text = str((await self.modern.read(LISTENED))[0]["text"])
        assert (await self.session.read(SUBSCRIBED))[0]["text"] == text
        return text


@pytest.fixture
async def bench(
    own_redis: RedisServer,
    proxy: FaultProxy,
    prefix: str,
    new_fleet: Callable[..., Fleet],
    http: httpx.AsyncClient,
) -> AsyncIterator[Bench]:
    """Give all that a repair test needs."""
    async with Publisher(own_redis.url, tenant=TENANT, prefix=prefix) as publisher:
        yield Bench(own_redis, proxy, prefix, new_fleet, publisher, http)
