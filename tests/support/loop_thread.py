"""An event loop in a thread of its own, for servers that must run while a test blocks."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class LoopThread:
    """Started on first use, ended by `close`; everything given to it runs in its thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result (bounded: 10 s)."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function there and wait for its result."""

        async def work() -> T:
            return function()

        return self.run(work())

    def task(self, function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        """Make a plain callback of a coroutine function, for servers: its tasks end with the thread.

        (asyncio's own way prints a traceback for each connection that is cancelled.)
        """

        def start(*args: P.args, **kwargs: P.kwargs) -> None:
            task = self.loop.create_task(function(*args, **kwargs))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            for argument in args:
                if isinstance(argument, asyncio.StreamWriter):
                    # One that is cancelled before it began could not close it.
                    task.add_done_callback(lambda _, writer=argument: writer.close())

        return start

    def close(self) -> None:
        """Cancel what still runs there, then end the thread."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for _ in range(5):
                await asyncio.sleep(0)  # closed transports let go of their sockets in the loop's next turns

        self.run(cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
