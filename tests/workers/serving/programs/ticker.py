"""A worker that publishes its process id again and again while somebody watches."""

import asyncio
import os

from workers import Publisher
from workers.worker import Worker

worker = Worker("ticker")


@worker.resource("tick://{name}")
def tick(name: str) -> str:
    return name


@worker.on_watched("tick://{name}")
async def publish(uri: str) -> None:
    async with Publisher() as publisher:
        while True:
            await publisher.publish(uri, str(os.getpid()))
            await asyncio.sleep(0.2)
