"""Connections to Redis: two async clients for a broker, one of either kind for a worker.

Rules:

1. The first commands on every connection are INFO server and adopt.lua: a server that started again, or is
   another one, begins a new epoch before anything else is sent on it (design section 3, "Run id first").
   A connection to a read-only replica fails there, so it never writes later, when the replica is promoted.
2. *commands*: bounded pool with a bounded wait, short timeouts, two jittered retries. Scripts that write
   carry a token or are idempotent, since the client resends a command whose reply was lost.
3. *reader*: XREAD BLOCK only; one connection, no retry (its loop decides), a socket timeout above the block.
   The library's defaults cut longer blocks silently, and no timeout at all hangs on a black hole for ever.
4. Replies are RESP2 and bytes everywhere; one shape to decode.
"""

import secrets
from dataclasses import dataclass
from typing import Any, cast

from redis import BlockingConnectionPool as SyncPool
from redis import Redis as SyncRedis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import DecorrelatedJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry as SyncRetry

from broker.store.connection import cancellable
from broker.store.keys import SHARDS, Keys
from broker.store.scripts import SCHEMA, script
from broker.store.timing import OnScript, TimedRedis

Client = Redis
"""The async client, under the name by which others may hold one: only store/ imports redis."""

READ_BLOCK_MS = 1000
READER_TIMEOUT = 2.0
"""Seconds; above the block, and within promise 2's bound for a silent loss."""


@dataclass(frozen=True)
class Connect:
    """How to reach Redis. Times in seconds.

    `log_length` is set by brokers (entries kept per log); workers leave it None and obey what is there.
    """

    url: str
    keys: Keys
    pool_size: int = 20
    pool_wait: float = 1.0
    timeout: float = 2.0
    connect_timeout: float = 1.0
    log_length: int | None = None


def _adopt_arguments(how: Connect, number: int, info: bytes) -> tuple[Any, ...]:
    """Return the EVAL that must come first on a connection whose INFO server said `info`."""
    run_id = ""
    for line in info.decode().splitlines():
        if line.startswith("run_id:"):
            run_id = line.removeprefix("run_id:")
    log, head = how.keys.log(number), how.keys.head(number)
    length = how.log_length if how.log_length is not None else ""
    return (
        "EVAL", script("adopt").source, 2, log, head,
        SCHEMA, secrets.token_hex(4), secrets.token_hex(4), run_id, SHARDS, length,
    )  # fmt: skip


def _connected(how: Connect) -> Any:
    async def on_connect(connection: Any) -> None:
        # No health check here, which is the client's default: its ping, on a connection that was accepted and
        # closed at once (a proxy in front of a dead Redis), connects again from inside of connecting, without
        # end.
        await connection.on_connect_check_health(check_health=False)
        await connection.send_command("INFO", "server", check_health=False)
        info = await connection.read_response()
        for number in range(how.keys.logs):
            await connection.send_command(*_adopt_arguments(how, number, info), check_health=False)
            await connection.read_response()

    return on_connect


def _connected_sync(how: Connect) -> Any:
    def on_connect(connection: Any) -> None:
        connection.on_connect_check_health(check_health=False)
        connection.send_command("INFO", "server", check_health=False)
        info = connection.read_response()
        for number in range(how.keys.logs):
            connection.send_command(*_adopt_arguments(how, number, info), check_health=False)
            connection.read_response()

    return on_connect


async def node_of(redis: Redis, key: str) -> Redis:  # noqa: ARG001 - one server holds all keys
    """Return the client of the server that holds `key`: what is not about keys is asked there."""
    return redis


async def disconnect(redis: Redis) -> None:
    """Drop the client's connections: what waits on one fails, and the next command makes another."""
    await redis.connection_pool.disconnect()


async def adopt(redis: Redis, how: Connect, number: int) -> None:
    """Do on an open connection what is done first on each: begin the log's head where it is gone."""
    execute = cast("Any", await node_of(redis, how.keys.head(number))).execute_command
    # The client parses INFO into a dict; only the run id matters here.
    info: dict[str, Any] = await execute("INFO", "server")
    await execute(*_adopt_arguments(how, number, f"run_id:{info['run_id']}".encode()))


_RETRIED = (RedisConnectionError, RedisTimeoutError)
_RETRIED_BY_UVLOOP: Any = (*_RETRIED, RuntimeError)
"""uvloop's word for a connection that was closed before it was written to (errors.is_cut)."""
_BACKOFF = DecorrelatedJitterBackoff(cap=0.2, base=0.02)
_RETRIES = 2


def _options(how: Connect, timeout: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "timeout": how.pool_wait,
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": how.connect_timeout,
    }
    if not how.url.startswith("unix:"):
        options["socket_keepalive"] = True
    return options


def commands(how: Connect, on_script: OnScript | None = None) -> Redis:
    """Return the client for everything but tailing; close it with `aclose`.

    `on_script` is told of every call of a script (store/timing.py).
    """
    make = cast("Any", BlockingConnectionPool).from_url  # its keyword arguments are untyped
    pool = make(
        how.url,
        max_connections=how.pool_size,
        health_check_interval=10,
        retry=Retry(_BACKOFF, _RETRIES, supported_errors=_RETRIED_BY_UVLOOP),
        redis_connect_func=_connected(how),
        **_options(how, how.timeout),
    )
    cancellable(pool)
    return Redis.from_pool(pool) if on_script is None else TimedRedis(pool, on_script)


def reader(how: Connect, beside: Redis | None = None) -> Redis:  # noqa: ARG001 - there is no cluster yet
    """Return a client that only waits for entries, on one connection; close it with `aclose`.

    `beside`: the process' client for commands, whose knowledge of a cluster it shares.
    """
    make = cast("Any", BlockingConnectionPool).from_url  # its keyword arguments are untyped
    pool = make(
        how.url,
        max_connections=1,
        retry=Retry(NoBackoff(), 0),
        redis_connect_func=_connected(how),
        **_options(how, READER_TIMEOUT),
    )
    return Redis.from_pool(cancellable(pool))


def commands_sync(how: Connect) -> SyncRedis:
    """Return the client for plain scripts; close it with `close`."""
    make = cast("Any", SyncPool).from_url  # its keyword arguments are untyped
    pool = make(
        how.url,
        max_connections=how.pool_size,
        health_check_interval=10,
        retry=SyncRetry(_BACKOFF, _RETRIES, supported_errors=_RETRIED),
        redis_connect_func=_connected_sync(how),
        **_options(how, how.timeout),
    )
    return SyncRedis.from_pool(pool)
