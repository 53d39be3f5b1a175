"""Waiting for a condition under a ceiling, in a coroutine or in a thread."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

POLL = 0.01
"""Seconds between two looks at a condition."""


class StillNot(AssertionError):
    """What was waited for did not come in time."""


def _sentence(what: str | Callable[[], Any], seconds: float) -> str:
    return f"after {seconds:g} s still not: {what if isinstance(what, str) else what()}"


async def until(condition: Callable[[], Any], what: str | Callable[[], Any], seconds: float = 10.0) -> Any:
    """Return the condition's first true answer; it may be a coroutine function.

    Raises:
        StillNot: it was still false after `seconds`; `what` (or what it returns then) is the message.
    """
    end = time.monotonic() + seconds
    while True:
        answer: Any = condition()
        if isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > end:
            raise StillNot(_sentence(what, seconds))
        await asyncio.sleep(POLL)


def until_sync(condition: Callable[[], Any], what: str | Callable[[], Any], seconds: float = 10.0) -> Any:
    """Do the same as `until` in a thread that may block."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise StillNot(_sentence(what, seconds))
        time.sleep(POLL)


async def stays(condition: Callable[[], Any], what: str, seconds: float) -> None:
    """Watch that a condition holds all the time for `seconds`: for promises that something never happens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), f"no longer: {what}"
        await asyncio.sleep(POLL)


async def within(awaitable: Awaitable[Any], what: str, seconds: float = 10.0) -> Any:
    """Await something under a ceiling.

    Raises:
        StillNot: it took longer; the message says what did not come.
    """
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        raise StillNot(_sentence(what, seconds)) from None
