"""A bounded number of threads for functions that may block, and may never return.

The standard library's executor is joined when the interpreter ends, so one function that hangs would keep a
worker from leaving until it is killed. These threads are daemons: they end with the process. Rules:

1. A thread is started when something waits and none is free, up to the limit; threads are kept and reused.
2. Whose caller was cancelled before a thread was free is not run at all.
3. What work raises is handed over as a value by the caller's own means; `run` only carries.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

T = TypeVar("T")


class _Item(NamedTuple):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"


class Threads:
    """At most `limit` threads; any event loop may use them."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._free = 0
        self._waiting = 0

    def __repr__(self) -> str:
        return f"<Threads {self._name} {self._count} of {self._limit}, {self._waiting} waiting>"

    @property
    def is_crowded(self) -> bool:
        """Whether what comes now has to wait for a thread."""
        with self._lock:
            return self._waiting >= self._free + self._limit - self._count

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work`, which must not raise, returns in one of the threads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._waiting += 1
            is_new = self._waiting > self._free and self._count < self._limit
            self._count += is_new
        if is_new:
            threading.Thread(target=self._live, name=f"{self._name}-{self._count}", daemon=True).start()
        self._queue.put(_Item(work, loop, future))
        return cast("T", await future)

    def close(self) -> None:
        """Let the threads end, each when what it runs has returned."""
        with self._lock:
            count, self._count = self._count, 0
        for _ in range(count):
            self._queue.put(None)

    def _live(self) -> None:
        with self._lock:
            self._free += 1
        while True:
            item = self._queue.get()
            with self._lock:
                self._free -= 1
                self._waiting -= item is not None
            if item is None:
                return
            result = None if item.future.cancelled() else item.work()
            with self._lock:
                # Before the answer is out: who asks again on hearing it finds a free thread.
                self._free += 1
            # The loop may be closed: then whoever asked has gone.
            with contextlib.suppress(RuntimeError):
                item.loop.call_soon_threadsafe(_settle, item.future, result)
            # What a thread holds while it waits is held for long.
            del item, result


def _settle(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)
