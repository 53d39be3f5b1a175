"""A call never raises, never waits past its deadline, and tells the client no more than an id."""

import asyncio
import contextvars
import dataclasses
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable
from typing import Any

import pytest
from pydantic import BaseModel

from broker.core.declaration import CallRequest, CallResult, Contents, Failure
from tests.support.wait import until
from workers import BadRequest, Context, InvalidContents, Json, NotFound, Worker
from workers import Contents as Entry
from workers.testing import CallFailed, TestClient


@pytest.fixture
def worker() -> Worker:
    return Worker("bookshop")


async def call(worker: Worker, uri: str, *, declared: str | None = None, seconds: float = 10) -> CallResult:
    deadline = time.time() + seconds
    return await worker.call(
        CallRequest(
            "read", declared or uri, uri, "acme", "ada", frozenset({"read"}), deadline, trace="00-1", id="c1"
        )
    )


class Stats(BaseModel):
    books: int


@dataclasses.dataclass
class Author:
    name: str


@pytest.mark.parametrize(
    ("result", "mime_type", "entry"),
    [
        ("theme=dark", "text/plain", {"mimeType": "text/plain", "text": "theme=dark"}),
        (b"GIF89a", "image/gif", {"mimeType": "image/gif", "blob": "R0lGODlh"}),
        ({"books": 1204}, "application/json", {"mimeType": "application/json", "text": '{"books":1204}'}),
        ([1, "a"], "application/json", {"mimeType": "application/json", "text": '[1,"a"]'}),
        (Stats(books=3), "application/json", {"mimeType": "application/json", "text": '{"books":3}'}),
        (Author("Ada"), "application/json", {"mimeType": "application/json", "text": '{"name":"Ada"}'}),
        (Json("x"), "application/json", {"mimeType": "application/json", "text": '"x"'}),
        (Entry(text="# x"), "text/markdown", {"mimeType": "text/markdown", "text": "# x"}),
        # The type is what was declared, and never guessed; where none was, JSON is the one thing we know.
        ({"books": 1}, "text/plain", {"mimeType": "text/plain", "text": '{"books":1}'}),
        ({"books": 1}, None, {"mimeType": "application/json", "text": '{"books":1}'}),
        ("x", None, {"text": "x"}),
    ],
)
@pytest.mark.parametrize("style", ["sync", "async"])
async def test_what_a_function_returns_is_what_a_client_reads(
    worker: Worker, result: Any, mime_type: str | None, entry: dict[str, str], style: str
) -> None:
    def get() -> Any:
        return result

    async def get_later() -> Any:
        await asyncio.sleep(0)
        return result

    worker.resource("x://y", name="x", mime_type=mime_type)(get_later if style == "async" else get)
    answer = await call(worker, "x://y")
    assert isinstance(answer, Contents)
    assert json.loads(answer.body) == [{"uri": "x://y", **entry}]


async def test_a_list_of_contents_is_several_entries_with_their_own_types(worker: Worker) -> None:
    @worker.resource("report://{week}", mime_type="text/markdown")
    def get_report(week: str) -> list[Entry]:
        return [
            Entry(text=f"Week {week}"),
            Entry(blob=b"\x89PNG", mime_type="image/png"),
            Entry(text="a,b", uri="report://latest/table", mime_type="text/csv"),
        ]

    assert await TestClient(worker).read("report://49") == [
        Entry(text="Week 49", uri="report://49", mime_type="text/markdown"),
        Entry(blob=b"\x89PNG", uri="report://49", mime_type="image/png"),
        Entry(text="a,b", uri="report://latest/table", mime_type="text/csv"),
    ]


async def test_an_entry_names_the_uri_exactly_as_the_client_wrote_it(worker: Worker) -> None:
    @worker.resource("file:///café/{name}")
    def get(name: str) -> str:
        return name

    for uri in ("file:///caf%c3%a9/%61.txt", "file:///café/a.txt"):
        assert await TestClient(worker).read(uri) == [Entry(text="a.txt", uri=uri, mime_type="text/plain")]


async def test_a_function_runs_when_its_resource_is_read_and_never_when_it_is_listed(worker: Worker) -> None:
    runs: list[str] = []

    @worker.resource("x://{a}")
    def get(a: str) -> str:
        runs.append(a)
        return a

    client = TestClient(worker)
    assert client.templates()[0]["name"] == get.__name__
    assert await client.list() == []
    assert runs == []
    await client.read("x://1")
    assert runs == ["1"]


async def test_the_context_knows_the_call(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Context] = []

    @worker.resource("x://{a}")
    def get(a: str, ctx: Context) -> str:
        seen.append(ctx)
        ctx.logger.warning("looked", extra={"shelf": a})
        assert not ctx.is_cancelled
        assert 9 < ctx.seconds_left <= 10
        assert ctx.deadline.timestamp() > time.time()
        return a

    await call(worker, "x://1", declared="x://{a}")
    [context] = seen
    said = (context.tenant, context.subject, context.scopes, context.uri, context.trace, context.call_id)
    assert said == ("acme", "ada", {"read"}, "x://1", "00-1", "c1")
    assert context.is_cancelled, "nobody waits for the answer any more"
    [record] = [record for record in caplog.records if record.message == "looked"]
    assert (vars(record)["call"], vars(record)["tenant"], vars(record)["shelf"]) == ("c1", "acme", "1")


def _exits() -> str:
    raise SystemExit(3)


async def _cancelled() -> str:
    raise asyncio.CancelledError


async def _times_out() -> str:
    raise TimeoutError("the database is slow")


def _stops() -> str:
    raise StopIteration


def _fails() -> str:
    raise RuntimeError("the password is hunter2")


def _invalid() -> str:
    raise InvalidContents("said by a library inside")


def _returns_nothing() -> None:
    return None


def _returns_nonsense() -> object:
    return object()


def _returns_nan() -> float:
    return float("nan")


@pytest.mark.parametrize(
    "function",
    [
        _exits,
        _cancelled,
        _times_out,
        _stops,
        _fails,
        _invalid,
        _returns_nothing,
        _returns_nonsense,
        _returns_nan,
    ],
)
async def test_a_failing_function_gives_the_client_an_id_and_the_operator_the_traceback(
    worker: Worker, function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    worker.resource("x://y")(function)
    answer = await call(worker, "x://y")
    assert answer == Failure("internal", "The worker failed; its log says why under c1.", "c1")
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == "call_failed"
    assert vars(record)["call"] == "c1"
    assert record.exc_info is not None


async def test_every_call_without_an_id_gets_its_own(worker: Worker) -> None:
    worker.resource("x://y")(_fails)
    client = TestClient(worker)
    ids: set[str] = set()
    for _ in range(3):
        with pytest.raises(CallFailed) as caught:
            await client.read("x://y")
        ids.add(caught.value.id)
    assert len(ids) == 3


async def test_an_author_says_unknown_and_invalid(worker: Worker) -> None:
    @worker.resource("users://{user_id}")
    async def get(user_id: int) -> str:
        if user_id < 0:
            raise BadRequest("A user id is positive.")
        raise NotFound(f"There is no user {user_id}.")

    declared = "users://{user_id}"
    assert await call(worker, "users://7", declared=declared) == Failure(
        "not_found", "There is no user 7.", "c1"
    )
    assert await call(worker, "users://-7", declared=declared) == Failure(
        "invalid", "A user id is positive.", "c1"
    )


async def test_a_value_that_does_not_convert_names_an_unknown_resource(worker: Worker) -> None:
    @worker.resource("users://{user_id}{?limit}")
    def get(user_id: int, limit: int = 10) -> str:
        return f"{user_id} {limit}"

    client = TestClient(worker)
    assert (await client.read("users://7?limit=3"))[0].text == "7 3"
    for uri in ("users://seven", "users://7?limit=many", "users://7?limit="):
        with pytest.raises(NotFound):
            await client.read(uri)


async def test_a_value_that_is_no_text_is_an_invalid_request(worker: Worker) -> None:
    @worker.resource("users://{name}")
    def get(name: str) -> str:
        return name

    for uri in ("users://%ZZ", "users://%FF"):
        with pytest.raises(BadRequest, match="percent-encoded"):
            await TestClient(worker).read(uri)


async def test_what_is_not_declared_is_unknown(worker: Worker) -> None:
    worker.resource("x://y")(_fails)
    for declared, uri in (("x://z", "x://z"), ("x://y", "x://z")):
        answer = await call(worker, uri, declared=declared)
        assert isinstance(answer, Failure)
        assert answer.reason == "not_found"


async def test_an_async_function_is_cancelled_at_the_deadline(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    @worker.resource("x://y")
    async def get() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return ""

    answer = await call(worker, "x://y", seconds=0.05)
    assert answer == Failure("internal", "The worker did not answer in time (call c1).", "c1")
    assert ended == ["cancelled"]
    assert [record.message for record in caplog.records] == ["call_out_of_time"]


async def test_a_call_that_comes_after_its_deadline_does_not_run(worker: Worker) -> None:
    runs: list[int] = []

    @worker.resource("x://y")
    async def get() -> str:
        runs.append(1)
        return ""

    answer = await call(worker, "x://y", seconds=-1)
    assert isinstance(answer, Failure)
    assert runs == []


async def test_cancelling_a_call_cancels_its_async_function(worker: Worker) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @worker.resource("x://y")
    async def get() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    task = asyncio.create_task(call(worker, "x://y"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_sync_function_sees_that_its_call_was_cancelled(worker: Worker) -> None:
    started, ended = threading.Event(), threading.Event()

    @worker.resource("x://y")
    def get(ctx: Context) -> str:
        started.set()
        while not ctx.is_cancelled:
            time.sleep(0.001)
        ended.set()
        return ""

    task = asyncio.create_task(call(worker, "x://y"))
    await until(started.is_set, "the function runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(ended.is_set, "the function has noticed")


async def test_sync_functions_hold_up_nobody_and_run_in_a_bounded_number_of_threads() -> None:
    worker = Worker("bookshop", threads=3)
    go = threading.Event()
    running: list[int] = []

    @worker.resource("slow://{n}")
    def slow(n: int) -> str:
        running.append(n)
        go.wait(10)
        return str(n)

    @worker.resource("quick://x")
    async def quick() -> str:
        return "quick"

    calls = [asyncio.create_task(call(worker, f"slow://{n}", declared="slow://{n}")) for n in range(8)]
    await until(lambda: len(running) == 3, "three functions run")
    assert isinstance(await call(worker, "quick://x"), Contents)
    assert len(running) == 3
    go.set()
    assert all(isinstance(answer, Contents) for answer in await asyncio.gather(*calls))
    worker.close()


async def test_a_call_that_was_cancelled_while_it_waited_for_a_thread_never_runs() -> None:
    worker = Worker("bookshop", threads=1)
    go = threading.Event()
    ran: list[int] = []

    @worker.resource("slow://{n}")
    def slow(n: int) -> str:
        ran.append(n)
        go.wait(10)
        return str(n)

    first, second, third = (
        asyncio.create_task(call(worker, f"slow://{n}", declared="slow://{n}")) for n in range(3)
    )
    await until(lambda: ran == [0], "the first runs")
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go.set()
    assert isinstance(await first, Contents)
    assert isinstance(await third, Contents)
    assert ran == [0, 2]


async def test_threads_are_reused_and_end_when_the_worker_is_closed() -> None:
    worker = Worker("reuse", threads=4)
    worker.resource("x://{n}", name="x")(_repeat)
    for _ in range(20):
        await call(worker, "x://1", declared="x://{n}")
    mine = [each for each in threading.enumerate() if each.name.startswith("worker-reuse")]
    assert len(mine) == 1
    worker.close()
    await until(lambda: not mine[0].is_alive(), "the thread has ended")
    assert isinstance(await call(worker, "x://1", declared="x://{n}"), Contents), "it can be used again"
    worker.close()


HANGS = """
import asyncio, threading, time
from broker.core.declaration import CallRequest
from workers import Worker

worker = Worker("w")
worker.resource("x://y", name="x")(lambda: threading.Event().wait())
request = CallRequest("read", "x://y", "x://y", "t", "s", None, time.time() + 0.1)
print(asyncio.run(worker.call(request)).reason)
"""


def test_a_function_that_never_returns_does_not_keep_the_process_from_ending() -> None:
    """It did, by way of the standard library's executor, which is joined at the end."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "internal\n"


async def test_context_variables_reach_a_sync_function(worker: Worker) -> None:
    request_id = contextvars.ContextVar("request_id", default="none")

    @worker.resource("x://y")
    def get() -> str:
        return request_id.get()

    assert get() == "none"
    request_id.set("r7")
    assert (await TestClient(worker).read("x://y"))[0].text == "r7"


async def test_a_sync_function_may_return_something_to_await(worker: Worker) -> None:
    async def later(name: str) -> str:
        return f"later {name}"

    def get(name: str) -> Awaitable[str]:
        return later(name)

    worker.resource("x://{name}")(get)
    assert (await TestClient(worker).read("x://y"))[0].text == "later y"


async def test_contents_over_the_limit_are_a_failure_of_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("bookshop", max_content_bytes=100)
    worker.resource("x://{n}", name="x")(_repeat)
    client = TestClient(worker)
    assert (await client.read("x://10"))[0].text == "a" * 10
    with pytest.raises(CallFailed):
        await client.read("x://100")
    assert "at most 100 are allowed" in caplog.text


def _repeat(n: int) -> str:
    return "a" * n
