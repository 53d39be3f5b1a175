"""Reads this replica's inbox: the answers of workers to its calls.

Rules:

1. The loop never dies of Redis, nor of an answer that it cannot read.
2. Reading starts behind the last entry that was read, and at the beginning after any failure: the server may
   be another one, whose clock runs behind. What is met twice is dropped by the call's id.
3. What was read is removed, so the inbox holds what is under way and no more.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from broker.core.errors import BrokerError
from broker.store.calls import CallStore, Letter

_log = logging.getLogger(__name__)

BEGINNING = "0-0"


class Inbox:
    """The reader of one replica's inbox."""

    def __init__(
        self,
        store: CallStore,
        deliver: Callable[[str, bytes], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._store = store
        self._deliver = deliver
        self._spawn = spawn
        self._after = BEGINNING

    async def run(self) -> None:
        """Read for ever."""
        failures = 0
        while True:
            try:
                await self._read()
                failures = 0
            except BrokerError as error:
                failures += 1
                if failures == 1:
                    _log.warning("inbox_lost_redis", extra={"error": str(error)})
            except Exception:  # rule 1
                failures += 1
                _log.exception("inbox_failed")
            if failures:
                self._after = BEGINNING
                await asyncio.sleep(min(1.0, 0.05 * 2 ** min(failures, 5)) * random.uniform(0.5, 1.0))

    async def _read(self) -> None:
        letters = await self._store.letters(self._after)
        for letter in letters:
            self._after = letter.entry
            if letter.result is None:
                self._spawn(self._fetch(letter))
            else:
                self._deliver(letter.call, letter.result)
        if letters:
            self._spawn(self._discard(self._after))

    async def _fetch(self, letter: Letter) -> None:
        try:
            data = await self._store.fetch(letter.call)
        except BrokerError as error:
            _log.warning("answer_lost", extra={"call": letter.call, "error": str(error)})
            return
        if data is not None:
            self._deliver(letter.call, data)

    async def _discard(self, upto: str) -> None:
        try:
            await self._store.discard(upto)
        except BrokerError:
            # The next one discards these, too; and the inbox has a limit and an end of its own.
            return
