"""Asks many small questions in few round trips: what is asked while the rounds are busy goes together.

A question never joins a round that has begun before it came, so its answer is never older than it; equal
questions of one round are asked once. Two thousand reads of one resource at the same moment are a handful of
commands, and not two thousand waits for twenty connections.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ROUNDS = 4
"""Rounds that may be under way at a time."""
MOST = 256
"""Questions in one round."""


class Gathering(Generic[K, V]):
    """Gathers questions for `fetch`, which answers each with a value or an error, in their order."""

    def __init__(self, fetch: Callable[[Sequence[K]], Awaitable[Sequence[V | Exception]]]) -> None:
        self._fetch = fetch
        self._waiting: dict[K, list[asyncio.Future[V]]] = {}
        self._rounds: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Gathering {len(self._waiting)} waiting, {len(self._rounds)} rounds>"

    async def ask(self, key: K) -> V:
        """Return the answer to one question.

        Raises:
            Exception: what `fetch` answered it with, or raised.
        """
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        if len(self._rounds) < ROUNDS:
            self._begin()
        return await future

    def _begin(self) -> None:
        task = asyncio.get_running_loop().create_task(self._round())
        self._rounds.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._rounds.discard(task)
        if self._waiting:
            self._begin()

    async def _round(self) -> None:
        # From here on nobody joins.
        keys = list(self._waiting)[:MOST]
        if not keys:
            return
        asked = [self._waiting.pop(key) for key in keys]
        answers: Sequence[V | Exception]
        try:
            answers = await self._fetch(keys)
        except Exception as error:
            answers = [error] * len(keys)
        except asyncio.CancelledError:
            for future in (future for futures in asked for future in futures):
                future.cancel()
            raise
        for futures, answer in zip(asked, answers, strict=True):
            for future in futures:
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
