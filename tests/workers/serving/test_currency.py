"""Nothing stale follows a cue, and a stampede costs next to nothing."""

import asyncio
import json
from collections import Counter

import httpx

from tests.support.mcp import MODERN, Modern
from tests.support.replica import Fleet
from tests.workers.serving.conftest import serve
from workers import Publisher
from workers.worker import Worker

CLIENTS = 2000


class Versions:
    """A worker whose resource says its version, which is kept for `ttl` seconds by whoever has read it."""

    def __init__(self, tenant: str, ttl: float) -> None:
        self.version = 0
        self.executions: Counter[int] = Counter()
        self.worker = Worker("versions", tenant=tenant)

        @self.worker.resource("version://now", ttl=ttl)
        async def now() -> str:
            self.executions[self.version] += 1
            version = self.version
            await asyncio.sleep(0.01)
            return str(version)


async def test_what_is_read_after_a_cue_is_never_older_than_the_touch_on_any_replica(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """The results are kept for a minute; only the revision makes them old."""
    versions = Versions(tenant, ttl=60)
    clients = [Modern(replica.url, tenant, http) for replica in fleet.replicas]
    uri = "version://now"
    async with (
        Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher,
        serve(fleet, versions.worker),
        await clients[0].listen([uri]) as listening,
    ):
        # Who reads all the time, so that executions are under way whenever it changes.
        over = asyncio.Event()

        async def read_on(client: Modern) -> None:
            while not over.is_set():
                await client.read(uri)

        busy = [asyncio.create_task(read_on(client)) for client in clients for _ in range(3)]
        for version in range(1, 31):
            versions.version = version
            await publisher.touch(uri)
            await listening.cue(uri, version)
            reads = await asyncio.gather(*(client.read(uri) for client in clients for _ in range(3)))
            assert {read[0]["text"] for read in reads} == {str(version)}
        over.set()
        await asyncio.gather(*busy)
        # Kept, where nothing changes.
        before = versions.executions.total()
        for _ in range(10):
            await clients[1].read(uri)
        assert versions.executions.total() == before


async def test_a_stampede_after_a_cue_costs_at_most_two_executions_a_replica(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    versions = Versions(tenant, ttl=1)
    uri = "version://now"
    request = _request(uri, tenant)
    doors = [("127.0.0.1", replica.port) for replica in fleet.replicas]
    async with (
        Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher,
        serve(fleet, versions.worker),
        await Modern(fleet[0].url, tenant, http).listen([uri]) as listening,
    ):
        opened = [await asyncio.open_connection(*doors[each % len(doors)]) for each in range(CLIENTS)]
        try:
            versions.version = 1
            await publisher.touch(uri)
            await listening.cue(uri)
            for _, writer in opened:
                writer.write(request)
            answers = await asyncio.gather(*(_answer(reader) for reader, _ in opened))
        finally:
            for _, writer in opened:
                writer.close()
    assert Counter(answers) == {"1": CLIENTS}
    assert versions.executions[1] <= 2 * len(fleet.replicas)


def _request(uri: str, tenant: str) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"uri": uri, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n"
        f"content-type: application/json\r\nbroker-tenant: {tenant}\r\nmcp-protocol-version: {MODERN}\r\n"
        f"mcp-method: resources/read\r\nmcp-name: {uri}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> str:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = json.loads(await reader.readexactly(length))
    return str(body["result"]["contents"][0]["text"] if "result" in body else body)
