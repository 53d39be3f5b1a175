"""Whatever a function does, its caller gets a failure with an id, and the worker goes on."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from broker.core.declaration import CallRequest, CallResult, Contents, Failure, Instances, Values
from broker.core.errors import BadRequest, NotFound
from tests.support.wait import until, within
from workers import Context, Worker


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class UnspeakablyUnknown(NotFound):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Escape(BaseException):
    """What no handler of exceptions catches."""


def recurse(depth: int) -> int:
    return recurse(depth + 1)


def overflow() -> BaseException:
    try:
        recurse(0)
    except RecursionError as error:
        return error
    raise AssertionError


ERRORS: list[Callable[[], BaseException]] = [
    lambda: Escape("out"),
    lambda: SystemExit(3),
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    lambda: StopIteration(1),
    lambda: StopAsyncIteration(1),
    TimeoutError,
    overflow,
    MemoryError,
    Unspeakable,
    lambda: ExceptionGroup("several", [ValueError("a"), NotFound("b")]),
    lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]),
]


def request(uri: str, declared: str | None = None, *, seconds: float = 10, kind: Any = "read") -> CallRequest:
    return CallRequest(kind, declared or uri, uri, "default", "me", None, time.time() + seconds)


@pytest.fixture
def worker() -> Worker:
    return Worker("attacked", tenant="default")


async def answers(worker: Worker, uri: str, **how: Any) -> CallResult:
    return await within(worker.call(request(uri, **how)), f"an answer for {uri}", 20)


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_whatever_a_function_raises_is_a_failure_with_an_id(
    worker: Worker, make: Callable[[], BaseException], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SystemExit and KeyboardInterrupt went out of the event loop and took the process, and all its calls."""

    def sync() -> str:
        raise make()

    async def awaited() -> str:
        raise make()

    worker.resource("bad://one")(awaited if how == "async" else sync)
    worker.resource("good://one", name="good")(lambda: "fine")
    with caplog.at_level(logging.ERROR):
        result = await answers(worker, "bad://one")
    assert isinstance(result, Failure)
    assert result.reason == "internal"
    assert result.id in result.message
    assert any(getattr(each, "call", "") == result.id and each.exc_info for each in caplog.records)
    assert isinstance(await answers(worker, "good://one"), Contents)


async def test_an_unknown_that_cannot_say_so_is_unknown_all_the_same(worker: Worker) -> None:
    @worker.resource("bad://one")
    def bad() -> str:
        raise UnspeakablyUnknown

    result = await answers(worker, "bad://one")
    assert isinstance(result, Failure)
    assert result.reason == "not_found"


async def test_a_sentence_with_half_a_character_reaches_the_client_as_text(worker: Worker) -> None:
    @worker.resource("bad://one")
    def bad() -> str:
        raise BadRequest("half \ud800 of it")

    result = await answers(worker, "bad://one")
    assert isinstance(result, Failure)
    assert result.message.encode() == b"half \\ud800 of it"


def cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nested() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


@dataclass
class Ring:
    next: "Ring | None" = None


def ring() -> Ring:
    found = Ring()
    found.next = found
    return found


async def endless() -> AsyncIterator[str]:
    while True:
        yield "x"


RUBBISH: list[Callable[[], Any]] = [
    object,
    lambda: float("nan"),
    lambda: {"a": float("inf")},
    lambda: "\ud800",
    lambda: {"\udfff": 1},
    lambda: {(1, 2): 3},
    lambda: 10**10_000,
    lambda: (each for each in "abc"),
    itertools.count,
    endless,
    lambda: None,
    lambda: {1, 2},
    cycle,
    nested,
    ring,
    lambda: "x" * 50_000_000,
    lambda: b"x" * 50_000_000,
]


@pytest.mark.parametrize("make", RUBBISH)
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_whatever_a_function_returns_is_contents_or_a_failure(
    worker: Worker, make: Callable[[], Any], how: str
) -> None:
    def sync() -> Any:
        return make()

    async def awaited() -> Any:
        return make()

    worker.resource("bad://one")(awaited if how == "async" else sync)
    result = await answers(worker, "bad://one")
    assert isinstance(result, Failure)
    assert result.reason == "internal"


async def test_a_function_that_ignores_its_cancellation_loses_its_place_and_not_its_workers(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its call never ended: 64 of them and the process answered nothing any more, nor did it leave."""
    ends = asyncio.Event()

    @worker.resource("stubborn://one")
    async def stubborn() -> str:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    try:
        result = await answers(worker, "stubborn://one", seconds=0.1)
        assert isinstance(result, Failure)
        assert "in time" in result.message
        assert any(each.message == "function_ignores_cancellation" for each in caplog.records)
        call = asyncio.create_task(worker.call(request("stubborn://one")))
        await asyncio.sleep(0)
        call.cancel()
        await within(asyncio.wait({call}), "the end of a call")
        assert call.cancelled()
    finally:
        ends.set()


async def test_a_function_whose_call_is_cancelled_twice_is_left_to_itself_with_a_word_and_not_forgotten(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """The deadline after the client's leaving cut the wait for it: no word, and nothing held its task."""
    began, ends = asyncio.Event(), asyncio.Event()

    @worker.resource("stubborn://one")
    async def stubborn() -> str:
        began.set()
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    try:
        call = asyncio.create_task(worker.call(request("stubborn://one", seconds=0.3)))
        await began.wait()
        call.cancel()
        await within(asyncio.wait({call}), "the end of a call")
        assert call.cancelled()
        assert [each.message for each in caplog.records] == ["function_ignores_cancellation"]
    finally:
        ends.set()


async def test_functions_that_hang_in_every_thread_leave_async_ones_alone() -> None:
    worker = Worker("attacked", tenant="default", threads=2)
    ends = threading.Event()

    @worker.resource("hang://{number}")
    def hang(number: int) -> str:
        ends.wait(30)
        return str(number)

    @worker.resource("live://one")
    async def live() -> str:
        return "alive"

    try:
        hung = [
            asyncio.create_task(worker.call(request(f"hang://{each}", "hang://{number}", seconds=0.3)))
            for each in range(5)
        ]
        assert isinstance(await answers(worker, "live://one"), Contents)
        results = await within(asyncio.gather(*hung), "the end of all five")
        assert {type(each) for each in results} == {Failure}
    finally:
        ends.set()


def _forever() -> Iterator[str]:
    yield from (f"item://{each}" for each in itertools.count())


BAD_LISTS: list[Callable[[], Any]] = [
    _forever,
    lambda: itertools.repeat("item://1"),
    lambda: 5,
    lambda: None,
    endless,
]


@pytest.mark.parametrize("make", BAD_LISTS)
async def test_a_list_without_an_end_or_that_is_none_is_a_failure(
    worker: Worker, make: Callable[[], Any]
) -> None:
    """A generator without an end took all memory, or the event loop for good."""

    async def listed() -> Any:
        return make()

    @worker.resource("item://{number}", list=listed)
    def item(number: int) -> str:
        return str(number)

    result = await answers(worker, "item://{number}", kind="list")
    assert isinstance(result, Failure)
    assert result.reason == "internal"


async def test_duplicate_and_foreign_instances_are_left_out(worker: Worker) -> None:
    @worker.resource("item://{number}", list=lambda: ["item://1", "item://1", "other://1", "item://x", 7])
    def item(number: int) -> str:
        return str(number)

    result = await answers(worker, "item://{number}", kind="list")
    assert isinstance(result, Instances)
    assert len(result.metas) == 1


@pytest.mark.parametrize("make", [itertools.count, lambda: ["\ud800"], lambda: 5, endless])
async def test_a_completion_without_an_end_or_that_is_none_is_a_failure(
    worker: Worker, make: Callable[[], Any]
) -> None:
    @worker.resource("item://{number}")
    def item(number: str) -> str:
        return number

    @worker.complete("item://{number}", "number")
    def numbers(_value: str) -> Any:
        return make()

    asked = CallRequest(
        "complete", "item://{number}", "item://{number}", "default", "", None, time.time() + 10, "number", "1"
    )
    result = await within(worker.call(asked), "an answer")
    assert isinstance(result, Failure)


async def test_many_completions_are_counted_and_cut(worker: Worker) -> None:
    @worker.resource("item://{number}")
    def item(number: str) -> str:
        return number

    @worker.complete("item://{number}", "number")
    def numbers(_value: str) -> Any:
        return range(5000)

    asked = CallRequest(
        "complete", "item://{number}", "item://{number}", "default", "", None, time.time() + 10, "number", "1"
    )
    result = await within(worker.call(asked), "an answer")
    assert isinstance(result, Values)
    assert (len(result.values), result.total, result.has_more) == (100, 5000, True)


async def test_a_context_that_outlives_its_call_says_that_nobody_waits(worker: Worker) -> None:
    kept: list[Context] = []

    @worker.resource("keep://one")
    def keep(ctx: Context) -> str:
        kept.append(ctx)
        assert not ctx.is_cancelled
        return "kept"

    assert isinstance(await answers(worker, "keep://one"), Contents)
    assert kept[0].is_cancelled
    kept[0].logger.info("still usable")


async def test_a_sync_function_that_polls_while_watched_hears_of_the_end(worker: Worker) -> None:
    """Its Context never said so: the thread polled for ever after its URI was let go."""
    ended, began = threading.Event(), threading.Event()

    @worker.resource("poll://one")
    def poll() -> str:
        return "polled"

    @worker.on_watched("poll://one")
    def watch(_uri: str, ctx: Context) -> None:
        began.set()
        while not ctx.is_cancelled:
            time.sleep(0.01)  # a job that polls its source
        ended.set()

    watching = asyncio.create_task(worker.watched("poll://one", "poll://one", "default"))
    await until(began.is_set, "the function runs")
    watching.cancel()
    await until(ended.is_set, "the function has ended")
