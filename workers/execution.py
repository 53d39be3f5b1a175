"""Running an author's function: async ones on the event loop, sync ones in a bounded number of threads.

1. What the function raises comes out as an `Exception`, whatever it was: SystemExit and KeyboardInterrupt
   would end the process and everybody's calls, a CancelledError would look like our own cancellation, and a
   future cannot hold StopIteration.
2. A sync function cannot be stopped. When its call is cancelled it loses its caller and keeps its thread
   until it returns; `Context.is_cancelled` tells it. It does not keep the process from ending.
3. An async function that does not end when it is cancelled is left to itself after a while, and the log says
   so: it loses its caller, and its call loses its place.
4. Encoding a sync function's result happens in its thread, so a large one does not hold up the loop.
"""

import asyncio
import contextlib
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from workers.resources import is_awaited
from workers.signature import Function
from workers.threads import Threads

_log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS = 1.0
"""How long a cancelled function may take to end."""


class FunctionEscaped(Exception):
    """The function raised what is no Exception: to end the process, or to look cancelled."""


class Execution:
    """Where the functions of one worker run; `threads` sync ones at a time."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = Threads(threads, f"worker-{name}")
        self._left: set[asyncio.Task[Any]] = set()
        """Functions that did not end when they were cancelled."""

    def __repr__(self) -> str:
        return f"<Execution in {self._threads!r}, {len(self._left)} left to themselves>"

    def is_crowded(self, function: Function) -> bool:
        """Whether `function` would have to wait for a thread; an async one needs none."""
        return not is_awaited(function) and self._threads.is_crowded

    async def run(self, function: Function, given: dict[str, Any], finish: Callable[[Any], T]) -> T:
        """Return `finish` of what `function` returns for the arguments `given`.

        Raises:
            Exception: whatever the function or `finish` raises (rule 1).
        """
        if is_awaited(function):
            return finish(await self._awaited(function(**given)))
        is_done, result = await self._in_thread(function, given, finish)
        return result if is_done else finish(await self._awaited(result))

    async def _awaited(self, work: Awaitable[Any]) -> Any:
        """Await the function's own work in a task of its own, which can be left behind (rule 3)."""
        task = asyncio.get_running_loop().create_task(_caught(work))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self._cancel(task)
            raise
        if task.cancelled():
            raise FunctionEscaped("The function raised CancelledError though nobody cancelled its call.")
        answer = task.result()
        if isinstance(answer, _Raised):
            raise _tamed(answer.error)
        return answer

    async def _cancel(self, task: "asyncio.Task[Any]") -> None:
        task.cancel()
        now = asyncio.get_running_loop().time
        end = now() + PATIENCE_SECONDS
        while not task.done() and now() < end:
            # We may be cancelled once more, as by the deadline after the client: that is nothing new.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task}, timeout=end - now())
        if not task.done():
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            _log.error("function_ignores_cancellation", extra={"left": len(self._left)})

    async def _in_thread(
        self, function: Function, given: dict[str, Any], finish: Callable[[Any], T]
    ) -> tuple[bool, Any]:
        """Return (True, the finished result), or (False, what is still to be awaited)."""
        context = contextvars.copy_context()

        def work() -> tuple[bool, Any] | _Raised:
            try:
                result = context.run(function, **given)
                return (False, result) if inspect.isawaitable(result) else (True, finish(result))
            except BaseException as error:  # rule 1
                return _Raised(error)

        answer = await self._threads.run(work)
        if isinstance(answer, _Raised):
            raise _tamed(answer.error)
        return answer

    def close(self) -> None:
        """Let the threads end, each when its function has returned."""
        self._threads.close()


class _Raised:
    """What a function raised, carried as a value: a task would let some of it out into the loop."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _caught(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # rule 1
        return _Raised(error)


def _tamed(error: BaseException) -> Exception:
    """Return `error` as what may go through the machinery (rule 1)."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    escaped = FunctionEscaped(f"The function raised {type(error).__name__}.")
    escaped.__cause__ = error
    return escaped
