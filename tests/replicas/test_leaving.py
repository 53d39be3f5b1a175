"""Leaving is graceful and bounded: no failed request, no lost change (promise 9)."""

import asyncio
import random
from collections.abc import Callable

import httpx
import pytest

from tests.replicas.conftest import TENANT, Bench
from tests.support.follower import Follower, close_all
from tests.support.mcp import Handshake, Modern
from tests.support.wait import until

URI = "docs://guide"


async def test_a_leaving_replica_ends_its_streams_in_the_words_of_each_era(bench: Bench) -> None:
    fleet = bench.fleet()
    watch = await bench.watch(fleet.url)
    await bench.publish("one")
    await watch.cued_after((0, 0), 5)
    code = await asyncio.to_thread(fleet[0].leave)
    assert code == 0
    assert await watch.listening.end() == "clean"
    assert await watch.stream.end() == "clean"
    assert watch.listening.result is not None
    assert watch.listening.result["resultType"] == "complete"
    retry = [frame.retry for frame in watch.stream.frames if frame.retry is not None]
    assert len(retry) == 2, "the priming event's retry, and a jittered one at the end"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("pairs", "pause"), [(3, 0.02), pytest.param(100, 0.05, marks=pytest.mark.full)], ids=["3", "100"]
)
async def test_a_rolling_update_fails_no_request_and_loses_no_change(
    bench: Bench, http: httpx.AsyncClient, pairs: int, pause: float
) -> None:
    """Three replicas leave and come back one by one, under requests and publishes, behind the balancer.

    `pairs` clients of each era; a publish every `pause` seconds.
    """
    fleet = bench.fleet(3)
    rng = random.Random(7)
    eras: list[type[Handshake | Modern]] = [Handshake, Modern] * pairs
    # Before the others all come at once: an initialize may be told to come again, and nothing of it is lost.
    session = Handshake(fleet.url, TENANT, http)
    await session.initialize()
    followers = [
        Follower(era, lambda: [fleet.url], TENANT, [URI], http=http, rng=random.Random(rng.random()))
        for era in eras
    ]
    asking = asyncio.create_task(_ask_on_and_on(Modern(fleet.url, TENANT, http), session))
    try:
        await until(lambda: all(f.is_idle for f in followers), lambda: f"idle {followers}", 60)
        for follower in followers:
            follower.failures.clear()  # what was refused in that rush, before anybody left
        number = 0
        for replica in fleet.replicas:
            leaving = asyncio.create_task(asyncio.to_thread(replica.leave))
            fleet.balancer.replicas.remove(replica.address)
            while not leaving.done():
                number += 1
                await bench.publisher.publish(URI, str(number))
                await asyncio.sleep(pause)
            assert await leaving == 0
            await asyncio.to_thread(replica.start)
            fleet.balancer.replicas.append(replica.address)
        await until(_all_know(followers, str(number)), lambda: f"{number} known to {followers}", 60)
        assert not asking.done(), asking.exception()
    finally:
        asking.cancel()
        await close_all(followers)
    for follower in followers:
        # A session outlives the replicas that served it; a listen is opened again.
        assert follower.failures == [], f"{follower!r} {follower.failures}"
        assert follower.starts == 1 or follower.era is Modern, f"{follower!r} lost its session"


def _all_know(followers: list[Follower], text: str) -> Callable[[], bool]:
    def condition() -> bool:
        for follower in followers:
            follower.check()
        return all(follower.known.get(URI) == text for follower in followers)

    return condition


async def _ask_on_and_on(modern: Modern, session: Handshake) -> None:
    """Ask in both eras until cancelled; any failure ends this task with it."""
    while True:
        await modern.ask("resources/list")
        await session.ask("ping")
        await asyncio.sleep(0.01)
