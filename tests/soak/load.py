"""The load of a soak: publishers, streams that stay, and visitors that come, are told, and go.

Every visitor checks that it was told: a soak in which cues go missing proves nothing by staying small.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx

from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.wait import until
from workers import Publisher

TENANTS = 8
URIS = 250
BATCH = 25
VISITORS = 48
WATCHED = 5
CUE_SECONDS = 30.0


def tenant(number: int) -> str:
    return f"tenant-{number % TENANTS}"


def uri(number: int) -> str:
    return f"soak://{number % URIS}"


@dataclass
class Counts:
    """What was done so far."""

    published: int = 0
    connects: int = 0
    told: int = 0
    refused: int = 0
    """Answers that said to try again: the machine's business, and not a fault."""
    failures: Counter[str] = field(default_factory=Counter[str])

    @property
    def failed(self) -> int:
        return self.failures.total()

    def fail(self, error: Exception, where: str) -> None:
        self.failures[f"{where}: {type(error).__name__}: {str(error)[:200]}"] += 1


class Pace:
    """Lets things happen evenly: `total` of them over `seconds`, and then on at that rate until `until`."""

    def __init__(self, total: int, seconds: float, until: asyncio.Event | None = None) -> None:
        self._total = total
        self._seconds = seconds
        self._until = until
        self._begun = asyncio.get_running_loop().time()
        self._taken = 0

    async def turn(self) -> int | None:
        """Return the next number when its time has come; None when all are taken."""
        if self._taken >= self._total and (self._until is None or self._until.is_set()):
            return None
        number = self._taken
        self._taken += 1
        due = self._begun + number * self._seconds / self._total
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        return number


async def publish(redis_url: str, prefix: str, pace: Pace, counts: Counts) -> None:
    """Publish at the pace, in batches over all tenants and URIs; contents differ each time."""
    async with asyncio.TaskGroup() as group:
        for each in range(TENANTS):
            group.create_task(_publish(redis_url, prefix, tenant(each), pace, counts))


async def _publish(redis_url: str, prefix: str, owner: str, pace: Pace, counts: Counts) -> None:
    async with Publisher(redis_url, tenant=owner, prefix=prefix) as publisher:
        at = 0
        while (number := await pace.turn()) is not None:
            batch = [(uri(at + each), f"{number} {each} " + "x" * 200) for each in range(BATCH)]
            at += BATCH
            for result in await publisher.publish_many(batch):
                if isinstance(result, Exception):
                    counts.fail(result, "publish")
                else:
                    counts.published += 1


async def visit(
    urls: Sequence[str], http: httpx.AsyncClient, pace: Pace, counts: Counts, done: asyncio.Event
) -> None:
    """Let visitors come at the pace: in turns of each era, one in four leaves without a word.

    `done` is set when the last has gone: until then there must be something to be told.
    """
    visits: list[Callable[..., Awaitable[None]]] = [_listen, _hold_session]

    async def come() -> None:
        rng = random.Random()
        while (number := await pace.turn()) is not None:
            try:
                async with asyncio.timeout(2 * CUE_SECONDS):
                    await visits[number % 2](
                        urls[number // 2 % len(urls)], http, number, is_rude=rng.random() < 0.25
                    )
                counts.told += 1
            except Exception as error:
                if isinstance(error, RpcError) and "'retryable': True" in str(error):
                    counts.refused += 1
                    continue
                counts.fail(error, visits[number % 2].__name__.strip("_"))
            finally:
                counts.connects += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(VISITORS):
            group.create_task(come())
    done.set()


async def _listen(url: str, http: httpx.AsyncClient, number: int, *, is_rude: bool) -> None:
    client = Modern(url, tenant(number), http)
    watched = [uri(number + step * BATCH) for step in range(WATCHED)]
    async with await client.listen(watched) as listening:
        await _told(lambda: len(listening.cues))
    if not is_rude:
        await client.read(watched[0])


async def _hold_session(url: str, http: httpx.AsyncClient, number: int, *, is_rude: bool) -> None:
    client = Handshake(url, tenant(number), http)
    await client.initialize()
    watched = [uri(number + step * BATCH) for step in range(WATCHED)]
    async with await client.get_stream() as stream:
        for each in watched:
            await client.subscribe(each)
        await _told(lambda: len(stream.cues))
    await client.read(watched[0])
    if not is_rude:
        await client.delete()


async def _told(cues: Callable[[], int]) -> None:
    await until(cues, "a cue", CUE_SECONDS)
