"""What cluster.py is, for plain scripts: the same decisions, without a loop. Threads may share one client.

It asks where the slots are when something has failed, and not while it waits.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, cast

from redis import BlockingConnectionPool, Redis
from redis import exceptions as rx

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

Command = tuple[tuple[Any, ...], dict[str, Any]]


class SyncCluster(Redis):
    """A client of all nodes. Every command names a key, and all keys of one pipeline share a slot."""

    def __init__(
        self,
        seeds: Sequence[Host],
        keys: Keys,
        make_pool: Callable[[Host], BlockingConnectionPool],
        bare: Callable[[Host], Redis],
        *,
        retries: int,
    ) -> None:
        self._pools = {seeds[0]: make_pool(seeds[0])}
        cast("Any", super()).__init__(
            connection_pool=self._pools[seeds[0]]
        )  # its keyword arguments are untyped
        self._seeds = seeds
        self._keys = keys
        self._make_pool = make_pool
        self._bare = bare
        self._retries = retries
        self._map = SlotMap()
        self._numbers = {slot_of(keys.log(number)): number for number in range(keys.logs)}
        self._turn = Lock()

    def __repr__(self) -> str:
        return f"<SyncCluster {len(self._pools)} pools>"

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command; see `redis.Redis`."""
        reply = self.send_all(slot_in(args), [(args, options)])[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:  # noqa: FBT001, FBT002 - the library's signature
        """Return a pipeline whose commands are sent together; never a transaction."""
        del transaction, shard_hint
        return SyncBatch(self)

    def send_all(self, slot: int, commands: Sequence[Command]) -> list[Any]:
        """Do what `Cluster.send_all` does.

        Raises:
            RedisError, OSError: no answers came.
        """
        attempts = Attempts(time.monotonic(), self._retries)
        replies: list[Any] = [None] * len(commands)
        pending = list(range(len(commands)))
        whole = is_whole(args for args, _ in commands)
        ask_at: Host | None = None
        while True:
            at = ask_at or self._seeds[0]
            sent = pending if whole else turn_of(pending, replies, is_asking=ask_at is not None)
            try:
                if ask_at is None:
                    at = self._owner(slot)
                got = self._batch(at, slot, [commands[i] for i in sent], is_asking=ask_at is not None)
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
                    self._learn()
            time.sleep(following.pause)

    def close(self) -> None:
        """Close everything."""
        for pool in [*self._pools.values()]:
            pool.disconnect()

    # -- where slots are -----------------------------------------------------------------------------------

    def _owner(self, slot: int) -> Host:
        if slot not in self._map.owners:
            self._learn()
        owner = self._map.owners.get(slot)
        if owner is None:
            raise rx.ClusterDownError("CLUSTERDOWN Hash slot not served")
        return owner

    def _learn(self) -> None:
        failure: Exception = rx.ConnectionError("no node of the cluster answers")
        for host in (host for hosts in self._map.to_ask(self._seeds) for host in hosts):
            client = self._bare(host)
            try:
                ranges = cast("Any", client).execute_command("CLUSTER", "SLOTS")
            except Exception as error:
                failure = error
                continue
            finally:
                client.close()
            with self._turn:
                for gone in self._map.learn(ranges, host, self._numbers):
                    if gone in self._pools:
                        self._pools[gone].disconnect()
            return
        raise failure

    def _after(self, attempts: Attempts, error: Exception, at: Host) -> Next | None:
        following = attempts.after(error, at, time.monotonic())
        if following is not None and following.moved is not None:
            with self._turn:
                self._map.give(*following.moved)
        return following

    # -- one attempt ---------------------------------------------------------------------------------------

    def _batch(self, host: Host, slot: int, commands: Sequence[Command], *, is_asking: bool) -> list[Any]:
        pool = self._pool(host)
        connection: Any = cast("Any", pool).get_connection()
        try:
            self._adopt(connection, slot, is_asking=is_asking)
            packed = [
                part for args, _ in commands for part in packed_for(connection, args, is_asking=is_asking)
            ]
            check_uncut(connection)
            connection.send_packed_command(packed, check_health=False)
            return [self._reply(connection, command, is_asking=is_asking) for command in commands]
        finally:
            pool.release(connection)

    def _reply(self, connection: Any, command: Command, *, is_asking: bool) -> Any:
        args, options = command
        if is_asking:
            connection.read_response()
        try:
            reply = cast("Any", self).parse_response(connection, args[0], **options)
        except rx.ResponseError as error:
            return error
        connection.standing.used_at = time.monotonic()
        return reply

    def _adopt(self, connection: Any, slot: int, *, is_asking: bool) -> None:
        standing: Standing = connection.standing
        if standing.is_idle(time.monotonic()):
            look(connection)
        turn = self._map.turn(slot)
        if standing.adopted.get(slot) == turn:
            return
        command = adopt_command(self._keys, self._numbers[slot], standing.reign.identity, None)
        check_uncut(connection)
        connection.send_packed_command(
            packed_for(connection, command, is_asking=is_asking), check_health=False
        )
        if is_asking:
            connection.read_response()
        try:
            connection.read_response()
        except rx.TryAgainError:
            return
        if not is_asking:
            standing.adopted[slot] = turn

    def _pool(self, host: Host) -> BlockingConnectionPool:
        with self._turn:
            if host not in self._pools:
                self._pools[host] = self._make_pool(host)
            return self._pools[host]


class SyncBatch(Redis):
    """A pipeline of one slot: queues what a client would send, and sends it at once."""

    def __init__(self, cluster: SyncCluster) -> None:
        cast("Any", super()).__init__(connection_pool=cluster.connection_pool)
        self._cluster = cluster
        self._commands: list[Command] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue a command."""
        self._commands.append((args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - the library's signature
        """Do what `Batch.execute` does.

        Raises:
            RedisError, OSError: no answers came, or with `raise_on_error` the first error among them.
        """
        commands, self._commands = self._commands, []
        if not commands:
            return []
        replies = self._cluster.send_all(slot_of_all(args for args, _ in commands), commands)
        if raise_on_error:
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return replies


def look(connection: Any) -> None:
    """Do what `cluster.look` does.

    Raises:
        RedisError: it is a replica, or nobody answers.
    """
    said: list[bytes] = []
    for section in ("server", "replication"):
        connection.send_command("INFO", section, check_health=False)
        said.append(connection.read_response())
    try:
        now = reign_of(*said)
    except rx.RedisError:
        connection.disconnect()
        raise
    standing: Standing | None = getattr(connection, "standing", None)
    if standing is None:
        connection.standing = standing = Standing(now, 0.0)
    standing.look(now)
    standing.used_at = time.monotonic()


def on_connect(connection: Any) -> None:
    """Do what comes first on each connection to a node."""
    connection.on_connect_check_health(check_health=False)
    connection.standing = None
    look(connection)
