"""A Redis client that tells of every script it ran: by name, how long it took, and what went wrong.

Scripts are where the store's promises are kept, so they are what an operator wants timed; other commands of
ours are few. It knows no metrics and no traces: whoever makes the client says who is told. Calls that
batch.py sends together are not told of one by one.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import NoScriptError

from broker.store.scripts import name_of

OnScript = Callable[[str, float, Exception | None], None]
"""Gets the script's name, the seconds it took with the network, and the error if it failed."""

_EVALS = frozenset({"EVALSHA", "EVAL"})


async def timed(on_script: OnScript | None, args: Sequence[Any], send: Callable[[], Awaitable[Any]]) -> Any:
    """Return what `send` returns; if it sends a script of ours, tell `on_script`."""
    name = name_of(args[1]) if on_script is not None and args[0] in _EVALS else ""
    if on_script is None or not name:
        return await send()
    started = time.perf_counter()
    try:
        reply = await send()
    except NoScriptError:
        # Not a failure: it is sent again with its source, and timed then.
        raise
    except Exception as error:
        on_script(name, time.perf_counter() - started, error)
        raise
    on_script(name, time.perf_counter() - started, None)
    return reply


class TimedRedis(Redis):
    """A client whose scripts are timed."""

    def __init__(self, pool: BlockingConnectionPool, on_script: OnScript) -> None:
        cast("Any", super()).__init__(connection_pool=pool)  # its keyword arguments are untyped
        # As `Redis.from_pool` does: closing the client closes the pool.
        self.auto_close_connection_pool = True
        self._on_script = on_script

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command; see `redis.asyncio.Redis`."""
        execute = cast("Any", super()).execute_command
        return await timed(self._on_script, args, lambda: execute(*args, **options))
