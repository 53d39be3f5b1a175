"""The client of a Redis Cluster: sends each command to the node that has its slot.

Why it is ours and not the library's is in ADR 0008. One `Topology` says where the slots are, for all clients
of a process; each client has a pool of connections for each node that it talks to. Decisions are slots.py's
and adoption.py's. Rules:

1. A command goes out only on a connection that has adopted its log, on which nothing was cut since.
2. A command that waits for half a second makes us ask the other nodes; a node that has lost its last slot
   loses its connections, and what hung on them is sent to its successor.
3. A command may be sent twice, as on a single node: scripts that write carry a token or are idempotent.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, cast
from weakref import WeakSet

from redis import exceptions as rx
from redis.asyncio import BlockingConnectionPool, Redis

from broker.store.address import Host
from broker.store.adoption import Standing, check_uncut, packed_for, reign_of
from broker.store.greeting import adopt_command
from broker.store.keys import Keys
from broker.store.slots import (
    Attempts,
    Next,
    SlotMap,
    is_redirection,
    is_whole,
    left_of,
    slot_in,
    slot_of,
    slot_of_all,
    turn_of,
)
from broker.store.timing import OnScript, timed

_log = logging.getLogger(__name__)

SUSPECT_SECONDS = 0.5
LEARN_SECONDS = 1.5
"""How long a group of nodes may take to say where the slots are."""
LEARN_PAUSE = 0.2
"""Between two times that we ask."""

Command = tuple[tuple[Any, ...], dict[str, Any]]
MakePool = Callable[[Host], BlockingConnectionPool]


class Topology:
    """Where a cluster's slots are. `bare` makes a connection to any node, which adopts nothing."""

    def __init__(self, seeds: Sequence[Host], keys: Keys, bare: Callable[[Host], Any]) -> None:
        self.map = SlotMap()
        self.numbers = {slot_of(keys.log(number)): number for number in range(keys.logs)}
        """Slot → the log in it."""
        self.clients: WeakSet[Cluster] = WeakSet()
        self._seeds = seeds
        self._bare = bare
        self._learning: asyncio.Task[None] | None = None
        self._learned_at = 0.0

    def __repr__(self) -> str:
        return f"<Topology {len(set(self.map.owners.values()))} primaries, {len(self.map.nodes)} nodes>"

    @property
    def seed(self) -> Host:
        """Some node, where nothing better is known."""
        return next(iter(self.map.owners.values()), self._seeds[0])

    async def owner(self, slot: int) -> Host:
        """Return the node that has a slot.

        Raises:
            RedisError: nobody has it, or nobody can be asked.
        """
        if slot not in self.map.owners:
            await self.learn()
        owner = self.map.owners.get(slot)
        if owner is None:
            raise rx.ClusterDownError("CLUSTERDOWN Hash slot not served")
        return owner

    async def learn(self) -> None:
        """Ask where the slots are; whoever wants to know at the same time shares the answer.

        Raises:
            RedisError: nobody answers.
        """
        await asyncio.shield(self.hurry())

    def hurry(self) -> "asyncio.Task[None]":
        """Ask where the slots are, beside."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._learn(), name="cluster slots")
            # A failure is told to those who wait, if anybody does.
            self._learning.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._learning

    async def aclose(self) -> None:
        """Stop asking."""
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait([self._learning])

    async def _learn(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._learned_at + LEARN_PAUSE - loop.time()))
        self._learned_at = loop.time()
        failure: Exception = rx.ConnectionError("no node of the cluster answers")
        for hosts in self.map.to_ask(self._seeds):
            asking = [asyncio.ensure_future(self._ask(host)) for host in hosts]
            try:
                for first in asyncio.as_completed(asking, timeout=LEARN_SECONDS):
                    try:
                        host, ranges = await first
                    except Exception as error:
                        failure = error
                        continue
                    for gone in self.map.learn(ranges, host, self.numbers):
                        await self._drop(gone)
                    return
            except TimeoutError:
                continue
            finally:
                for task in asking:
                    task.cancel()
                await asyncio.gather(*asking, return_exceptions=True)
        raise failure

    async def _ask(self, host: Host) -> tuple[Host, Any]:
        connection = self._bare(host)
        try:
            await connection.connect()
            await connection.send_command("CLUSTER", "SLOTS", check_health=False)
            return host, await connection.read_response()
        finally:
            # At once: who asked may have its answer from another node, and cancels us.
            await connection.disconnect(nowait=True)

    async def _drop(self, host: Host) -> None:
        _log.warning("cluster_node_dropped", extra={"node": f"{host[0]}:{host[1]}"})
        for client in [*self.clients]:
            await client.drop(host)


class Cluster(Redis):
    """A client of all nodes. Every command names a key, and all keys of one pipeline share a slot.

    `retries`: how often a command is sent again after a connection failed. A command without an answer makes
    us look where its slot is after `suspect` seconds.
    """

    def __init__(
        self,
        topology: Topology,
        make_pool: MakePool,
        keys: Keys,
        log_length: int | None,
        *,
        retries: int,
        suspect: float = SUSPECT_SECONDS,
        on_script: OnScript | None = None,
        owns_topology: bool = False,
    ) -> None:
        host = topology.seed
        self._pools = {host: make_pool(host)}
        cast("Any", super()).__init__(connection_pool=self._pools[host])  # its keyword arguments are untyped
        self.topology = topology
        self._make_pool = make_pool
        self._keys = keys
        self._log_length = log_length
        self._retries = retries
        self._suspect = suspect
        self._on_script = on_script
        self._owns_topology = owns_topology
        topology.clients.add(self)

    def __repr__(self) -> str:
        return f"<Cluster {self.topology!r} {len(self._pools)} pools>"

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command; see `redis.asyncio.Redis`."""

        async def send() -> Any:
            reply = (await self.send_all(slot_in(args), [(args, options)]))[0]
            if isinstance(reply, Exception):
                raise reply
            return reply

        return await timed(self._on_script, args, send)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:  # noqa: FBT001, FBT002 - the library's signature
        """Return a pipeline whose commands are sent together; never a transaction."""
        del transaction, shard_hint
        return Batch(self)

    async def send_all(self, slot: int, commands: Sequence[Command]) -> list[Any]:
        """Send commands of one slot together and return the reply or the error of each.

        Raises:
            RedisError, OSError: no answers came.
        """
        attempts = Attempts(time.monotonic(), self._retries)
        replies: list[Any] = [None] * len(commands)
        pending = list(range(len(commands)))
        whole = is_whole(args for args, _ in commands)
        ask_at: Host | None = None
        while True:
            at = ask_at or self.topology.seed
            sent = pending if whole else turn_of(pending, replies, is_asking=ask_at is not None)
            try:
                if ask_at is None:
                    at = await self.topology.owner(slot)
                got = await self._batch(at, slot, [commands[i] for i in sent], is_asking=ask_at is not None)
            except Exception as error:
                following = self._after(attempts, error, at)
                if following is None:
                    raise
            else:
                for i, reply in zip(sent, got, strict=True):
                    replies[i] = reply
                pending = left_of(pending, sent, replies, is_whole=whole)
                if not pending:
                    return replies
                refused = next(reply for reply in replies if is_redirection(reply))
                following = self._after(attempts, refused, at)
                if following is None:
                    return replies
            ask_at = following.ask_at
            if following.is_doubtful and following.moved is None:
                # Nobody answers: the next attempt says so.
                with contextlib.suppress(Exception):
                    await self.topology.learn()
            await asyncio.sleep(following.pause)

    async def node_of(self, key: str) -> Redis:
        """Return a client of the node that has `key`'s slot now, for what names no key: it adopts nothing.

        Raises:
            RedisError: nobody has it, or nobody can be asked.
        """
        return cast("Any", _node_client)(self._pool(await self.topology.owner(slot_of(key))))

    def renew(self, number: int) -> None:
        """Let every connection adopt a log again before its next command: its head is gone."""
        self.topology.map.renew(slot_of(self._keys.head(number)))

    async def drop(self, host: Host) -> None:
        """Close the connections to a node; what waits on them fails, and is sent elsewhere."""
        pool = self._pools.get(host)
        if pool is not None:
            await pool.disconnect()

    async def disconnect(self) -> None:
        """Drop all connections; the next command makes new ones."""
        for pool in [*self._pools.values()]:
            await pool.disconnect()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - the library's signature
        """Close everything."""
        del close_connection_pool
        self.topology.clients.discard(self)
        if self._owns_topology:
            await self.topology.aclose()
        await self.disconnect()

    # -- one attempt ---------------------------------------------------------------------------------------

    def _after(self, attempts: Attempts, error: Exception, at: Host) -> Next | None:
        following = attempts.after(error, at, time.monotonic())
        if following is not None and following.moved is not None:
            self.topology.map.give(*following.moved)
            self.topology.hurry()
        return following

    async def _batch(
        self, host: Host, slot: int, commands: Sequence[Command], *, is_asking: bool
    ) -> list[Any]:
        suspicion = _Suspicion(self.topology, self._suspect)
        try:
            pool = self._pool(host)
            connection: Any = await cast("Any", pool).get_connection()
            try:
                await self._adopt(connection, slot, is_asking=is_asking)
                packed = [
                    part for args, _ in commands for part in packed_for(connection, args, is_asking=is_asking)
                ]
                check_uncut(connection)
                await connection.send_packed_command(packed, check_health=False)
                return [await self._reply(connection, command, is_asking=is_asking) for command in commands]
            finally:
                await pool.release(connection)
        finally:
            suspicion.end()

    async def _reply(self, connection: Any, command: Command, *, is_asking: bool) -> Any:
        args, options = command
        if is_asking:
            await connection.read_response()
        try:
            reply = await cast("Any", self).parse_response(connection, args[0], **options)
        except rx.ResponseError as error:
            return error
        connection.standing.used_at = time.monotonic()
        return reply

    async def _adopt(self, connection: Any, slot: int, *, is_asking: bool) -> None:
        """Let the node take over the slot's log, if this connection has not seen to it (adoption.py)."""
        standing: Standing = connection.standing
        if standing.is_idle(time.monotonic()):
            await look(connection)
        turn = self.topology.map.turn(slot)
        if standing.adopted.get(slot) == turn:
            return
        number = self.topology.numbers[slot]
        command = adopt_command(self._keys, number, standing.reign.identity, self._log_length)
        check_uncut(connection)
        await connection.send_packed_command(
            packed_for(connection, command, is_asking=is_asking), check_health=False
        )
        if is_asking:
            await connection.read_response()
        try:
            await connection.read_response()
        except rx.TryAgainError:
            # Log and head are in two places, so no script that writes to the log can run either.
            return
        if not is_asking:
            standing.adopted[slot] = turn

    def _pool(self, host: Host) -> BlockingConnectionPool:
        pool = self._pools.get(host)
        if pool is None:
            pool = self._pools[host] = self._make_pool(host)
        return pool


class Batch(Redis):
    """A pipeline of one slot: queues what a client would send, and sends it at once."""

    def __init__(self, cluster: Cluster) -> None:
        cast("Any", super()).__init__(connection_pool=cluster.connection_pool)
        self._cluster = cluster
        self._commands: list[Command] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue a command."""
        self._commands.append((args, options))
        return self

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - the library's signature
        """Send what was queued and return the replies.

        Raises:
            RedisError, OSError: no answers came, or with `raise_on_error` the first error among them.
        """
        commands, self._commands = self._commands, []
        if not commands:
            return []
        replies = await self._cluster.send_all(slot_of_all(args for args, _ in commands), commands)
        if raise_on_error:
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return replies


class _Suspicion:
    """Asks where the slots are again and again while a command waits."""

    def __init__(self, topology: Topology, seconds: float) -> None:
        self._topology = topology
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(seconds, self._ask)

    def _ask(self) -> None:
        self._topology.hurry()
        self._handle = self._loop.call_later(self._seconds, self._ask)

    def end(self) -> None:
        self._handle.cancel()


async def look(connection: Any) -> None:
    """Ask who answers on a connection, and close it if that is no primary.

    Raises:
        RedisError: it is a replica, or nobody answers.
    """
    said: list[bytes] = []
    for section in ("server", "replication"):
        await connection.send_command("INFO", section, check_health=False)
        said.append(await connection.read_response())
    try:
        now = reign_of(*said)
    except rx.RedisError:
        await connection.disconnect()
        raise
    standing: Standing | None = getattr(connection, "standing", None)
    if standing is None:
        connection.standing = standing = Standing(now, 0.0)
    standing.look(now)
    standing.used_at = time.monotonic()


async def on_connect(connection: Any) -> None:
    """Do what comes first on each connection to a node."""
    # As in client.py: a health check would connect again from inside of connecting.
    await connection.on_connect_check_health(check_health=False)
    connection.standing = None
    await look(connection)


def _node_client(pool: BlockingConnectionPool) -> Redis:
    client = cast("Any", Redis)(connection_pool=pool)
    client.auto_close_connection_pool = False
    return client
