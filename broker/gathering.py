"""Asks many small questions in few round trips: what is asked while the rounds are busy goes together.

The questions of one round are of one group: on a cluster of one log, since the keys of a command share a slot
there, and a node that is silent holds up nobody else's. A question never joins a round that has begun before
it came, so its answer is never older than it; equal questions of one round are asked once. Two thousand reads
of one resource at the same moment are a handful of commands, and not two thousand waits for twenty
connections.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ROUNDS = 4
"""Rounds of a group that may be under way at a time."""
MOST = 256
"""Questions in one round."""


@dataclass(slots=True)
class _Group(Generic[K, V]):
    waiting: dict[K, "list[asyncio.Future[V]]"] = field(default_factory=dict[K, "list[asyncio.Future[V]]"])
    rounds: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])


class Gathering(Generic[K, V]):
    """Gathers questions for `fetch`, which answers each with a value or an error, in their order.

    `group_of` says to which group a question belongs.
    """

    def __init__(
        self,
        fetch: Callable[[Sequence[K]], Awaitable[Sequence[V | Exception]]],
        group_of: Callable[[K], int],
    ) -> None:
        self._fetch = fetch
        self._group_of = group_of
        self._groups: dict[int, _Group[K, V]] = {}

    def __repr__(self) -> str:
        waiting = sum(len(group.waiting) for group in self._groups.values())
        return f"<Gathering {waiting} waiting, {sum(len(g.rounds) for g in self._groups.values())} rounds>"

    async def ask(self, key: K) -> V:
        """Return the answer to one question.

        Raises:
            Exception: what `fetch` answered it with, or raised.
        """
        return await self._join(key)

    async def ask_each(self, keys: Sequence[K]) -> list[V]:
        """Return the answers to some questions, in their order.

        Raises:
            Exception: what `fetch` answered one of them with, or raised.
        """
        if len(keys) == 1:
            return [await self._join(keys[0])]
        return await asyncio.gather(*map(self._join, keys))

    def _join(self, key: K) -> "asyncio.Future[V]":
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        group = self._groups.setdefault(self._group_of(key), _Group())
        group.waiting.setdefault(key, []).append(future)
        if len(group.rounds) < ROUNDS:
            self._begin(group)
        return future

    def _begin(self, group: "_Group[K, V]") -> None:
        task = asyncio.get_running_loop().create_task(self._round(group))
        group.rounds.add(task)
        task.add_done_callback(lambda done: self._ended(group, done))

    def _ended(self, group: "_Group[K, V]", task: "asyncio.Task[None]") -> None:
        group.rounds.discard(task)
        if group.waiting:
            self._begin(group)

    async def _round(self, group: "_Group[K, V]") -> None:
        # From here on nobody joins.
        keys = list(group.waiting)[:MOST]
        if not keys:
            return
        asked = [group.waiting.pop(key) for key in keys]
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
