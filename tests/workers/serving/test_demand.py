"""A worker hears that somebody watches, and that nobody does any more; one process for each URI."""

import asyncio

import httpx

from tests.support.mcp import Handshake, Modern
from tests.support.replica import Fleet
from tests.support.wait import stays, until
from tests.workers.serving.conftest import serve
from tests.workers.serving.processes import Workers
from workers import Publisher
from workers.worker import Worker

LINGER = 1.5


class Poller:
    """A worker that polls while somebody watches."""

    def __init__(self, name: str, tenant: str) -> None:
        self.worker = Worker(name, tenant=tenant)
        self.polled: list[str] = []
        self.began: list[str] = []
        self.ended: list[str] = []

        @self.worker.resource("price://{symbol}")
        def price(symbol: str) -> str:
            return symbol

        @self.worker.on_watched("price://{symbol}")
        async def poll(uri: str) -> None:
            self.began.append(uri)
            self.polled.append(uri)
            try:
                await asyncio.Event().wait()
            finally:
                self.polled.remove(uri)

        @self.worker.on_unwatched("price://{symbol}")
        def end(uri: str) -> None:
            self.ended.append(uri)


async def test_a_job_polls_only_while_somebody_watches(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    poller = Poller("prices", tenant)
    modern = Modern(hasty_fleet[0].url, tenant, http)
    async with serve(hasty_fleet, poller.worker, linger=LINGER):
        async with await modern.listen(["price://a", "price://b", "other://c"]):
            await until(lambda: sorted(poller.polled) == ["price://a", "price://b"], "both polled")
            async with Handshake(hasty_fleet[1].url, tenant, http) as session:
                await session.get_stream()
                await session.subscribe("price://a")
        # The session's stream has ended with its client; the listen has, too.
        await until(lambda: not poller.polled, "nothing polled any more", 15)
        assert sorted(poller.ended) == ["price://a", "price://b"]
        assert sorted(poller.began) == ["price://a", "price://b"]


async def test_a_watcher_on_any_replica_keeps_it_alive(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    poller = Poller("prices", tenant)
    async with serve(hasty_fleet, poller.worker, linger=LINGER):
        first = await Modern(hasty_fleet[0].url, tenant, http).listen(["price://a"])
        await until(lambda: poller.polled, "polled")
        second = await Modern(hasty_fleet[1].url, tenant, http).listen(["price://a"])
        await first.close()
        await stays(lambda: poller.polled == ["price://a"], "one that polls", 2 * LINGER)
        await second.close()
        await until(lambda: not poller.polled, "nothing polled any more", 15)
    assert poller.began == poller.ended == ["price://a"]


async def test_one_process_tends_each_and_hands_over_when_it_leaves(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    one, two = Poller("prices", tenant), Poller("prices", tenant)
    uris = [f"price://{number:02}" for number in range(20)]
    client = Modern(hasty_fleet[0].url, tenant, http)
    async with serve(hasty_fleet, two.worker, linger=LINGER):
        async with serve(hasty_fleet, one.worker, linger=LINGER):
            listening = await client.listen(uris)
            await until(lambda: sorted(one.polled + two.polled) == uris, "each polled once")
            await stays(lambda: sorted(one.polled + two.polled) == uris, "each polled once", 1)
        await until(lambda: sorted(two.polled) == uris, "all polled by the one that is left")
        assert one.polled == []
        await listening.close()
        await until(lambda: not two.polled, "nothing polled any more", 15)


async def test_a_dead_workers_watched_uris_are_taken_over_by_another(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """The process publishes who it is while it is watched: each publish is a cue to read again."""
    client = Modern(fleet[0].url, tenant, http)
    async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
        with Workers(fleet, "ticker", tenant) as workers:
            workers.start()
            async with await client.listen(["tick://one"]):

                async def ticker() -> int:
                    stored = await publisher.read("tick://one")
                    return int(stored.contents.partition(b'"text":"')[2].partition(b'"')[0]) if stored else 0

                first = await until(ticker, lambda: "\n".join(workers.logs()), 20)
                assert first == workers.processes[0].pid
                workers.start()
                workers.processes[0].kill()

                async def is_taken_over() -> bool:
                    return await ticker() == workers.processes[1].pid

                await until(is_taken_over, lambda: "\n".join(workers.logs()), 25)


async def test_what_is_watched_already_is_told_to_a_worker_that_comes_later(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    poller = Poller("prices", tenant)
    async with await Modern(hasty_fleet[0].url, tenant, http).listen(["price://a"]):
        async with serve(hasty_fleet, poller.worker, linger=LINGER):
            await until(lambda: poller.polled == ["price://a"], "polled")
        assert poller.ended == ["price://a"]
