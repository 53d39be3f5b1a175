"""The whole app in this process, asked as a server would: for what a server's own parser does not pass."""

import asyncio
import contextlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from broker.app import Broker, build
from broker.http.lifespan import Lifespan
from broker.settings import Settings
from tests.support.loop_thread import LoopThread
from tests.support.wait import until_sync

HANG_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """What the app sent: of a stream only its beginning."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class InProcess:
    """A running broker, with a Redis of its own or not, in a thread with a loop of its own."""

    def __init__(self, thread: LoopThread, broker: Broker) -> None:
        self._thread = thread
        self._broker = broker

    def ask(
        self,
        method: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: Sequence[bytes] = (b"",),
        path: str = "/mcp",
    ) -> Answer:
        """Return the answer to a request whose body comes in pieces; of a stream its first piece.

        Raises:
            TimeoutError: it did not come.
        """
        scope: dict[str, Any] = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": list(headers),
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        return self._thread.run(self._ask(scope, body))

    async def _ask(self, scope: dict[str, Any], body: Sequence[bytes]) -> Answer:
        pieces = iter([*body, None])
        is_enough = asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            piece = next(pieces, None)
            if piece is None:
                await is_enough.wait()
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": piece is not body[-1]}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                is_enough.set()

        async with asyncio.timeout(HANG_SECONDS):
            await self._broker.public(scope, receive, send)
        start, *bodies = sent
        return Answer(
            start["status"], dict(start["headers"]), b"".join(each.get("body", b"") for each in bodies)
        )


@contextlib.contextmanager
def running(redis_url: str, prefix: str) -> Generator[InProcess]:
    """Run a broker until the end of the block."""
    thread = LoopThread("broker")
    try:
        broker = build(Settings(redis_url=redis_url, prefix=prefix))
        lifespan = Lifespan(broker.public)
        thread.run(lifespan.start())
        until_sync(lambda: thread.call(broker.replica.readiness) is None, "the broker is ready")
        try:
            yield InProcess(thread, broker)
        finally:
            thread.run(lifespan.stop())
    finally:
        thread.close()
