"""Our broker as a target: real replicas, real Redis, API keys, quotas and keep-alives, all in the path.

Publishes are the product's own script calls, written beforehand as Redis commands, so that the load generator
sends what a publisher would and the publisher's own CPU is nobody's.
"""

import asyncio
import contextlib
import functools
import itertools
import secrets
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from broker.core.access import PUBLISH, READ
from broker.core.identity import ResourceKey, TenantId
from broker.core.publication import describe
from broker.store import publishing
from broker.store.client import Connect, commands
from broker.store.control import Control
from broker.store.keys import Keys
from broker.store.scripts import script
from tests.bench import plan
from tests.bench.host import tree
from tests.bench.plan import Audience, Record
from tests.bench.sessions import Wanted, open_sessions
from tests.bench.target import WARM_STREAMS, Books, Target
from tests.support.process import Process
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet, Replica
from tests.support.wait import until

MANY = "10000000"
LIMITS = {
    f"BROKER_QUOTA__{name}": MANY
    for name in (
        *("STREAMS", "SESSIONS", "URIS", "RESOURCES", "READS", "PRINCIPAL_STREAMS", "PRINCIPAL_SESSIONS"),
        *("PRINCIPAL_READS", "STREAM_URIS"),
    )
}
"""Quotas are counted and never reached."""
SETTINGS = {
    **LIMITS,
    "BROKER_AUTH__MODE": "keys",
    "BROKER_HTTP__BACKLOG": "4096",
    "BROKER_LOG__LEVEL": "warning",
}


def writer(name: str) -> Mapping[str, str]:
    """Return the setting that chooses a way to the socket."""
    return {"BROKER_STREAM__WRITER": name}


def counters(replica: Replica) -> dict[str, float]:
    """Return a replica's metrics without their labels, summed up."""
    status, text = replica.health("metrics")
    assert status == 200, text
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


def batched(items: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the items, `size` at a time."""
    rest = iter(items)
    while some := list(itertools.islice(rest, size)):
        yield some


def skip_reply(replies: BinaryIO) -> None:
    """Read one reply of Redis.

    Raises:
        AssertionError: it is an error.
    """
    line = replies.readline()
    assert line, "Redis closed the connection"
    assert line[:1] != b"-", line
    if line[:1] == b"$" and int(line[1:]) >= 0:
        replies.read(int(line[1:]) + 2)
    elif line[:1] == b"*":
        for _ in range(int(line[1:])):
            skip_reply(replies)


@dataclass
class Installation:
    """A running broker with its tenants: what scenarios without streams use directly."""

    redis: RedisServer
    fleet: Fleet
    keys: Keys
    tenants: list[TenantId]
    tokens: list[str]

    def credential(self, tenant: int) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[tenant]}"}

    @property
    def doors(self) -> list[str]:
        return [f"127.0.0.1:{replica.port}" for replica in self.fleet.replicas]

    @property
    def servers(self) -> list[int]:
        return [pid for replica in self.fleet.replicas for pid in tree(replica.process.pid)]

    @property
    def stores(self) -> list[int]:
        return tree(self.redis.process.pid)

    def books(self, *, has_sessions: bool = False) -> Books:
        """Return what was counted here: cues and, where no session adds to them, the log's entries."""
        found = {"told": 0.0, "coalesced": 0.0}
        for replica in self.fleet.replicas:
            counted = counters(replica)
            found["told"] += counted["broker_cues_written_total"]
            found["coalesced"] += counted["broker_cues_coalesced_total"]
        if not has_sessions:
            with self.redis.client() as client:
                found["changes"] = float(cast("Any", client).hget(self.keys.head(0), "n") or 0)
        return found

    def send(self, commands: Iterable[bytes]) -> None:
        """Send Redis commands in their wire form, many at once, and fail unless each is answered well."""
        with socket.create_connection(self.redis.address) as connection:
            replies = connection.makefile("rb")
            for some in batched(commands, 500):
                connection.sendall(b"".join(some))
                for _ in some:
                    skip_reply(replies)


@contextlib.asynccontextmanager
async def installation(
    replicas: int = 1, tenants: int = 1, settings: Mapping[str, str] | None = None
) -> AsyncGenerator[Installation]:
    """Run Redis and replicas, with an API key for each tenant."""
    prefix = f"bench{secrets.token_hex(3)}"
    with RedisServer() as redis, Fleet(redis.url, prefix, **SETTINGS, **(settings or {})) as fleet:
        await asyncio.to_thread(fleet.add, replicas)
        keys = Keys(prefix)
        client = commands(Connect(redis.url, keys))
        control = Control(client, keys)
        names = [f"tenant-{number}" for number in range(tenants)]
        tokens: list[str] = []
        for name in names:
            tenant = await control.create("bench", name)
            key, _ = await control.new_key("bench", tenant.id, "both", [READ, PUBLISH])
            tokens.append(key.text)
        cast("Any", redis.client()).script_load(script("publish").source)
        await client.aclose()
        yield Installation(redis, fleet, keys, [TenantId(name) for name in names], tokens)


@dataclass
class Broker:
    """A system: `replicas` of ours, told by one era's streams."""

    name: str
    era: str = "modern"
    replicas: int = 1
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    readers: int = 0
    """More replicas that only tail; only Redis' CPU is meant to notice them."""
    is_paced: bool = True

    @contextlib.asynccontextmanager
    async def running(self, audience: Audience) -> AsyncGenerator[Target]:
        """Run the replicas and open what sessions they need."""
        async with (
            installation(self.replicas, audience.tenants, self.settings) as running,
            self._reading(running),
        ):
            numbers = itertools.count()
            sessions: list[str] = []

            async def prepares(topics: Sequence[int]) -> None:
                await asyncio.to_thread(running.send, (publishes(topic).data for topic in topics))
                if self.era == "handshake":
                    sessions.extend(await open_sessions(running.doors, self._wanted(audience, running)))

            def opens(stream: int, first: int) -> Record:
                place = self._watched(audience, stream, first)
                headers = running.credential(place.tenant)
                if sessions:
                    headers |= {"mcp-session-id": sessions[stream], "mcp-protocol-version": "2025-11-25"}
                    data = plan.get("/mcp", headers)
                else:
                    uris = [plan.uri(place.uri + k) for k in range(audience.each)]
                    data = plan.listen(uris, stream + 1, headers)
                topic = audience.topic(place) if first < 0 else audience.topics
                return Record(topic, place.uri, audience.each, 0 if sessions else stream + 1, data)

            def publishes(topic: int) -> Record:
                place = audience.place(topic)
                key = ResourceKey(running.tenants[place.tenant], plan.uri(place.uri))
                contents = f"{next(numbers)} " + "what it says now; " * 10
                call = publishing.publish(running.keys, describe(key, contents))
                return Record(topic, place.uri, 1, 0, plan.resp("EVALSHA", *call.command))

            yield Target(
                doors=running.doors,
                publisher=f"127.0.0.1:{running.redis.port}",
                servers=running.servers,
                stores=running.stores,
                opens=opens,
                publishes=publishes,
                ready="body" if self.era == "handshake" else "acknowledged",
                coalesces=True,
                prepares=prepares,
                books=functools.partial(running.books, has_sessions=self.era == "handshake"),
            )

    @contextlib.asynccontextmanager
    async def _reading(self, running: Installation) -> AsyncGenerator[None]:
        """Run the readers beside the replicas."""
        if not self.readers:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="mrb-bench-") as folder:
            ready = Path(folder) / "ready"
            place = [running.redis.url, running.fleet.prefix, str(self.readers), str(ready)]
            argv = [sys.executable, "-m", "tests.bench.programs.readers", *place]
            process = Process(
                "readers", argv + ([] if self.is_paced else ["--unpaced"]), Path(folder) / "log"
            )
            process.start()
            try:
                await until(ready.exists, lambda: f"the readers stand\n{process.tail()}", 60)
                # The pace follows how many there are, which a heartbeat tells each second.
                everybody = self.replicas + self.readers
                await until(lambda: self._counted(running) == everybody, "all know of each other", 20)
                yield
            finally:
                process.kill()

    @staticmethod
    def _counted(running: Installation) -> float:
        return counters(running.fleet.replicas[0])["broker_replicas_alive"]

    def _wanted(self, audience: Audience, running: Installation) -> list[Wanted]:
        """Return what each session watches; those that warm up come last."""
        places = [self._watched(audience, stream, -1) for stream in range(audience.streams)]
        places += [plan.Place(0, audience.uris)] * WARM_STREAMS
        uris = [[plan.uri(place.uri + k) for k in range(audience.each)] for place in places]
        return [(running.credential(place.tenant), some) for place, some in zip(places, uris, strict=True)]

    @staticmethod
    def _watched(audience: Audience, stream: int, first: int) -> plan.Place:
        return audience.watched(stream) if first < 0 else plan.Place(0, first)
