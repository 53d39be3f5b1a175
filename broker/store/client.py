"""Connections to Redis: two async clients for a broker, one of either kind for a worker.

Rules:

1. The first commands on every connection are those of greeting.py: INFO and adopt.lua. A connection to a
   read-only replica fails there, so it never writes later, when the replica is promoted; and no connection
   outlives what it was opened with: see connection.py for what follows a primary that moves.
2. *commands*: bounded pool with a bounded wait, short timeouts, two jittered retries. Scripts that write
   carry a token or are idempotent, since the client resends a command whose reply was lost.
3. *reader*: XREAD BLOCK only; one connection, no retry (its loop decides), a socket timeout above the block.
   The library's defaults cut longer blocks silently, and no timeout at all hangs on a black hole for ever.
4. On a cluster (cluster.py) rule 1 holds for each log, and a client has a pool for each node.
5. Replies are RESP2 and bytes everywhere; one shape to decode.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from redis import BlockingConnectionPool as SyncBlockingPool
from redis import Redis as SyncRedis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import DecorrelatedJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry as SyncRetry

from broker.core.errors import BrokerError, StoreUnavailable
from broker.store import address as addresses
from broker.store import cluster, cluster_sync, tls
from broker.store.address import NO_ACCESS, Access, Address, Host, Shape
from broker.store.cluster import SUSPECT_SECONDS, Cluster, Topology
from broker.store.cluster_sync import SyncCluster
from broker.store.connection import Course, connection_class, sync_connection_class
from broker.store.errors import ours
from broker.store.greeting import adopt_command, greeting
from broker.store.keys import SHARDS, Keys
from broker.store.login import provider
from broker.store.sentinel import Sentinels, SyncSentinels, Watch, drop
from broker.store.slots import RETRIES
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

    Raises:
        Misconfigured: the URL, or what the settings say beside it, cannot be used.
    """

    url: str
    keys: Keys
    pool_size: int = 20
    pool_wait: float = 1.0
    timeout: float = 2.0
    connect_timeout: float = 1.0
    log_length: int | None = None
    access: Access = NO_ACCESS

    def __post_init__(self) -> None:
        # What can be refused without a connection is refused here, once.
        tls.check(self.address.tls)

    @cached_property
    def address(self) -> Address:
        """Where Redis is, and how we get in."""
        return addresses.parse(self.url, self.access)


def _cut(how: Connect, error: RedisConnectionError) -> Exception:
    """Return what to raise when a server closed the connection at our first words."""
    if type(error) is not RedisConnectionError:
        return error
    perhaps = (
        "perhaps it wants a certificate of ours (BROKER_REDIS__CERT_FILE)"
        if how.address.tls is not None
        else "perhaps it speaks TLS on this port (rediss://)"
    )
    return ours(StoreUnavailable(f"Redis closed the connection at our first words; {perhaps} ({error})."))


def _refused(connection: Any, error: BrokerError) -> Exception:
    """Return what to raise inside of the client when a server will not do."""
    if error.retryable:
        # It is a replica now, so connections that were opened to it before are good for nothing.
        connection.course.turned()
    return ours(error)


def _connected(how: Connect) -> Any:
    async def on_connect(connection: Any) -> None:
        try:
            await greet(connection)
        except RedisConnectionError as error:
            raise _cut(how, error) from error

    async def greet(connection: Any) -> None:
        # No health check here, which is the client's default: its ping, on a connection that was accepted and
        # closed at once (a proxy in front of a dead Redis), connects again from inside of connecting, without
        # end.
        await connection.on_connect_check_health(check_health=False)
        rounds = greeting(how.keys, how.address.shape, how.log_length)
        replies: Any = None
        while True:
            try:
                commands = rounds.send(replies)
            except StopIteration:
                return
            except BrokerError as error:
                raise _refused(connection, error) from None
            for command in commands:
                await connection.send_command(*command, check_health=False)
            replies = [await connection.read_response() for _ in commands]

    return on_connect


def _connected_sync(how: Connect) -> Any:
    def on_connect(connection: Any) -> None:
        try:
            greet(connection)
        except RedisConnectionError as error:
            raise _cut(how, error) from error

    def greet(connection: Any) -> None:
        connection.on_connect_check_health(check_health=False)
        rounds = greeting(how.keys, how.address.shape, how.log_length)
        replies: Any = None
        while True:
            try:
                commands = rounds.send(replies)
            except StopIteration:
                return
            except BrokerError as error:
                raise _refused(connection, error) from None
            for command in commands:
                connection.send_command(*command, check_health=False)
            replies = [connection.read_response() for _ in commands]

    return on_connect


def keys_at(url: str, prefix: str) -> Keys:
    """Return the keys of the installation `prefix` at `url`: on a cluster each shard has a log of its own.

    Raises:
        Misconfigured: the URL or the prefix cannot be read.
    """
    # What is said beside the URL changes nothing in its shape.
    return Keys(prefix, SHARDS if addresses.shape(url) is Shape.CLUSTER else 1)


async def node_of(redis: Redis, key: str) -> Redis:
    """Return the client of the server that holds `key`: what is not about keys is asked there."""
    return await redis.node_of(key) if isinstance(redis, Cluster) else redis


async def disconnect(redis: Redis) -> None:
    """Drop the client's connections: what waits on one fails, and the next command makes another."""
    await (redis if isinstance(redis, Cluster) else redis.connection_pool).disconnect()


async def adopt(redis: Redis, how: Connect, number: int) -> None:
    """Do on an open connection what is done first on each: begin the log's head where it is gone."""
    if isinstance(redis, Cluster):
        # By whichever connection is next.
        redis.renew(number)
        return
    execute = cast("Any", redis).execute_command
    # The client parses INFO into a dict; only the run id matters here.
    info: dict[str, Any] = await execute("INFO", "server")
    await execute(*adopt_command(how.keys, number, str(info["run_id"]), how.log_length))


_RETRIED = (RedisConnectionError, RedisTimeoutError)
_RETRIED_BY_UVLOOP: Any = (*_RETRIED, RuntimeError)
"""uvloop's word for a connection that was closed before it was written to (errors.is_cut)."""
_BACKOFF = DecorrelatedJitterBackoff(cap=0.2, base=0.02)


def _options(how: Connect, timeout: float, node: Host | None = None) -> dict[str, Any]:
    """Return what pools and connections of every kind are made with; `node` is one of a cluster."""
    address = how.address
    options: dict[str, Any] = {
        "timeout": how.pool_wait,
        "protocol": 2,
        "db": address.db,
        "credential_provider": provider(address.login),
        "socket_timeout": timeout,
        "socket_connect_timeout": how.connect_timeout,
    }
    if address.socket is not None:
        return {**options, "path": address.socket}
    # With sentinels it is overwritten before each connecting.
    host, port = node or address.hosts[0]
    return {**options, "host": host, "port": port, "socket_keepalive": True}


class Pool(BlockingConnectionPool):
    """A pool whose connections stay on one course, and the sentinels that set it, if there are any."""

    def __init__(self, how: Connect, course: Course | None = None, **options: Any) -> None:
        self.course = course or Course()
        self.sentinels = (
            Sentinels(how.address, how.connect_timeout) if how.address.shape is Shape.SENTINEL else None
        )
        cast("Any", super()).__init__(
            connection_class=connection_class(how.address, self.course, self.sentinels),
            redis_connect_func=_connected(how),
            **options,
        )

    async def to(self, host: Host) -> None:
        """Leave every connection that is not to `host`, whatever waits for it."""
        self.course.to(host)  # pools of one process may share it, so this may be no news
        if self.sentinels is not None:
            await drop(list(cast("Any", self)._in_use_connections), host)  # noqa: SLF001 - there is no other way to them

    async def aclose(self) -> None:
        """Close everything."""
        await super().aclose()
        if self.sentinels is not None:
            await self.sentinels.aclose()


def _node_pool(how: Connect, host: Host, size: int, timeout: float) -> BlockingConnectionPool:
    """Return the connections to one node of a cluster."""
    make = cast("Any", BlockingConnectionPool)  # its keyword arguments are untyped
    return make(
        connection_class=connection_class(how.address, Course()),
        redis_connect_func=cluster.on_connect,
        max_connections=size,
        retry=Retry(NoBackoff(), 0),
        **_options(how, timeout, host),
    )


def _bare(how: Connect, host: Host) -> Any:
    """Return a connection to one node that adopts nothing: it asks where the slots are."""
    options = _options(how, how.connect_timeout, host)
    del options["timeout"]
    return connection_class(how.address, Course())(retry=Retry(NoBackoff(), 0), **options)


def _node_pool_sync(how: Connect, host: Host) -> SyncBlockingPool:
    make = cast("Any", SyncBlockingPool)  # its keyword arguments are untyped
    return make(
        connection_class=sync_connection_class(how.address, Course()),
        redis_connect_func=cluster_sync.on_connect,
        max_connections=how.pool_size,
        retry=SyncRetry(NoBackoff(), 0),
        **_options(how, how.timeout, host),
    )


def _bare_sync(how: Connect, host: Host) -> SyncRedis:
    make = cast("Any", SyncBlockingPool)  # its keyword arguments are untyped
    pool = make(
        connection_class=sync_connection_class(how.address, Course()),
        max_connections=1,
        retry=SyncRetry(NoBackoff(), 0),
        **_options(how, how.connect_timeout, host),
    )
    return SyncRedis.from_pool(pool)


def _pool_of(client: Redis) -> Pool:
    return cast("Pool", cast("Any", client).connection_pool)


def commands(how: Connect, on_script: OnScript | None = None) -> Redis:
    """Return the client for everything but tailing; close it with `aclose`.

    `on_script` is told of every call of a script (store/timing.py).
    """
    if how.keys.is_sharded:
        return Cluster(
            Topology(how.address.hosts, how.keys, lambda host: _bare(how, host)),
            lambda host: _node_pool(how, host, how.pool_size, how.timeout),
            how.keys,
            how.log_length,
            retries=RETRIES,
            on_script=on_script,
            owns_topology=True,
        )
    pool = Pool(
        how,
        max_connections=how.pool_size,
        health_check_interval=10,
        retry=Retry(_BACKOFF, RETRIES, supported_errors=_RETRIED_BY_UVLOOP),
        **_options(how, how.timeout),
    )
    return Redis.from_pool(pool) if on_script is None else TimedRedis(pool, on_script)


def reader(how: Connect, beside: Redis | None = None) -> Redis:
    """Return a client that only waits for entries, on one connection; close it with `aclose`.

    `beside`: the client for commands, closed later, whose knowledge of where the primary is (on a cluster,
    where each log's is) it shares: only who writes is told by a server that it is the primary no more.
    """
    if how.keys.is_sharded:
        assert isinstance(beside, Cluster), "on a cluster a reader shares what the commands know"
        return Cluster(
            beside.topology,
            lambda host: _node_pool(how, host, 1, READER_TIMEOUT),
            how.keys,
            how.log_length,
            retries=0,
            suspect=READ_BLOCK_MS / 1000 + SUSPECT_SECONDS,
        )
    course = None if beside is None else _pool_of(beside).course
    pool = Pool(how, course, max_connections=1, retry=Retry(NoBackoff(), 0), **_options(how, READER_TIMEOUT))
    return Redis.from_pool(pool)


async def follow(*clients: Redis) -> None:
    """Keep clients of one address with their primary, for ever; at once over where there are no sentinels."""
    if isinstance(clients[0], Cluster):
        # It asks where the slots are whenever it has a reason to.
        return
    pools = [_pool_of(client) for client in clients]
    sentinels = pools[0].sentinels
    if sentinels is None:
        return

    async def moved(host: Host) -> None:
        for pool in pools:
            await pool.to(host)

    await Watch(sentinels, moved).run()


class SyncPool(SyncBlockingPool):
    """What `Pool` is, for plain scripts."""

    def __init__(self, how: Connect, **options: Any) -> None:
        self.sentinels = (
            SyncSentinels(how.address, how.connect_timeout) if how.address.shape is Shape.SENTINEL else None
        )
        cast("Any", super()).__init__(
            connection_class=sync_connection_class(how.address, Course(), self.sentinels),
            redis_connect_func=_connected_sync(how),
            **options,
        )

    def close(self) -> None:
        """Close everything."""
        super().close()
        if self.sentinels is not None:
            self.sentinels.close()


def commands_sync(how: Connect) -> SyncRedis:
    """Return the client for plain scripts; close it with `close`."""
    if how.keys.is_sharded:
        return SyncCluster(
            how.address.hosts,
            how.keys,
            lambda host: _node_pool_sync(how, host),
            lambda host: _bare_sync(how, host),
            retries=RETRIES,
        )
    pool = SyncPool(
        how,
        max_connections=how.pool_size,
        health_check_interval=10,
        retry=SyncRetry(_BACKOFF, RETRIES, supported_errors=_RETRIED),
        **_options(how, how.timeout),
    )
    return SyncRedis.from_pool(pool)
