"""A server of the official Python SDK: its own listen handler on uvicorn with uvloop and httptools.

    python_sdk.py HTTP_PORT CONTROL_PORT [--redis PORT] [--workers N] [--tuned]

Without Redis, whoever connects to the control port publishes: a line is the number of a URI. With Redis it
is one of `--workers` processes whose subscription bus is Redis' publish/subscribe, as the SDK's guide has it.
`--tuned` gives it our own collector settings. With `--reads` it has one static resource and nothing else.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from redis.asyncio import Redis

MOST = 100_000
CHANNEL = "bench"


class RedisBus:
    """The SDK's subscription bus over Redis publish/subscribe."""

    def __init__(self, port: int) -> None:
        self._redis: Any = Redis(port=port)
        self._listeners: dict[object, Callable[[Any], None]] = {}

    async def publish(self, event: Any) -> None:
        await self._redis.publish(CHANNEL, event.uri)

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener

        def leave() -> None:
            self._listeners.pop(token, None)

        return leave

    async def follow(self) -> None:
        """Hand on what is published, for ever."""
        subscription = self._redis.pubsub()
        await subscription.subscribe(CHANNEL)
        async for message in subscription.listen():
            if message["type"] == "message":
                event = ResourceUpdated(uri=message["data"].decode())
                for listener in list(self._listeners.values()):
                    listener(event)
                await asyncio.sleep(0)


async def follow_lines(bus: Any, port: int) -> None:
    """Publish the URIs that come as lines, for ever."""

    async def take(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await bus.publish(ResourceUpdated(uri=f"bench://u/{int(line)}"))

    server = await asyncio.start_server(take, "127.0.0.1", port, limit=1 << 20)
    async with server:
        await server.serve_forever()


def tune() -> None:
    """Set the collector as our broker does after its start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("http", type=int)
    parser.add_argument("control", type=int)
    parser.add_argument("--redis", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--reads", action="store_true")
    return parser.parse_args(os.environ["BENCH_ARGV"].split())


def build() -> Any:
    """Return the ASGI app of one process."""
    wanted = options()
    if wanted.reads:
        plain = MCPServer("bench")

        @plain.resource("bench://u/0")
        async def _page() -> str:
            return "x" * 1000

        return plain.streamable_http_app(json_response=True, stateless_http=True)
    bus: Any = RedisBus(wanted.redis) if wanted.redis else InMemorySubscriptionBus()
    server: Any = Server("bench", on_subscriptions_listen=ListenHandler(bus, max_subscriptions=MOST))
    app = server.streamable_http_app()
    inner = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(this: Any) -> AsyncGenerator[None]:
        async with inner(this):
            task = asyncio.create_task(bus.follow() if wanted.redis else follow_lines(bus, wanted.control))
            if wanted.tuned:
                tune()
            yield
            task.cancel()

    app.router.lifespan_context = lifespan
    return app


if __name__ == "__main__":
    os.environ["BENCH_ARGV"] = " ".join(sys.argv[1:])
    given = options()
    uvicorn.run(
        "python_sdk:build",
        factory=True,
        app_dir=os.path.dirname(os.path.abspath(__file__)),  # noqa: PTH100, PTH120 # what uvicorn takes
        host="127.0.0.1",
        port=given.http,
        workers=given.workers,
        backlog=4096,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
