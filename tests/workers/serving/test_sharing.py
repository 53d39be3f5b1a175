"""Which requests share an execution, decided without Redis (broker/callbacks/sharing.py)."""

import asyncio
import itertools

import pytest

from broker.callbacks.sharing import Ask, Sharing
from broker.core.declaration import CallRequest, CallResult, Contents, Failure
from broker.core.errors import WorkerLate, WorkerUnavailable
from broker.core.identity import TenantId
from broker.core.revision import Stamp
from tests.support.wait import until

TENANT = TenantId("t")
REQUEST = CallRequest("read", "a://b", "a://b", TENANT, "s", None, 0.0)


def ask(n: int = 1, ttl_ms: int = 0, key: str = "a://b") -> Ask:
    return Ask(key, TENANT, "g", REQUEST, Stamp("e", n, f"m{n}"), ttl_ms)


class Function:
    """An execution that ends when the test says so."""

    def __init__(self) -> None:
        self.began: list[Ask] = []
        self.cancelled = 0
        self.ends: list[asyncio.Future[CallResult]] = []

    async def __call__(self, asked: Ask) -> CallResult:
        self.began.append(asked)
        end: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self.ends.append(end)
        try:
            return await end
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def end(self, body: bytes = b"[]") -> None:
        """End the oldest execution that still runs."""
        next(end for end in self.ends if not end.done()).set_result(Contents(body))

    def fail(self, error: Exception) -> None:
        next(end for end in self.ends if not end.done()).set_exception(error)


@pytest.fixture
def function() -> Function:
    return Function()


@pytest.fixture
def sharing(function: Function) -> Sharing:
    return Sharing(function, max_bytes=100_000, patience=5.0)


async def began(function: Function, count: int) -> None:
    await until(
        lambda: len(function.began) == count, lambda: f"{count} executions, not {len(function.began)}"
    )


async def test_requests_that_come_together_share_one_execution(sharing: Sharing, function: Function) -> None:
    asked = [asyncio.create_task(sharing.answer(ask())) for _ in range(100)]
    await began(function, 1)
    function.end(b"[1]")
    assert {(await one).result for one in asked} == {Contents(b"[1]")}
    assert len(function.began) == 1
    assert sharing.is_idle


async def test_a_request_never_joins_what_began_before_it_came(sharing: Sharing, function: Function) -> None:
    """What began before may have looked before the change that the request was made for."""
    early = asyncio.create_task(sharing.answer(ask(1)))
    await began(function, 1)
    late = asyncio.create_task(sharing.answer(ask(2)))
    later = asyncio.create_task(sharing.answer(ask(2)))
    await asyncio.sleep(0)
    function.end(b"[old]")
    assert (await early).result == Contents(b"[old]")
    await began(function, 2)
    assert not late.done()
    function.end(b"[new]")
    assert (await late).result == (await later).result == Contents(b"[new]")
    assert len(function.began) == 2


async def test_a_result_is_kept_for_its_time_to_live_and_its_revision(
    sharing: Sharing, function: Function
) -> None:
    first = asyncio.create_task(sharing.answer(ask(1, ttl_ms=60_000)))
    await began(function, 1)
    function.end(b"[1]")
    await first
    assert (await sharing.answer(ask(1, ttl_ms=60_000))).result == Contents(b"[1]")
    touched = asyncio.create_task(sharing.answer(ask(2, ttl_ms=60_000)))
    await began(function, 2)
    function.end(b"[2]")
    assert (await touched).result == Contents(b"[2]")
    assert (await sharing.answer(ask(2, ttl_ms=60_000))).stamp.n == 2


async def test_a_result_without_a_time_to_live_is_not_kept(sharing: Sharing, function: Function) -> None:
    for count in (1, 2):
        asked = asyncio.create_task(sharing.answer(ask()))
        await began(function, count)
        function.end()
        await asked


async def test_who_waits_for_the_next_execution_has_what_just_came_if_its_revision_is_right(
    sharing: Sharing, function: Function
) -> None:
    early = asyncio.create_task(sharing.answer(ask(1, ttl_ms=60_000)))
    await began(function, 1)
    same = asyncio.create_task(sharing.answer(ask(1, ttl_ms=60_000)))
    newer = asyncio.create_task(sharing.answer(ask(2, ttl_ms=60_000)))
    await asyncio.sleep(0)
    function.end(b"[1]")
    assert (await early).result == (await same).result == Contents(b"[1]")
    await began(function, 2)
    assert not newer.done()
    function.end(b"[2]")
    assert (await newer).result == Contents(b"[2]")


async def test_an_execution_that_nobody_waits_for_is_cancelled(sharing: Sharing, function: Function) -> None:
    one, two = (asyncio.create_task(sharing.answer(ask())) for _ in range(2))
    await began(function, 1)
    one.cancel()
    await asyncio.wait({one})
    assert function.cancelled == 0
    two.cancel()
    await asyncio.wait({two})
    await until(lambda: function.cancelled == 1, "a cancelled execution")
    await until(lambda: sharing.is_idle, "nothing left")


async def test_the_next_execution_goes_on_when_those_of_the_running_one_have_left(
    sharing: Sharing, function: Function
) -> None:
    early = asyncio.create_task(sharing.answer(ask(1)))
    await began(function, 1)
    late = asyncio.create_task(sharing.answer(ask(2)))
    await asyncio.sleep(0)
    early.cancel()
    await began(function, 2)
    function.ends[1].set_result(Contents(b"[2]"))
    assert (await late).result == Contents(b"[2]")
    assert sharing.is_idle


async def test_a_failure_reaches_all_that_share_it_and_is_not_kept(
    sharing: Sharing, function: Function
) -> None:
    asked = [asyncio.create_task(sharing.answer(ask(ttl_ms=60_000))) for _ in range(3)]
    await began(function, 1)
    function.fail(WorkerUnavailable())
    for one in asked:
        with pytest.raises(WorkerUnavailable):
            await one
    failed = asyncio.create_task(sharing.answer(ask(ttl_ms=60_000)))
    await began(function, 2)
    function.ends[1].set_result(Failure("internal", "it failed", "1"))
    assert isinstance((await failed).result, Failure)
    again = asyncio.create_task(sharing.answer(ask(ttl_ms=60_000)))
    await began(function, 3)
    function.end()
    await again
    assert sharing.is_idle


async def test_a_request_does_not_wait_for_ever(function: Function) -> None:
    sharing = Sharing(function, max_bytes=0, patience=0.05)
    with pytest.raises(WorkerLate):
        await sharing.answer(ask())
    await until(lambda: sharing.is_idle, "nothing left")
    assert function.cancelled == 1


async def test_kept_results_take_bounded_memory_and_the_longest_unused_go_first() -> None:
    bodies = itertools.count()

    async def execute(_: Ask) -> CallResult:
        return Contents(b"%08d" % next(bodies) * 250)

    sharing = Sharing(execute, max_bytes=30_000, patience=5.0)
    first = await sharing.answer(ask(key="first", ttl_ms=60_000))
    for number in range(50):
        await sharing.answer(ask(key=f"{number}", ttl_ms=60_000))
        assert (await sharing.answer(ask(key="first", ttl_ms=60_000))).result == first.result
        assert sharing.kept_bytes <= 30_000
    assert 5 < sharing.kept < 15


async def test_results_of_different_keys_are_never_mixed() -> None:
    async def execute(asked: Ask) -> CallResult:
        await asyncio.sleep(0)
        return Contents(str(asked.key).encode())

    sharing = Sharing(execute, max_bytes=10_000, patience=5.0)
    keys = [f"{number % 7}" for number in range(200)]
    answers = await asyncio.gather(*(sharing.answer(ask(key=key, ttl_ms=5)) for key in keys))
    assert [answer.result for answer in answers] == [Contents(key.encode()) for key in keys]
