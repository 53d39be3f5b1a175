"""Asks again about the opaque tokens of open streams, whose issuer cannot tell us that it took one back.

Each is asked about once in `every` seconds, at a moment of its own, however many streams it has. An issuer
that does not answer changes nothing: what it last said has an end of its own (http/auth/tokens.py). All of
it is done beside the guard's own looking, which must not wait for strangers.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from broker.core.errors import Unavailable
from broker.core.identity import Principal

_log = logging.getLogger(__name__)

TICK = 0.25
SHORTEST = 1.0
"""Seconds between two questions about one token, if answers are not to be remembered at all."""


class Streams(Protocol):
    """What it needs of the guard."""

    def tokens(self) -> dict[str, Principal]:
        """Return the opaque tokens of open streams, and who their callers are."""
        ...

    def refreshed(self, token: str, current: Principal | None) -> None:
        """Take in what the caller of a token is by now."""
        ...


class Recheck:
    """The questions of one replica; `ask` returns who a caller is by now, None if it may call no more."""

    def __init__(self, ask: Callable[[Principal], Awaitable[Principal | None]], every: float) -> None:
        self._ask = ask
        self._every = max(SHORTEST, every)
        self._due: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Recheck {len(self._due)} tokens>"

    async def run(self, streams: Streams) -> None:
        """Ask for ever."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(TICK)
                now = loop.time()
                held = streams.tokens()
                self._due = {token: self._due.get(token) or self._next(now) for token in held}
                for token, due in self._due.items():
                    if due <= now:
                        self._due[token] = self._next(now)
                        group.create_task(self._one(streams, held[token]))

    def _next(self, now: float) -> float:
        # Just above the age at which an answer is forgotten, so that it is a question and no memory.
        return now + self._every * random.uniform(1.01, 1.1)

    async def _one(self, streams: Streams, principal: Principal) -> None:
        try:
            current = await self._ask(principal)
        except Unavailable as error:
            _log.debug("token_not_rechecked", extra={"why": str(error)})
            return
        except Exception:  # a bug here must not end the replica
            _log.exception("token_recheck_failed")
            return
        streams.refreshed(principal.token, current)
