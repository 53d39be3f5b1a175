"""A replica refuses what would stay before it runs out of descriptors or memory (promise 10)."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from broker import shedding
from broker.core.errors import Overloaded
from broker.shedding import Bounds, Resources, Shedding
from tests.replicas.conftest import TENANT, Bench
from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.redis_server import RedisServer
from tests.support.replica import Replica
from tests.support.wait import until

URI = "docs://guide"
FEW = {"MODULE": "tests.support.few_descriptors", "DESCRIPTORS": "250"}


def _shedding(used: list[Resources], **bounds: float) -> Shedding:
    return Shedding(Bounds(Resources(1000, 1_000_000), **bounds), lambda: used[-1])


@pytest.mark.parametrize(
    ("over", "edge", "calm"),
    [
        (Resources(900, 0), Resources(860, 0), Resources(849, 0)),
        (Resources(0, 850_000), Resources(0, 801_000), Resources(0, 799_000)),
    ],
    ids=["descriptors", "memory"],
)
def test_shedding_begins_at_its_share_and_ends_well_below(
    over: Resources, edge: Resources, calm: Resources
) -> None:
    used = [edge]
    shedder = _shedding(used)
    shedder.look()
    shedder.check()
    used.append(over)
    shedder.look()
    with pytest.raises(Overloaded):
        shedder.check()
    assert "add replicas" in str(shedder.why)
    used.append(edge)
    shedder.look()
    assert shedder.why is not None, "at the edge it does not flicker"
    used.append(calm)
    shedder.look()
    shedder.check()


def test_without_limits_nothing_is_shed() -> None:
    shedder = Shedding(Bounds(Resources(None, None)), lambda: Resources(10**6, 10**12))
    shedder.look()
    shedder.check()


def test_a_process_knows_what_it_has_in_use() -> None:
    before = shedding.in_use()
    assert before.descriptors is not None
    assert before.memory is not None
    assert before.memory > 10_000_000
    with Path(__file__).open():
        during = shedding.in_use()
    assert during.descriptors == before.descriptors + 1


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "536870912\n", 536_870_912),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "536870912\n", 536_870_912),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("elsewhere", "1\n", None),
    ],
)
def test_the_memory_of_a_container_is_its_limit(
    tmp_path: Path, name: str, text: str, limit: int | None
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert shedding.container_memory(tmp_path) == limit


async def test_near_its_last_descriptor_a_replica_sends_new_streams_elsewhere_and_keeps_the_old(
    bench: Bench, http: httpx.AsyncClient
) -> None:
    fleet = bench.fleet(1, BROKER_SHED__DESCRIPTORS_SHARE="0.4", **FEW)
    replica = fleet[0]
    await bench.publisher.publish(URI, "0")
    client = Modern(replica.url, TENANT, http)
    async with Handshake(replica.url, TENANT, http) as session, AsyncExitStack() as streams:
        first = await streams.enter_async_context(await client.listen([URI]))
        refusal = await _open_until_refused(client, streams)
        assert (refusal.status, refusal.data) == (503, {"reason": "overloaded", "retryable": True})
        # The look that refuses is the one that tells balancers.
        status, page = await asyncio.to_thread(replica.health, "readyz")
        assert (status, "descriptors are open" in page) == (503, True)
        # Requests that end at once are answered, in both eras; what would stay is refused in the era's form.
        assert (await client.read(URI))[0]["text"] == "0"
        assert (await session.read(URI))[0]["text"] == "0"
        with pytest.raises(RpcError, match="no room"):
            await session.get_stream()
        with pytest.raises(RpcError, match="no room"):
            await Handshake(replica.url, TENANT, http).initialize()
        # And whoever is there is told.
        await bench.publisher.publish(URI, "1")
        await first.cue(URI)
    await until(lambda: asyncio.to_thread(replica.is_ready), "ready again", 10)
    async with await client.listen([URI]):
        pass
    assert 'broker_requests_refused_total{reason="overloaded"}' in (await _metrics(replica))


async def _open_until_refused(client: Modern, streams: AsyncExitStack) -> RpcError:
    for _ in range(250):
        try:
            await streams.enter_async_context(await client.listen([URI]))
        except RpcError as error:
            return error
    raise AssertionError("nothing was ever refused")


async def test_a_connection_too_many_is_told_so_and_redis_and_health_keep_their_descriptors(
    bench: Bench, http: httpx.AsyncClient
) -> None:
    fleet = bench.fleet(1, BROKER_SHED__DESCRIPTORS_SHARE="1", **FEW)
    replica = fleet[0]
    client = Modern(replica.url, TENANT, http)
    await bench.publisher.publish(URI, "0")
    assert (await client.read(URI))[0]["text"] == "0"
    connections = [await asyncio.open_connection(*replica.address) for _ in range(300)]
    try:
        answers = [await _said_at_once(reader) for reader, _ in connections[-100:]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in answer for answer in answers)
        # On the connection that it has, the client sees the broker connect to Redis again.
        await asyncio.to_thread(_cut, bench.redis)
        await until(lambda: _reads(client), "a read on a new connection to Redis", 10)
        assert (await asyncio.to_thread(replica.health, "livez"))[0] == 200
    finally:
        for _, writer in connections:
            writer.close()
    await until(lambda: _connects(replica), "a new connection is served", 10)
    assert "broker_connections_refused_total 1" in (await _metrics(replica))


def _cut(server: RedisServer) -> None:
    with server.client() as redis:
        cast("Any", redis).client_kill_filter(_type="normal", skipme=True)


async def _said_at_once(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return await reader.read()


async def _reads(client: Modern) -> bool:
    try:
        return (await client.read(URI))[0]["text"] == "0"
    except RpcError:
        return False


async def _connects(replica: Replica) -> bool:
    async with Modern(replica.url, TENANT) as client:
        try:
            return await client.discover() != {}
        except (httpx.HTTPError, RpcError):
            return False


async def _metrics(replica: Replica) -> str:
    return (await asyncio.to_thread(replica.health, "metrics"))[1]
