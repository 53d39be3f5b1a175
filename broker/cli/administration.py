"""What `broker tenant` and `broker key` share: Redis, the actor, and how they print.

They talk to Redis directly, as `broker publish` does, so whoever may run them holds Redis credentials and is
trusted like a broker; the same over HTTP, with a credential of its own, is http/admin.py.
"""

import asyncio
import getpass
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from broker.cli import place
from broker.settings import Settings
from broker.store.client import Client, Connect, commands, keys_at
from broker.store.control import Control
from broker.store.keys import Keys


class Desk:
    """Where an administrator's command acts."""

    def __init__(self, redis: Client, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys
        self.control = Control(redis, keys)
        self.actor = f"shell:{getpass.getuser()}"


def run_act(settings: Settings, act: Callable[[Desk], Awaitable[None]]) -> int:
    """Do `act` with a connection of its own.

    Raises:
        Misconfigured: no Redis to talk to.
    """

    async def main() -> None:
        url = place.redis_url(settings)
        keys = keys_at(url, settings.prefix)
        redis = commands(Connect(url, keys, access=settings.redis.access))
        try:
            await act(Desk(redis, keys))
        finally:
            await redis.aclose()

    asyncio.run(main())
    return 0


def say(text: str) -> None:
    """Print the command's answer."""
    print(text)  # noqa: T201 # a shell command's answer


def note(text: str) -> None:
    """Tell the person at the keyboard something that is not the answer."""
    print(text, file=sys.stderr)  # noqa: T201 # said to the person typing


def say_json(value: Any) -> None:
    """Print a record as one line of JSON."""
    say(json.dumps(value))
