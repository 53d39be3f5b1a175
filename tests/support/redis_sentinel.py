"""One primary, two replicas and three sentinels, all real, whose primary can be hurt and moved.

Times are short, so that a test sees a failover in about two seconds: a primary is taken for dead after one.
"""

import contextlib
from typing import Any, Self, cast

import redis

from tests.support.redis_server import NoServer, RedisServer, binary
from tests.support.wait import StillNot, until_sync

SERVICE = "main"
QUORUM = 2
DOWN_AFTER_MS = 1000
FAILOVER_TIMEOUT_MS = 5000
FAILOVER_SECONDS = 30.0
"""Longest wait for another primary: an election that is split is tried again after ten seconds."""


class Sentinel(RedisServer):
    """One sentinel that watches a primary; it writes what it learns into a file of its own."""

    def __init__(self, primary: RedisServer) -> None:
        super().__init__()
        self._primary = primary

    def _argv(self, port: int) -> list[str]:
        config = self.directory / "sentinel.conf"
        if not config.exists():  # started again, it goes on with what it knew
            host, primary_port = self._primary.address
            config.write_text(
                f"sentinel monitor {SERVICE} {host} {primary_port} {QUORUM}\n"
                f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}\n"
                f"sentinel parallel-syncs {SERVICE} 2\n"
            )
        return [
            binary(), str(config), "--sentinel", "--bind", "127.0.0.1", "--port", str(port),
            "--dir", str(self.directory),
        ]  # fmt: skip

    def about(self) -> dict[str, str]:
        """Return what it knows of the primary."""
        with redis.Redis(port=self.port, socket_timeout=5, protocol=2) as client:
            flat: list[bytes] = cast("Any", client).execute_command("SENTINEL", "MASTER", SERVICE)
        words = [word.decode() for word in flat]
        return dict(zip(words[::2], words[1::2], strict=True))


class RedisSentinel:
    """A whole set-up. Its methods block; in a coroutine call them by `asyncio.to_thread`.

    `options` are for each of the three servers, `appendonly` as in `RedisServer`.
    """

    def __init__(self, *options: str, appendonly: bool = False) -> None:
        # A replica loads at once, not after the five seconds in which a primary waits for more of them.
        quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        self.servers = [RedisServer(*quick, *options, appendonly=appendonly) for _ in range(3)]
        self.sentinels: list[Sentinel] = []

    def __repr__(self) -> str:
        return f"<RedisSentinel {self.servers} {self.sentinels}>"

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
        """What a broker is told."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    @property
    def primary(self) -> RedisServer:
        """The server that the sentinels take for the primary."""
        port = self._primary_port()
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[RedisServer]:
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    def start(self) -> None:
        """Start everything, and wait until a failover would succeed."""
        first = self.servers[0]
        for server in self.servers:
            server.start()
        self._follow(first)
        until_sync(lambda: _followers(first) == len(self.servers) - 1, "both replicas follow", 30)
        self.sentinels = [Sentinel(first) for _ in range(3)]
        for sentinel in self.sentinels:
            sentinel.start()
        until_sync(self._is_complete, lambda: f"all known to all: {self._views()}", 30)

    def kill(self) -> RedisServer:
        """Crash the primary; returns it. Wait by `until_moved` for the next."""
        primary = self.primary
        primary.kill()
        return primary

    def pause(self) -> RedisServer:
        """Stop the primary's clock, as a stuck machine; returns it."""
        primary = self.primary
        primary.pause()
        return primary

    def resume(self) -> None:
        """Let every paused server run again."""
        for server in self.servers:
            if server.is_paused:
                server.resume()

    def failover(self) -> RedisServer:
        """Move the primary by a plain `SENTINEL FAILOVER`, as an operator would; returns the new one."""
        old = self.primary
        for _ in range(3):
            until_sync(self._has_begun_failover, "a sentinel began a failover")
            # One whose replica has just reconnected gives up after its time, and does not try again.
            with contextlib.suppress(StillNot):
                return self.until_moved(old, FAILOVER_TIMEOUT_MS / 1000 + 2)
        return self.until_moved(old)

    def until_moved(self, old: RedisServer, seconds: float = FAILOVER_SECONDS) -> RedisServer:
        """Wait until another server is the primary and says so itself; returns it."""

        def moved() -> RedisServer | None:
            primary = self.primary
            return primary if primary is not old and _role(primary) == "master" else None

        new: RedisServer = until_sync(moved, lambda: f"another primary: {self._views()}", seconds)
        return new

    def heal(self) -> None:
        """Bring back whatever is dead or paused, and wait until all follow one primary again."""
        self.resume()
        for server in (*self.servers, *self.sentinels):
            if not server.process.is_running:
                server.start()
        until_sync(self._is_healed, lambda: f"one primary, two followers: {self._views()}", 60)

    def _is_healed(self) -> bool:
        """Lend a hand, and look: the sentinels may move the primary once more while servers come back."""
        primary = self.primary
        if _role(primary) != "master":
            return False
        self._follow(primary)
        return self._is_complete() and _followers(primary) == len(self.servers) - 1

    def _follow(self, primary: RedisServer) -> None:
        """Let the others follow the primary at once, which the sentinels would see to in ten seconds."""
        for server in self.servers:
            if server is not primary and _replication(server).get("master_port") != primary.port:
                with server.client() as client:
                    cast("Any", client).replicaof("127.0.0.1", primary.port)

    def close(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.close()

    def _primary_port(self) -> int:
        """Ask the sentinels that answer; what most say."""
        said: list[int] = []
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                said.append(int(sentinel.about()["port"]))
        if not said:
            raise NoServer("no sentinel answers")
        return max(set(said), key=said.count)

    def _has_begun_failover(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                try:
                    cast("Any", client).execute_command("SENTINEL", "FAILOVER", SERVICE)
                except redis.ResponseError:  # INPROG, or NOGOODSLAVE just after another failover
                    continue
                return True
        return False

    def _is_complete(self) -> bool:
        return all(
            view["num-slaves"] == "2" and view["num-other-sentinels"] == "2" and view["flags"] == "master"
            for view in self._views()
        )

    def _views(self) -> list[dict[str, str]]:
        return [sentinel.about() for sentinel in self.sentinels]


def _role(server: RedisServer) -> str:
    return str(_replication(server).get("role"))


def _followers(server: RedisServer) -> int:
    """Return how many replicas have all that the primary has sent and follow it live."""
    told = _replication(server)
    return sum(told[name]["state"] == "online" for name in ("slave0", "slave1") if name in told)


def _replication(server: RedisServer) -> dict[str, Any]:
    if not server.process.is_running or server.is_paused:
        return {}
    with server.client() as client:
        try:
            return cast("dict[str, Any]", cast("Any", client).info("replication"))
        except (redis.ConnectionError, redis.TimeoutError):
            return {}
