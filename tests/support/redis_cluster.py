"""A Redis Cluster of three primaries and three replicas, all real, whose nodes can be hurt and slots moved.

Times are short, so that a test sees a failover in about two seconds: a node is taken for dead after one.
"""

import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, cast

import redis
from redis.crc import key_slot

from tests.support.redis_server import NoServer, RedisServer
from tests.support.wait import until_sync

SLOTS = 16_384
PRIMARIES = 3
BUS = 10_000
"""A node's own port for the others is that much higher, and must be below the ports that systems hand out."""
NODE_TIMEOUT_MS = 1000
FAILOVER_SECONDS = 30.0
"""Longest wait for another primary; a split election is tried again after twice the node timeout."""


@dataclass(frozen=True, slots=True)
class View:
    """What a node says of itself."""

    id: str
    is_primary: bool
    follows: str
    epoch: int
    slots: tuple[range, ...]


class Node(RedisServer):
    """One node; a client for it alone follows no redirection."""

    def __init__(self, *options: str, appendonly: bool) -> None:
        super().__init__(
            "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS),
            "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *options,
            appendonly=appendonly,
        )  # fmt: skip

    def run(self, *command: object) -> Any:
        """Run a command here and nowhere else; the reply is as it came."""
        with self.client() as client:
            return cast("Any", client).execute_command(*command)

    def view(self) -> View | None:
        """Return what it says of itself, None while it does not answer."""
        if not self.process.is_running or self.is_paused:
            return None
        try:
            lines = self.run("CLUSTER", "NODES").decode().splitlines()
        except (redis.ConnectionError, redis.TimeoutError):
            return None
        words = next(line.split() for line in lines if "myself" in line)
        spans = [word.split("-") for word in words[8:] if not word.startswith("[")]
        slots = tuple(range(int(span[0]), int(span[-1]) + 1) for span in spans)
        return View(words[0], "master" in words[2].split(","), words[3], int(words[6]), slots)

    def is_ok(self) -> bool:
        """Whether it answers, and takes every slot for served."""
        if self.view() is None:
            return False
        return "cluster_state:ok" in self.run("CLUSTER", "INFO").decode()

    def _free_port(self) -> int:
        for _ in range(100):
            port = random.randrange(10_000, 32_768 - BUS)
            if _is_free(port) and _is_free(port + BUS):
                return port
        raise AssertionError("no two free ports for a cluster's node")


class RedisCluster:
    """A whole cluster. Its methods block; in a coroutine call them by `asyncio.to_thread`.

    `options` are for each node, `appendonly` as in `RedisServer`.
    """

    def __init__(self, *options: str, appendonly: bool = False) -> None:
        self.nodes = [Node(*options, appendonly=appendonly) for _ in range(2 * PRIMARIES)]

    def __repr__(self) -> str:
        return f"<RedisCluster {[node.port for node in self.nodes]}>"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """What a broker is told: some of the nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:PRIMARIES])

    @property
    def primaries(self) -> list[Node]:
        """The nodes that serve slots now."""
        return [node for node, view in self._views() if view.is_primary and view.slots]

    def start(self) -> None:
        """Start and join the nodes, and wait until each takes the cluster for whole."""
        for node in self.nodes:
            node.start()
        first, *others = self.nodes
        for number, node in enumerate(self.nodes[:PRIMARIES]):
            begin, end = (SLOTS * each // PRIMARIES for each in (number, number + 1))
            # Not ADDSLOTSRANGE, which Redis 6.2 does not know.
            node.run("CLUSTER", "ADDSLOTS", *range(begin, end))
        for number, node in enumerate(self.nodes):
            node.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in others:
            first.run("CLUSTER", "MEET", "127.0.0.1", node.port)
        until_sync(lambda: all(_knows(node) == len(self.nodes) for node in self.nodes), "all met", 30)
        for node, primary in zip(self.nodes[PRIMARIES:], self.nodes[:PRIMARIES], strict=True):
            node.run("CLUSTER", "REPLICATE", primary.run("CLUSTER", "MYID"))
        self.until_whole()

    def until_whole(self, seconds: float = 60.0) -> None:
        """Wait until all nodes run, see all slots served, and each primary has a replica that follows it."""
        until_sync(self._is_whole, lambda: f"a whole cluster: {list(self._views())}", seconds)

    def client(self) -> redis.RedisCluster:
        """Return a client to look and meddle with; it is not one of ours and adopts nothing."""
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port, socket_timeout=5)

    def primary(self, key: str | bytes | int) -> Node:
        """Return the node that serves a key, or a slot."""
        slot = key if isinstance(key, int) else key_slot(key.encode() if isinstance(key, str) else key)
        serving = [
            (view.epoch, node.port, node)
            for node, view in self._views()
            if view.is_primary and any(slot in span for span in view.slots)
        ]
        if not serving:
            raise NoServer(f"nobody serves slot {slot}")
        return max(serving)[2]

    def replicas(self, primary: Node) -> list[Node]:
        """Return the nodes that follow it."""
        view = primary.view()
        assert view is not None, f"{primary!r} does not answer"
        return [node for node, each in self._views() if each.follows == view.id]

    def kill(self, key: str | bytes | int) -> Node:
        """Crash the node that serves a key; returns it. Wait by `until_moved` for the next."""
        node = self.primary(key)
        node.kill()
        return node

    def pause(self, key: str | bytes | int) -> Node:
        """Stop the clock of the node that serves a key, as a stuck machine; returns it."""
        node = self.primary(key)
        node.pause()
        return node

    def resume(self) -> None:
        """Let every paused node run again."""
        for node in self.nodes:
            if node.is_paused:
                node.resume()

    def failover(self, key: str | bytes | int) -> Node:
        """Move the primary of a key to its replica by `CLUSTER FAILOVER`, which loses nothing."""
        old = self.primary(key)
        replica = self.replicas(old)[0]
        replica.run("CLUSTER", "FAILOVER")
        return self.until_moved(key, old)

    def until_moved(self, key: str | bytes | int, old: Node) -> Node:
        """Wait until another node serves a key and takes the cluster for whole; returns it."""

        def moved() -> Node | None:
            others = [node for node, view in self._views() if node is not old and view.is_primary]
            serving = [node for node in others if _serves(node, key) and node.is_ok()]
            return serving[0] if serving else None

        new: Node = until_sync(moved, lambda: f"another primary: {list(self._views())}", FAILOVER_SECONDS)
        return new

    def begin_migration(self, slot: int, target: Node) -> Node:
        """Mark a slot as on its way to `target`, and move nothing: it stays so until `end_migration`."""
        source = self.primary(slot)
        ids = {node: node.run("CLUSTER", "MYID") for node in (source, target)}
        target.run("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        return source

    def move_keys(self, slot: int, source: Node, target: Node) -> int:
        """Move the keys that a slot on its way has now; returns how many."""
        moved = 0
        while keys := source.run("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.run("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            moved += len(keys)
        return moved

    def end_migration(self, slot: int, target: Node) -> None:
        """Give a slot to `target`, and tell every primary."""
        owner = target.run("CLUSTER", "MYID")
        for node in (target, *(each for each in self.primaries if each is not target)):
            node.run("CLUSTER", "SETSLOT", slot, "NODE", owner)

    def reshard(self, slot: int, target: Node) -> None:
        """Move a slot and its keys, as `redis-cli --cluster reshard` does."""
        source = self.begin_migration(slot, target)
        self.move_keys(slot, source, target)
        self.end_migration(slot, target)

    def heal(self) -> None:
        """Bring back whatever is dead or paused, and wait until the cluster is whole."""
        self.resume()
        for node in self.nodes:
            if not node.process.is_running:
                node.start()
        self.until_whole()

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def _views(self) -> Iterator[tuple[Node, View]]:
        for node in self.nodes:
            if (view := node.view()) is not None:
                yield node, view

    def _is_whole(self) -> bool:
        views = dict(self._views())
        primaries = {view.id for view in views.values() if view.is_primary and view.slots}
        followed = {view.follows for view in views.values() if not view.is_primary}
        return (
            len(views) == len(self.nodes)
            and primaries == followed
            and all(node.is_ok() for node in self.nodes)
            and all(_is_linked(node) for node, view in views.items() if not view.is_primary)
        )


def _serves(node: Node, key: str | bytes | int) -> bool:
    slot = key if isinstance(key, int) else key_slot(key.encode() if isinstance(key, str) else key)
    view = node.view()
    return view is not None and view.is_primary and any(slot in span for span in view.slots)


def _knows(node: Node) -> int:
    """Return how many nodes, itself included, it has met."""
    lines = node.run("CLUSTER", "NODES").decode().splitlines()
    return sum("handshake" not in line and "noaddr" not in line for line in lines)


def _is_linked(node: Node) -> bool:
    return bool(node.run("INFO", "replication")["master_link_status"] == "up")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
