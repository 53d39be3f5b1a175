"""Lua scripts as decided calls: what to send is a value, sending it is one line.

A `Call` is made by a plain function (publishing.py, sessions.py, …) that never awaits; `run` and `run_sync`
send it and translate what comes back. So there is one implementation for the async broker and for plain
scripts, and no hand-kept twins.

One script per promise: each file in lua/ says at its top what is all-or-nothing, its KEYS and its ARGV.
The first three arguments of every script that writes to a log are `Fresh`: schema, mark, epoch.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from redis.exceptions import NoScriptError

from broker.core import trace
from broker.store.errors import translated

if TYPE_CHECKING:
    from redis import Redis as SyncRedis
    from redis.asyncio import Redis

SCHEMA = "1"
"""What these scripts read and write; kept in each log's head and checked by every script."""

T = TypeVar("T")
Value = str | bytes | int
_INCLUDE = re.compile(r"^--@include (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """A Lua script with its includes resolved."""

    name: str
    source: str
    sha: str = field(repr=False)


_NAMES: dict[str, str] = {}
"""Source or digest → name, of the scripts that were used."""


@cache
def script(name: str) -> Script:
    """Return the script lua/`name`.lua."""
    source = _INCLUDE.sub(lambda match: _text(match[1]), _text(name))
    made = Script(name, source, sha1(source.encode(), usedforsecurity=False).hexdigest())
    _NAMES[made.sha] = _NAMES[made.source] = name
    return made


def name_of(script_or_sha: object) -> str:
    """Return the name of one of our scripts by its source or digest, "" for any other."""
    return _NAMES.get(script_or_sha, "") if isinstance(script_or_sha, str) else ""


def _text(name: str) -> str:
    return files("broker.store").joinpath("lua", f"{name}.lua").read_text()


def fresh() -> tuple[str, str, str]:
    """Return a writing script's first arguments: schema, a new mark, an epoch in case one begins.

    Behind the epoch stands the trace context of the caller, if there is one (lua/append.lua).
    """
    return SCHEMA, secrets.token_hex(4), secrets.token_hex(4) + trace.current()


@dataclass(frozen=True)
class Call(Generic[T]):
    """A script call that was decided: send it with `run` or `run_sync`.

    `read` turns the reply into the answer; it may raise a BrokerError.
    """

    script: Script
    keys: Sequence[str]
    args: Sequence[Value]
    read: Callable[[Any], T]

    @property
    def command(self) -> tuple[Value, ...]:
        """The arguments of EVALSHA."""
        return (self.script.sha, len(self.keys), *self.keys, *self.args)


async def run(redis: "Redis", call: Call[T]) -> T:
    """Send `call` and return its answer.

    Raises:
        StoreUnavailable: Redis cannot answer now; the call may be sent again (writes carry a token).
        WrongStore: Redis holds something that is not ours.
    """
    execute = cast("Any", redis).execute_command  # replies are untyped; call.read looks at them
    with translated():
        try:
            reply = await execute("EVALSHA", *call.command)
        except NoScriptError:
            # Caches vanish on restart, failover and SCRIPT FLUSH; EVAL also fills them again.
            reply = await execute("EVAL", call.script.source, len(call.keys), *call.keys, *call.args)
    return call.read(reply)


def run_sync(redis: "SyncRedis", call: Call[T]) -> T:
    """Do what `run` does, for plain scripts.

    Raises:
        StoreUnavailable, WrongStore: as `run`.
    """
    execute = cast("Any", redis).execute_command
    with translated():
        try:
            reply = execute("EVALSHA", *call.command)
        except NoScriptError:
            reply = execute("EVAL", call.script.source, len(call.keys), *call.keys, *call.args)
    return call.read(reply)
