"""Connections that never lose a cancellation.

On Python 3.11 `asyncio.wait_for` returns its result instead of its cancellation when both come at the same
moment, and the client sends each command through it. A loop that was cancelled there went on, and whoever
waited for its end waited for ever; a timeout that came there never was. So after each send we look whether
somebody has cancelled meanwhile, and do what `wait_for` should have done.
"""

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool

    class Sender:
        """What is known of the client's connections here; they are of several classes (TCP, TLS, unix)."""

        async def send_packed_command(self, command: Any, check_health: bool = True) -> None: ...  # noqa: FBT001, FBT002 - the client's own signature
        async def disconnect(self, *, nowait: bool = False) -> None: ...
else:
    Sender = object


class _Cancellable(Sender):
    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - the client's own signature
        task = asyncio.current_task()
        asked = task.cancelling() if task is not None else 0
        await super().send_packed_command(command, check_health)
        if task is not None and task.cancelling() > asked:
            # Its reply would be read by the next one who gets this connection.
            await self.disconnect(nowait=True)
            raise asyncio.CancelledError


def cancellable(pool: "BlockingConnectionPool") -> "BlockingConnectionPool":
    """Let all connections of `pool`, of whatever class, keep cancellations; returns the pool."""
    untyped: Any = pool
    untyped.connection_class = type("Connection", (_Cancellable, untyped.connection_class), {})
    return pool
