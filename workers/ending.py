"""Ends tasks for certain.

On Python 3.11 `asyncio.wait_for` returns its result instead of its cancellation when both come at the same
moment, and the Redis client sends each command through it: a task that is cancelled there goes on as if
nothing had happened, and whoever waits for its end waits for ever. So it is asked again until it has ended.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 0.5


async def end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel `tasks` and return when all have ended."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_SECONDS)
