"""A replica whose Redis can be hurt, and who watches there in both eras."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest

from broker.store.keys import Keys
from tests.support.fault_proxy import FaultProxy
from tests.support.mcp import Handshake, Listening, Modern, Stream
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.rollback import Snapshot
from tests.support.wait import until
from workers import Publisher

TENANT = "acme"


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

    def run(self, *command: str) -> object:
        """Run a Redis command; the words `LOG` and `HEAD` stand for those keys."""
        words = [{"LOG": self.log, "HEAD": self.head}.get(word, word) for word in command]
        with self.redis.client() as client:
            return cast("Any", client).execute_command(*words)

    async def watch(self, url: str, uri: str) -> "Watch":
        """Open a listen stream and a session's stream that watch one URI."""
        modern = Modern(url, TENANT, self.http)
        session = Handshake(url, TENANT, self.http)
        await session.initialize()
        await session.subscribe(uri)
        return Watch(uri, modern, session, await modern.listen([uri]), await session.get_stream())


@dataclass
class Watch:
    """One URI watched in both eras."""

    uri: str
    modern: Modern
    session: Handshake
    listening: Listening
    stream: Stream

    @property
    def counts(self) -> tuple[int, int]:
        """How often each was cued."""
        return self.listening.cues.count(self.uri), self.stream.cues.count(self.uri)

    async def cued_after(self, counts: tuple[int, int], seconds: float) -> None:
        """Wait until both were cued again since `counts`."""
        await until(
            lambda: all(now > then for now, then in zip(self.counts, counts, strict=True)),
            lambda: f"both cued again: {counts} -> {self.counts}\n{self.listening!r}\n{self.stream!r}",
            seconds,
        )

    async def read(self) -> str:
        return str((await self.modern.read(self.uri))[0]["text"])


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
