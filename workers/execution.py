"""Running an author's function: async ones on the event loop, sync ones in a bounded number of threads.

1. What the function raises comes out as it is, except that no foreign StopIteration or CancelledError gets
   into the machinery: a future cannot hold the first, and the second would look like our own cancellation.
2. A sync function cannot be stopped. When its call is cancelled it loses its caller and keeps its thread
   until it returns; `Context.is_cancelled` tells it. It does not keep the process from ending.
3. Encoding a sync function's result happens in its thread, so a large one does not hold up the loop.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from workers.resources import is_awaited
from workers.signature import Function
from workers.threads import Threads

T = TypeVar("T")


class FunctionCancelled(Exception):
    """The function raised CancelledError although nobody cancelled its call."""


class Execution:
    """Where the functions of one worker run; `threads` sync ones at a time."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = Threads(threads, f"worker-{name}")

    def __repr__(self) -> str:
        return f"<Execution in {self._threads!r}>"

    async def run(self, function: Function, given: dict[str, Any], finish: Callable[[Any], T]) -> T:
        """Return `finish` of what `function` returns for the arguments `given`.

        Raises:
            Exception: whatever the function or `finish` raises (rule 1).
        """
        try:
            if is_awaited(function):
                return finish(await function(**given))
            is_done, result = await self._in_thread(function, given, finish)
            return result if is_done else finish(await result)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise FunctionCancelled("the function was cancelled from within") from error

    async def _in_thread(
        self, function: Function, given: dict[str, Any], finish: Callable[[Any], T]
    ) -> tuple[bool, Any]:
        """Return (True, the finished result), or (False, what is still to be awaited)."""
        context = contextvars.copy_context()

        def work() -> tuple[bool, Any] | BaseException:
            try:
                result = context.run(function, **given)
                return (False, result) if inspect.isawaitable(result) else (True, finish(result))
            except BaseException as error:  # a future must not see StopIteration (rule 1)
                return error

        answer = await self._threads.run(work)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """Let the threads end, each when its function has returned."""
        self._threads.close()
