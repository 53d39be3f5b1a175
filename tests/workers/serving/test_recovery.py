"""Serving goes on through a Redis that forgets or goes away, through leaving, and beside another release."""

import asyncio
import json
import signal
import time
from typing import Any, cast

import httpx

from broker.core.identity import Principal, ResourceKey, TenantId
from broker.replica import Pace, Replica
from broker.store import resources
from broker.store.client import Connect
from broker.store.keys import Keys
from broker.wire import cue
from tests.support.mcp import Modern, RpcError
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.workers.serving.conftest import serve
from tests.workers.serving.processes import Workers
from workers import Context, Worker
from workers.calling import ServingRules
from workers.ending import end
from workers.serving import serving


def echo(name: str, tenant: str) -> Worker:
    worker = Worker(name, tenant=tenant)

    @worker.resource("fixed://one")
    def one() -> str:
        return "one"

    @worker.resource("shaped://{part}")
    def shaped(part: str) -> str:
        return part

    return worker


async def test_a_redis_that_forgot_everything_or_went_away_is_told_everything_again(
    own_redis: RedisServer, tenant: str, http: httpx.AsyncClient
) -> None:
    with Fleet(own_redis.url, "mrb") as fleet:
        await asyncio.to_thread(fleet.add, 1)
        client = Modern(fleet[0].url, tenant, http)

        async def reads() -> bool:
            try:
                texts = [(await client.read(uri))[0]["text"] for uri in ("fixed://one", "shaped://x")]
            except RpcError:
                return False
            return texts == ["one", "x"]

        async with serve(fleet, echo("echo", tenant)):
            assert await reads()
            with own_redis.client() as redis:
                cast("Any", redis).flushall()
            await until(reads, "reads after FLUSHALL", 15)
            await asyncio.to_thread(own_redis.restart, keep_data=False)
            await until(reads, "reads after a restart without data", 20)
            own_redis.pause()
            await asyncio.sleep(3)  # longer than any timeout of ours
            own_redis.resume()
            await until(reads, "reads after a pause", 15)


async def test_a_worker_that_is_asked_to_leave_finishes_what_it_has_taken(
    redis_server: RedisServer, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    client = Modern(fleet[0].url, tenant, http)
    name = Keys(fleet.prefix).calls(TenantId(tenant), "squares")

    def pending() -> int:
        with redis_server.client() as redis:
            return int(cast("Any", redis).xpending(name, "workers")["pending"])

    async def answers() -> bool:
        try:
            return bool(await client.read("square://1"))
        except RpcError:
            return False

    with Workers(fleet, "squares", tenant) as workers:
        process = workers.start()
        await until(answers, lambda: "\n".join(workers.logs()), 20)
        reads = [asyncio.create_task(client.read(f"slow://{number}")) for number in range(10)]
        await until(lambda: pending() == 10, "ten calls taken")
        process.send(signal.SIGTERM)
        assert [int((await read)[0]["text"].split()[0]) for read in reads] == list(range(10))
        assert await asyncio.to_thread(process.wait, 10) == 0
        with redis_server.client() as redis:
            assert cast("Any", redis).xinfo_consumers(name, "workers") == []
        started = time.monotonic()
        assert not await answers()
        assert time.monotonic() - started < 1


async def test_a_result_that_depends_on_the_caller_is_never_shared_with_another(
    redis_server: RedisServer, prefix: str, tenant: str
) -> None:
    """A replica in this process, since the open mode knows one subject only."""
    worker = Worker("mirror", tenant=tenant)

    @worker.resource("whoami://me", ttl=60)
    async def me(ctx: Context) -> str:
        await asyncio.sleep(0.01)
        return ctx.subject

    how = Connect(redis_server.url, Keys(prefix))
    replica = Replica(how, cue.encode, Pace())
    running = asyncio.create_task(replica.run())
    key = ResourceKey(TenantId(tenant), "whoami://me")

    async def read(subject: str) -> tuple[str, str]:
        who = Principal(TenantId(tenant), subject)
        [found] = await resources.look(replica.redis, how.keys, [key])
        assert isinstance(found, resources.Found)
        callback = await replica.callbacks.find(who, key.uri, found)
        assert callback is not None
        reading = await replica.callbacks.read(who, key.uri, callback, found.stamp)
        return json.loads(reading.contents)[0]["text"], reading.cache_scope

    try:
        async with serving(worker, url=redis_server.url, prefix=prefix):
            subjects = [f"subject-{number % 5}" for number in range(50)]
            for _ in range(2):
                answers = await asyncio.gather(*map(read, subjects))
                assert answers == [(subject, "private") for subject in subjects]
            assert replica.calls.is_idle
            assert replica.calls.shared.kept == 5
    finally:
        await end([running])


async def test_no_more_calls_run_at_once_than_a_process_takes(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("narrow", tenant=tenant)
    running, most = 0, 0

    @worker.resource("narrow://{number}")
    async def narrow(number: int) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return str(number)

    client = Modern(fleet[0].url, tenant, http)
    rules = ServingRules(concurrency=3, per_tenant=3)
    async with serving(worker, url=fleet.redis_url, prefix=fleet.prefix, rules=rules):
        texts = await asyncio.gather(*(client.read(f"narrow://{number}") for number in range(30)))
    assert [text[0]["text"] for text in texts] == [str(number) for number in range(30)]
    assert most == 3


async def test_a_call_that_one_process_cannot_know_is_answered_by_the_one_that_does(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """During a rolling update processes of two releases are one group, with different declarations."""
    old, new = echo("app", tenant), echo("app", tenant)

    @new.resource("added://{part}")
    def added(part: str) -> str:
        return part

    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, old) as first, serve(fleet, new) as second:
        for server in (*first, *second):
            await until(lambda server=server: server.others == 1, "each knows of the other")
        texts = await asyncio.gather(*(client.read(f"added://{number}") for number in range(12)))
        assert [text[0]["text"] for text in texts] == [str(number) for number in range(12)]
