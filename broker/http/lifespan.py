"""The ASGI lifespan of the public app, driven by us.

uvicorn's own driver turns a failed start into a log line and SystemExit; here the app's own exception comes
back to the caller, so that a misconfiguration can end as a sentence, and an app that dies is noticed at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]


class Lifespan:
    """Startup and shutdown of one app; `state` is what each of its requests gets as scope["state"]."""

    def __init__(self, app: App) -> None:
        self.state: dict[str, Any] = {}
        self._app = app
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run the app's startup.

        Raises:
            Exception: whatever the app raised in its startup.
        """
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        self._task = asyncio.create_task(self._run(scope), name="lifespan")
        await self._ask("startup")

    async def stop(self) -> None:
        """Run the app's shutdown, if its startup was completed and it still runs.

        Raises:
            Exception: whatever the app raised.
        """
        if self._task is None:
            return
        if not self._task.done() and not self._task.cancelling():
            await self._ask("shutdown")
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    def cancel(self) -> None:
        """Give up a startup that is under way."""
        if self._task is not None:
            self._task.cancel()

    async def died(self) -> None:
        """Return when the app's lifespan has ended, which it should do in `stop` only.

        Raises:
            Exception: whatever ended it.
        """
        assert self._task is not None
        await asyncio.shield(self._task)

    async def _run(self, scope: dict[str, Any]) -> None:
        await self._app(scope, self._events.get, self._answers.put)

    async def _ask(self, what: str) -> None:
        assert self._task is not None
        await self._events.put({"type": f"lifespan.{what}"})
        answer = asyncio.create_task(self._answers.get())
        await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            await self._task
            raise RuntimeError(f"The app ended its lifespan without an answer to {what}.")
        message = answer.result()
        if message["type"] != f"lifespan.{what}.complete":
            # The app's own exception says more than the text of its answer.
            await self._task
            raise RuntimeError(f"The app's {what} failed: {message.get('message', '')}")
