"""Redis down, away or deaf is a state, not a crash (promises 2, 10 and 12)."""

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.replicas.conftest import LISTENED, SUBSCRIBED, TENANT, Bench
from tests.support.fault_proxy import FaultProxy
from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.wait import stays, until, within
from workers import Publisher, StoreUnavailable, SyncPublisher

AFTER_ERROR = 5.0
"""Seconds: 2 s once Redis answers again after an error (promise 2), and some for a busy machine."""
AFTER_SILENCE = 7.0
"""Seconds: 4 s after a silent loss, and some for a busy machine."""


@pytest.mark.parametrize("fault", [FaultProxy.cut, FaultProxy.reset], ids=["closed", "reset"])
async def test_a_change_while_connections_break_is_told(
    bench: Bench, fault: Callable[[FaultProxy], None]
) -> None:
    fleet = bench.fleet()
    watch = await bench.watch(fleet.url)
    for number in range(5):
        counts = watch.counts
        fault(bench.proxy)
        await bench.publish(str(number))
        await watch.cued_after(counts, AFTER_ERROR)
        assert await watch.read() == str(number)


async def test_a_change_while_redis_refuses_is_told_when_it_answers(bench: Bench) -> None:
    fleet = bench.fleet()
    watch = await bench.watch(fleet.url)
    bench.proxy.refuse()
    bench.proxy.cut()
    await bench.publish("meanwhile")
    bench.proxy.pass_all()
    await watch.cued_after((0, 0), AFTER_ERROR)


@pytest.mark.parametrize("way", [{"up": False}, {"down": False}, {}], ids=["down", "up", "both"])
async def test_a_change_in_a_black_hole_is_told_when_it_ends(bench: Bench, way: dict[str, bool]) -> None:
    fleet = bench.fleet()
    watch = await bench.watch(fleet.url)
    bench.proxy.black_hole(**way)
    await bench.publish("meanwhile")
    bench.proxy.pass_all()
    await watch.cued_after((0, 0), AFTER_SILENCE)


async def test_a_reader_on_a_dead_end_connection_is_noticed(bench: Bench) -> None:
    """Its replies never come again, though commands are answered: the reader gets a new connection."""
    fleet = bench.fleet()
    watch = await bench.watch(fleet.url)
    bench.proxy.hold(b"XREAD")
    await until(lambda: bench.proxy.held, "a read held back")
    bench.proxy.forget()
    await bench.publish("meanwhile")
    await watch.cued_after((0, 0), AFTER_SILENCE)


async def test_a_restart_of_redis_is_survived(bench: Bench) -> None:
    fleet = bench.fleet()
    watch = await bench.watch(fleet.url)
    await asyncio.to_thread(bench.redis.restart)
    await bench.publish("after")
    await watch.cued_after((0, 0), AFTER_ERROR)
    assert watch.stream.ended is watch.listening.ended is None


async def test_a_restart_that_lost_everything_leaves_nobody_waiting(bench: Bench) -> None:
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    await asyncio.to_thread(bench.redis.restart, keep_data=False)
    await watch.listening.cue(LISTENED, 1, AFTER_ERROR)
    assert await watch.stream.end(AFTER_ERROR) == "clean"


async def test_while_redis_is_down_answers_are_fast_and_clear_and_streams_stay(bench: Bench) -> None:
    fleet = bench.fleet(BROKER_HTTP__KEEPALIVE_SECONDS="1")
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    await asyncio.to_thread(bench.redis.kill)
    await _refuses_clearly(watch.modern, watch.session)
    assert (await watch.modern.discover())["supportedVersions"] == ["2026-07-28"]
    known = len(watch.stream.frames), len(watch.listening.stream.frames)
    await until(
        lambda: len(watch.stream.frames) > known[0] and len(watch.listening.stream.frames) > known[1],
        "keep-alives on both streams",
    )
    assert fleet[0].health("livez")[0] == 200
    assert fleet[0].health("readyz")[0] == 200
    await asyncio.to_thread(bench.redis.start)
    counts = watch.counts
    await bench.publish("after")
    await watch.cued_after(counts, AFTER_ERROR)
    assert await watch.read() == "after"
    assert watch.stream.ended is watch.listening.ended is None


async def _refuses_clearly(modern: Modern, session: Handshake) -> None:
    """Each era says within a moment that the same request may be sent again."""
    for client, asked in (
        (modern, modern.read(LISTENED)),
        (session, session.read(SUBSCRIBED)),
        (session, session.subscribe("docs://new")),
        (modern, modern.ask("resources/list")),
    ):
        began = time.monotonic()
        with pytest.raises(RpcError) as caught:
            await asked
        assert time.monotonic() - began < 5
        assert caught.value.message.endswith("."), caught.value.message
        if client is session:
            # Any other status costs a 1.x client its whole session.
            assert caught.value.status == 200


async def test_a_redis_that_accepts_and_closes_is_away_and_not_an_endless_attempt(bench: Bench) -> None:
    """As a proxy in front of a dead Redis does it.

    The bug: the client's health check, on the way of connecting, connected again on the way of its retry, and
    so on: a publish never returned, and a replica lost its time to thousands of nested attempts.
    """
    await asyncio.to_thread(bench.redis.kill)
    url = bench.proxy.redis_url
    async with Publisher(url, tenant=TENANT, prefix=bench.prefix) as publisher:
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await within(publisher.publish(LISTENED, "x"), "an answer")
            assert time.monotonic() - began < 5
    with SyncPublisher(url, tenant=TENANT, prefix=bench.prefix) as sync, pytest.raises(StoreUnavailable):
        await within(asyncio.to_thread(sync.publish, LISTENED, "x"), "an answer")


async def test_a_stream_opened_while_redis_is_down_delivers_later(bench: Bench) -> None:
    """Decision 12: the GET is opened provisionally, since nobody can say yet whether the session lives."""
    fleet = bench.fleet()
    client = Handshake(fleet.url, TENANT, bench.http)
    await client.initialize()
    await client.subscribe(SUBSCRIBED)
    await asyncio.to_thread(bench.redis.kill)
    stream = await client.get_stream()
    await asyncio.to_thread(bench.redis.start)
    await bench.publish("after")
    await stream.cue(SUBSCRIBED, seconds=AFTER_SILENCE)


async def test_a_provisional_stream_of_an_unknown_session_is_ended_cleanly(bench: Bench) -> None:
    fleet = bench.fleet()
    client = Handshake(fleet.url, TENANT, bench.http)
    await client.initialize()
    client.session = client.session[:-4] + "AAAA"
    await asyncio.to_thread(bench.redis.kill)
    stream = await client.get_stream()
    await asyncio.to_thread(bench.redis.start)
    assert await stream.end(AFTER_SILENCE) == "clean"


async def test_a_replica_that_starts_without_redis_is_not_ready_and_becomes_so(bench: Bench) -> None:
    fleet = bench.fleet()
    bench.proxy.refuse()
    bench.proxy.cut()
    replica = fleet[0]
    await asyncio.to_thread(replica.kill)
    replica.launch()
    await until(lambda: replica.health("livez")[0] == 200, "alive", 30)
    status, why = await asyncio.to_thread(replica.health, "readyz")
    assert (status, "Redis" in why) == (503, True)
    bench.proxy.pass_all()
    await until(replica.is_ready, "ready", 30)


async def test_a_silent_redis_does_not_stop_other_answers(bench: Bench) -> None:
    """Paused: connections stay open and nothing comes. What needs no Redis is answered as ever."""
    fleet = bench.fleet()
    client = Modern(fleet.url, TENANT, bench.http)
    bench.redis.pause()
    try:
        reading = asyncio.create_task(client.read(LISTENED))
        for _ in range(5):
            began = time.monotonic()
            await client.discover()
            assert time.monotonic() - began < 1
        with pytest.raises(RpcError):
            await reading
        await stays(lambda: fleet[0].health("livez")[0] == 200, "alive", 0.5)
    finally:
        bench.redis.resume()
