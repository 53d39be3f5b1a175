"""Looks at a Redis as an operator would before trusting it: what it is, what it permits, what it would lose.

For `broker doctor`, and each minute for a replica. `examine` writes only under the prefix, and what it wrote
is gone at the end; `glance` writes nothing. Answers facts; what they mean is the doctor's (broker/doctor.py).
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from broker.store.client import Connect, commands, node_of
from broker.store.errors import translated
from broker.store.greeting import version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SCRATCH_SECONDS = 60
PINGS = 20


@dataclass(frozen=True)
class Facts:
    """What a Redis said of itself. Sizes in bytes, times in seconds; None where it would not say."""

    product: str
    version: tuple[int, ...]
    role: str
    ping_median: float
    ping_worst: float
    clock_ahead: float
    max_memory: int
    used_memory: int
    eviction: str
    is_append_only: bool | None
    replicas: int
    has_min_replicas: bool
    """Whether it refuses to write while too few replicas follow (min-replicas-to-write)."""
    refused: dict[str, str]
    """What may not be done, and in which words Redis refused it."""
    node: str = ""
    """Which of several; "" of a single one."""


async def examine(how: Connect) -> list[Facts]:
    """Connect as a replica does, and look: on a cluster at each node that has a log.

    Raises:
        StoreUnavailable, WrongStore: with what is wrong, from store/errors.py.
    """
    redis = commands(how)
    try:
        logs = [how.keys.log(number) for number in range(how.keys.logs)]
        with translated():
            nodes = {log: await node_of(redis, log) for log in logs}
        first = {id(node.connection_pool): (node, log) for log, node in reversed(nodes.items())}
        return [await _examine(node, f"{log}:doctor:{secrets.token_hex(4)}") for node, log in first.values()]
    finally:
        await redis.aclose()


async def _examine(redis: Redis, scratch: str) -> Facts:
    with translated():
        await cast("Any", redis).ping()
        pings = [await _ping(redis) for _ in range(PINGS)]
        info: dict[str, Any] = await cast("Any", redis).info()
        before = time.time()
        seconds, micros = await cast("Any", redis).time()
        ahead = seconds + micros / 1e6 - (before + time.time()) / 2
        refused = await _refused(redis, scratch)
    where = redis.connection_pool.connection_kwargs
    node = f"{where.get('host')}:{where.get('port')}" if info.get("cluster_enabled") else ""
    return _facts(info, sorted(pings), ahead, refused, node)


async def glance(redis: Redis, how: Connect) -> Facts:
    """Look again at a server that is in use: one command, which changes nothing. On a cluster, at one node.

    Raises:
        StoreUnavailable, WrongStore: from store/errors.py.
    """
    with translated():
        node = cast("Any", await node_of(redis, how.keys.head(0)))
        before = time.time()
        info: dict[str, Any] = await node.info()
    took = time.time() - before
    # INFO tells the server's clock as well, in microseconds.
    told = info.get("server_time_usec")
    ahead = 0.0 if told is None else int(told) / 1e6 - (before + took / 2)
    return _facts(info, [took], ahead, {})


def _facts(
    info: dict[str, Any], pings: Sequence[float], ahead: float, refused: dict[str, str], node: str = ""
) -> Facts:
    """Read INFO, which says everything where CONFIG is forbidden, too (hosted servers)."""
    valkey = info.get("valkey_version")
    append_only = info.get("aof_enabled")
    return Facts(
        product="Valkey" if valkey else "Redis",
        version=version(str(valkey or info["redis_version"])),
        role=str(info["role"]),
        ping_median=pings[len(pings) // 2],
        ping_worst=pings[-1],
        clock_ahead=ahead,
        max_memory=int(info.get("maxmemory", 0)),
        used_memory=int(info.get("used_memory", 0)),
        eviction=str(info.get("maxmemory_policy", "noeviction")),
        is_append_only=None if append_only is None else bool(append_only),
        replicas=int(info.get("connected_slaves", 0)),
        # The line is there only where the setting is.
        has_min_replicas="min_slaves_good_slaves" in info,
        refused=refused,
        node=node,
    )


async def _ping(redis: Redis) -> float:
    started = time.perf_counter()
    await cast("Any", redis).ping()
    return time.perf_counter() - started


async def _refused(redis: Redis, scratch: str) -> dict[str, str]:
    """Try each kind of command that a broker sends, on keys of its own; return what was refused."""
    client = cast("Any", redis)
    tried: dict[str, Callable[[], Awaitable[Any]]] = {
        "scripts (EVAL)": lambda: client.eval("return redis.call('TIME')[1]", 0),
        "streams (XADD)": lambda: client.xadd(f"{scratch}:log", {"a": "b"}),
        "streams (XREAD)": lambda: client.xread({f"{scratch}:log": "0-0"}, count=1),
        "hashes (HSET, HMGET)": lambda: client.hset(f"{scratch}:hash", "a", "b"),
        "sorted sets (ZADD)": lambda: client.zadd(f"{scratch}:order", {"a": 0}),
        "strings (SET, GET)": lambda: client.set(f"{scratch}:token", "a", ex=SCRATCH_SECONDS),
        "lifetimes (EXPIRE)": lambda: client.expire(f"{scratch}:log", SCRATCH_SECONDS),
    }
    refused: dict[str, str] = {}
    for what, attempt in tried.items():
        try:
            await attempt()
        except ResponseError as error:
            refused[what] = str(error)
    try:
        await client.delete(*(f"{scratch}:{kind}" for kind in ("log", "hash", "order", "token")))
    except ResponseError as error:
        refused["removal (DEL)"] = str(error)
    return refused
