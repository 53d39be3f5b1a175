"""What others write into a group's streams, forge or lose stops neither workers nor replicas."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from broker.core.declaration import Contents, Failure, decode_result, encode_result
from broker.core.identity import TenantId
from broker.store.keys import Keys
from tests.support.mcp import Modern, RpcError
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.workers.serving.conftest import serve
from workers import Worker
from workers.calling import ServingRules
from workers.serving import serving

POISON: list[dict[str, str | bytes]] = [
    {"x": "y"},
    {"c": "1", "q": "{}", "r": "r", "b": "soon"},
    {"c": "2", "q": b"\xff\x00", "r": "nobody", "b": "9000"},
    {"c": "3", "q": "[" * 50_000, "r": "nobody", "b": "9000"},
    {"c": "4", "q": '{"kind":"read","declared":{},"uri":5,"tenant":"t","subject":"","scopes":null,'
     '"deadline":"x"}', "r": "nobody", "b": "9000"},
    {"c": "5", "q": "x" * 5_000_000, "r": "nobody", "b": "9000"},
    {"c": b"\xff", "q": "{}", "r": "r", "b": "1"},
]  # fmt: skip


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator[Any]:
    """Give a client that writes what it likes."""
    with redis_server.client() as client:
        yield cast("Any", client)


def echo(tenant: str) -> Worker:
    worker = Worker("echo", tenant=tenant)

    @worker.resource("echo://{part}", list=lambda: ["echo://1"])
    def part(part: str) -> str:
        return part

    return worker


async def text(client: Modern, uri: str) -> str:
    return (await client.read(uri))[0]["text"]


async def test_a_malformed_call_stops_no_worker_and_leaves_nothing_behind(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    """One entry without its fields ended the process, and each one that was started after it."""
    keys, client = Keys(fleet.prefix), Modern(fleet[0].url, tenant, http)
    calls = keys.calls(TenantId(tenant), "echo")
    notes = keys.notes(TenantId(tenant), "echo")
    async with serve(fleet, echo(tenant)) as [server]:
        for fields in POISON:
            raw.xadd(calls, fields)
        for note in ({"k": "x"}, {"k": "x", "c": b"\xff"}, {"z": "1"}):
            raw.xadd(notes, note)
        assert await text(client, "echo://1") == "1"
        await until(lambda: raw.xlen(calls) == 0, "an empty stream")
        assert raw.xpending(calls, "workers")["pending"] == 0
        dead = asyncio.create_task(server.ended())
        assert await text(client, "echo://2") == "2"
        assert not dead.done()
        dead.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dead
    raw.delete(keys.inbox("nobody"), keys.inbox("r"))


async def test_a_malformed_call_that_a_dead_worker_held_stops_nobody_either(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    keys, client = Keys(fleet.prefix), Modern(fleet[0].url, tenant, http)
    calls = keys.calls(TenantId(tenant), "echo")
    async with serve(fleet, echo(tenant)):
        pass
    raw.xadd(calls, {"x": "y"})
    raw.xreadgroup("workers", "dead", {calls: ">"})
    async with serve(fleet, echo(tenant)):
        await until(lambda: raw.xpending(calls, "workers")["pending"] == 0, "nothing is pending")
        assert await text(client, "echo://1") == "1"


async def test_forged_and_malformed_answers_hold_up_no_real_one(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    """An answer without a call's name was met again and again, and none behind it was ever delivered."""
    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, echo(tenant)):
        assert await text(client, "echo://0") == "0"
        inboxes = [*raw.scan_iter(match=f"{fleet.prefix}:*:inbox:*")]
        assert inboxes
        for name in inboxes:
            raw.xadd(name, {"x": "y"})
            raw.xadd(name, {"c": "unknown", "v": b"Cforged"})
            raw.xadd(name, {"c": "unknown"})
            raw.xadd(name, {"c": b"\xff", "v": b"\xff"})
        for number in range(5):
            assert await text(client, f"echo://{number}") == str(number)


async def test_a_late_or_repeated_answer_changes_nothing(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    client = Modern(fleet[0].url, tenant, http)
    seen: list[str] = []
    worker = Worker("echo", tenant=tenant)

    @worker.resource("once://{part}")
    async def part(part: str) -> str:
        [entry] = raw.xrange(Keys(fleet.prefix).calls(TenantId(tenant), "echo"))
        seen.append(entry[1][b"c"].decode())
        return part

    async with serve(fleet, worker):
        assert await text(client, "once://1") == "1"
        for name in raw.scan_iter(match=f"{fleet.prefix}:*:inbox:*"):
            for _ in range(3):
                raw.xadd(name, {"c": seen[0], "v": b"C[]"})
        assert await text(client, "once://2") == "2"


async def test_an_answer_that_a_trimmed_inbox_lost_is_late_and_not_wrong(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    client = Modern(hasty_fleet[0].url, tenant, http)
    worker = Worker("echo", tenant=tenant)
    calls = Keys(hasty_fleet.prefix).calls(TenantId(tenant), "echo")

    @worker.resource("lost://{part}")
    async def part(part: str) -> str:
        if part == "lost":
            # Its entry goes as if somebody had trimmed it: done, and the answer nowhere.
            [entry] = raw.xrange(calls)
            raw.xadd("lost-inbox", {"x": "y"})
            raw.delete("lost-inbox")
            raw.xdel(calls, entry[0])
            await asyncio.Event().wait()
        return part

    async with serve(hasty_fleet, worker):
        with pytest.raises(RpcError) as error:
            await client.read("lost://lost")
        assert error.value.data["reason"] == "worker_late"
        assert await text(client, "lost://1") == "1"
        await until(lambda: raw.xpending(calls, "workers")["pending"] == 0, "nothing is pending")


class Occupied:
    """A fleet's only worker, whose only place is taken: calls wait for the test to take them by hand."""

    def __init__(self, fleet: Fleet, tenant: str, raw: Any) -> None:
        self.name = Keys(fleet.prefix).calls(TenantId(tenant), "occupied")
        self.inbox = ""
        self.worker = Worker("occupied", tenant=tenant)
        self.executed: list[str] = []
        self.go = asyncio.Event()
        self._raw = raw
        self._keys = Keys(fleet.prefix)

        @self.worker.resource("held://{part}")
        async def part(part: str) -> str:
            self.executed.append(part)
            if part == "first":
                await self.go.wait()
            return part

    async def occupy(self, client: Modern) -> "asyncio.Task[str]":
        reading = asyncio.create_task(text(client, "held://first"))
        await until(lambda: self.executed == ["first"], "the place is taken")
        return reading

    async def take(self) -> tuple[bytes, str]:
        """Take the next call as a process that dies of it; returns its entry and its id."""

        def taken() -> Any:
            return self._raw.xreadgroup("workers", "dead", {self.name: ">"}, count=1)

        [[_, [[entry, fields]]]] = await until(taken, "a call")
        self.inbox = self._keys.inbox(fields[b"r"].decode())
        return entry, fields[b"c"].decode()

    def letter(self, call: str, part: str) -> dict[str, str | bytes]:
        body = b'[{"uri":"held://%b","text":"%b"}]' % (part.encode(), part.encode())
        return {"c": call, "v": encode_result(Contents(body))}

    def pending(self) -> tuple[int, int]:
        return self._raw.xlen(self.name), self._raw.xpending(self.name, "workers")["pending"]


ONE_PLACE = ServingRules(concurrency=1)


async def test_a_worker_killed_between_its_answer_and_its_acknowledgement_has_it_done_twice_and_told_once(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    client, occupied = Modern(fleet[0].url, tenant, http), Occupied(fleet, tenant, raw)
    async with serving(occupied.worker, url=fleet.redis_url, prefix=fleet.prefix, rules=ONE_PLACE):
        first = await occupied.occupy(client)
        reading = asyncio.create_task(text(client, "held://twice"))
        entry, call = await occupied.take()
        raw.xadd(occupied.inbox, occupied.letter(call, "twice"))
        assert await reading == "twice"
        # Here it dies: answered, never acknowledged. It has been silent for long enough.
        raw.xclaim(occupied.name, "workers", "dead", 0, [entry], idle=60_000, justid=True)
        occupied.go.set()
        assert await first == "first"
        await until(lambda: occupied.pending() == (0, 0), "nothing pending")
        assert occupied.executed == ["first", "twice"]
        assert await text(client, "held://next") == "next"


async def test_an_inbox_trimmed_while_an_answer_is_on_its_way_costs_that_answer_and_no_other(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    client, occupied = Modern(hasty_fleet[0].url, tenant, http), Occupied(hasty_fleet, tenant, raw)
    how = {"url": hasty_fleet.redis_url, "prefix": hasty_fleet.prefix}
    async with serving(occupied.worker, **how, rules=ONE_PLACE):
        first = await occupied.occupy(client)
        reading = asyncio.create_task(text(client, "held://lost"))
        entry, call = await occupied.take()
        pipeline = raw.pipeline(transaction=True)
        pipeline.xadd(occupied.inbox, occupied.letter(call, "lost"))
        pipeline.xtrim(occupied.inbox, maxlen=0, approximate=False)
        pipeline.xack(occupied.name, "workers", entry)
        pipeline.xdel(occupied.name, entry)
        pipeline.execute()
        for late in (first, reading):
            with pytest.raises(RpcError) as error:
                await late
            assert error.value.data["reason"] == "worker_late"
        assert await text(client, "held://next") == "next"
        assert occupied.executed == ["first", "next"]
        await until(lambda: occupied.pending() == (0, 0), "nothing pending")


async def test_a_template_that_cannot_be_read_takes_no_other_away(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, raw: Any
) -> None:
    keys, client = Keys(fleet.prefix), Modern(fleet[0].url, tenant, http)
    raw.hset(keys.templates(TenantId(tenant)), "broken://{x}", b"group\nrubbish")
    async with serve(fleet, echo(tenant)):
        assert await text(client, "echo://1") == "1"
        assert "echo://1" in await client.list()


async def test_a_flush_amid_a_call_loses_no_worker(
    own_redis: RedisServer, tenant: str, http: httpx.AsyncClient
) -> None:
    began, go = asyncio.Event(), asyncio.Event()
    worker = Worker("echo", tenant=tenant)

    @worker.resource("held://{part}")
    async def part(part: str) -> str:
        began.set()
        await go.wait()
        return part

    with Fleet(own_redis.url, "mrb") as fleet:
        await asyncio.to_thread(fleet.add, 1)
        client = Modern(fleet[0].url, tenant, http)
        async with serve(fleet, worker):
            hurts: tuple[Any, ...] = (cast("Any", own_redis.client()).flushall, own_redis.restart)
            for hurt in hurts:
                began.clear()
                go.clear()
                reading = asyncio.create_task(text(client, "held://1"))
                await asyncio.wait_for(began.wait(), 10)
                await asyncio.to_thread(hurt)
                go.set()
                with contextlib.suppress(RpcError):
                    assert await reading == "1"

                async def reads() -> bool:
                    try:
                        return await text(client, "held://2") == "2"
                    except RpcError:
                        return False

                await until(reads, "reads again", 20)


def test_bytes_that_nest_without_end_are_no_result() -> None:
    with pytest.raises(ValueError, match="nested"):
        decode_result(b"F" + b"[" * 100_000)
    assert decode_result(b'F{"reason":"internal","message":""}') == Failure("internal", "")
