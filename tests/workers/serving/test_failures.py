"""What goes wrong with a worker is told at once, in a sentence, and to nobody else."""

import asyncio
import logging
import time

import httpx
import pytest

from broker.core.errors import Conflict, NotFound
from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.replica import Fleet
from tests.workers.serving.conftest import serve
from workers.worker import Worker


async def refused(client: Modern | Handshake, uri: str) -> RpcError:
    with pytest.raises(RpcError) as error:
        await client.read(uri)
    return error.value


async def test_a_failing_function_tells_the_client_an_id_and_the_operator_everything(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker("broken", tenant=tenant)

    @worker.resource("broken://{part}")
    def broken(part: str) -> str:
        raise RuntimeError(f"secret detail of {part}")

    async with serve(fleet, worker), Handshake(fleet[1].url, tenant, http) as handshake:
        for client in (Modern(fleet[0].url, tenant, http), handshake):
            with caplog.at_level(logging.ERROR):
                error = await refused(client, "broken://pipe")
            assert (error.status, error.code) == (200, -32603)
            assert "secret" not in error.message
            call = error.message.rpartition("(")[2].rstrip(").")
            record = next(each for each in caplog.records if getattr(each, "call", "") == call)
            assert record.exc_info is not None
            assert "secret detail of pipe" in str(record.exc_info[1])


async def test_without_a_live_worker_a_read_is_refused_at_once_and_may_be_tried_again(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("away", tenant=tenant)

    @worker.resource("away://here")
    def here() -> str:
        return "here"

    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, worker):
        assert await client.read("away://here")
    assert await client.list() == ["away://here"]
    started = time.monotonic()
    error = await refused(client, "away://here")
    assert time.monotonic() - started < 1
    assert (error.code, error.data) == (-31503, {"reason": "worker_unavailable", "retryable": True})
    async with serve(fleet, worker):
        assert await client.read("away://here")


async def test_what_a_function_does_not_know_looks_exactly_like_what_nobody_declared(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("catalogue", tenant=tenant)

    @worker.resource("known://{name}")
    def known(name: str) -> str:
        raise NotFound(f"no {name} in the secret shelf")

    @worker.resource("files://{+path}")
    def files(path: str) -> str:
        return path

    async with serve(fleet, worker), Handshake(fleet[1].url, tenant, http) as handshake:
        for client in (Modern(fleet[0].url, tenant, http), handshake):
            unknown = await refused(client, "nowhere://a")
            for uri in ("known://a", "files://../../etc/passwd", "files://%2e%2e/x"):
                error = await refused(client, uri)
                assert (error.status, error.code) == (unknown.status, unknown.code)
                assert error.message == unknown.message.replace("nowhere://a", uri)
                assert error.data == {"uri": uri}


async def test_a_value_that_cannot_be_decoded_is_an_invalid_request(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("decoding", tenant=tenant)

    @worker.resource("decode://{name}")
    def decode(name: str) -> str:
        return name

    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, worker):
        assert (await client.read("decode://%2520"))[0]["text"] == "%20"
        for uri in ("decode://%ZZ", "decode://%FF"):
            error = await refused(client, uri)
            assert error.code == -32602
            assert "percent" in error.message


async def test_a_function_that_takes_too_long_is_refused_when_its_time_is_over(
    hasty_fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("slow", tenant=tenant)
    ends = asyncio.Event()

    @worker.resource("slow://one")
    async def one() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ends.set()
        return "never"

    client = Modern(hasty_fleet[0].url, tenant, http)
    async with serve(hasty_fleet, worker):
        started = time.monotonic()
        error = await refused(client, "slow://one")
        assert time.monotonic() - started < 3
        assert (error.code, error.data["reason"]) == (-31503, "worker_late")
        await asyncio.wait_for(ends.wait(), 5)


async def test_the_function_is_cancelled_when_its_last_client_leaves(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("patient", tenant=tenant)
    began, cancelled = asyncio.Event(), asyncio.Event()

    @worker.resource("patient://one")
    async def one() -> str:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    async with serve(fleet, worker):
        client = Modern(fleet[0].url, tenant, http)
        reads = [asyncio.create_task(client.read("patient://one")) for _ in range(2)]
        await asyncio.wait_for(began.wait(), 5)
        reads[0].cancel()
        await asyncio.wait({reads[0]})
        # The other one joined another execution or waits for the next: either way one is wanted.
        reads[1].cancel()
        await asyncio.wait({reads[1]})
        await asyncio.wait_for(cancelled.wait(), 5)


async def test_a_second_worker_with_a_living_workers_uri_is_refused_with_a_sentence(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    def declare(name: str) -> Worker:
        worker = Worker(name, tenant=tenant)

        @worker.resource("mine://one")
        def one() -> str:
            return name

        @worker.resource("mine://{part}/more")
        def more(part: str) -> str:
            return f"{name} {part}"

        return worker

    client = Modern(fleet[0].url, tenant, http)

    async def texts() -> list[str]:
        return [(await client.read(uri))[0]["text"] for uri in ("mine://one", "mine://x/more")]

    async with serve(fleet, declare("first")):
        with pytest.raises(Conflict, match="'first' answers it already"):
            async with serve(fleet, declare("second")):
                pass
        assert await texts() == ["first", "first x"]
    async with serve(fleet, declare("second")):
        assert await texts() == ["second", "second x"]


async def test_an_answer_over_the_limit_is_an_error_and_a_large_one_is_whole(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("bulk", tenant=tenant)

    @worker.resource("bulk://{size}")
    def bulk(size: int) -> str:
        return "x" * size

    client = Modern(fleet[0].url, tenant, http)
    async with serve(fleet, worker):
        for size in (60_000, 70_000, 3_000_000):
            assert len((await client.read(f"bulk://{size}"))[0]["text"]) == size
        assert (await refused(client, "bulk://20000000")).code == -32603
