"""A worker whose function does not end when it is cancelled."""

import asyncio

from workers.worker import Worker

worker = Worker("stubborn")


@worker.resource("stubborn://{part}")
async def stubborn(part: str) -> str:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    return part
