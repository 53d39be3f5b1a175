"""Measures how late the event loop is: what every stream of the replica feels when one callback is long."""

import asyncio

from broker.telemetry.metrics import Metrics

INTERVAL = 0.5
"""Seconds between samples."""


async def sample(metrics: Metrics) -> None:
    """Sample for ever."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + INTERVAL
        await asyncio.sleep(INTERVAL)
        metrics.loop_lagged(max(0.0, loop.time() - due))
