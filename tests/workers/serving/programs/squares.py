"""A worker that answers with squares, some of them slowly."""

import asyncio
import os

from workers.worker import Worker

worker = Worker("squares")


@worker.resource("square://{number}")
async def square(number: int) -> str:
    await asyncio.sleep(0.02)
    return str(number * number)


@worker.resource("slow://{number}")
async def slow(number: int) -> str:
    await asyncio.sleep(1.0)
    return f"{number} {os.getpid()}"
