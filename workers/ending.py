"""Ends tasks: cancels them and waits. Connections keep cancellations (store/connection.py)."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel `tasks` and return when all have ended."""
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
