"""Broker replicas as real processes, and a fleet of them behind the balancer.

A replica gets only what an operator would give it: environment variables. It tells its ports by the ready
file. `restart` gives it the ports that it had before, so its address stays.
"""

import contextlib
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests.support.balancer import Address, Balancer
from tests.support.process import Process
from tests.support.wait import until_sync

WRITER_VARIABLE = "TEST_STREAM_WRITER"
"""Says how all replicas write their streams; without it those of a fleet take turns, and both are tested."""

READY_SECONDS = 30.0
"""How long a replica may take to serve: two cores, and others at work on them."""


class Replica:
    """One broker process. Its methods block; in a coroutine call them by `asyncio.to_thread`.

    `settings` are environment variables; `MODULE` is the module that is run instead of `broker`.
    """

    def __init__(
        self, name: str, redis_url: str, prefix: str, directory: Path, settings: Mapping[str, str]
    ) -> None:
        self.name = name
        self.port = 0
        self.internal_port = 0
        self._ready_file = directory / f"{name}.ready.json"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("BROKER_")}
        env = clean | {
            "BROKER_REDIS_URL": redis_url,
            "BROKER_PREFIX": prefix,
            "BROKER_PORT": "0",
            "BROKER_INTERNAL_PORT": "0",
            "BROKER_READY_FILE": str(self._ready_file),
            "BROKER_DRAIN_SECONDS": "3",
            "BROKER_LINGER_SECONDS": "0.2",
            **settings,
        }
        argv = [sys.executable, "-m", settings.get("MODULE", "broker"), "serve"]
        self.process = Process(f"replica {name}", argv, directory / f"{name}.log", env)

    def __repr__(self) -> str:
        return f"<Replica {self.name} :{self.port} {self.process!r}>"

    @property
    def address(self) -> Address:
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def api(self) -> str:
        """Where the publishing API is."""
        return f"http://127.0.0.1:{self.port}/v1"

    def launch(self) -> None:
        """Start the process without waiting."""
        self._ready_file.unlink(missing_ok=True)
        if self.port:
            self.process.env |= {
                "BROKER_PORT": str(self.port),
                "BROKER_INTERNAL_PORT": str(self.internal_port),
            }
        self.process.start()

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it serves and says that it is ready."""
        until_sync(self._has_told_its_ports, lambda: f"{self!r} started\n{self.process.tail()}", seconds)
        until_sync(self.is_ready, lambda: f"{self!r} ready\n{self.process.tail()}", seconds)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def restart(self) -> None:
        """Crash it and start it again under the same address."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()

    def leave(self, seconds: float = 15.0) -> int:
        """Ask it to leave gracefully; returns its exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    def is_ready(self) -> bool:
        return self.health("readyz")[0] == 200

    def health(self, path: str) -> tuple[int, str]:
        """Return status and body of a page of the internal port; status 0 if it does not answer."""
        url = f"http://127.0.0.1:{self.internal_port}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def _has_told_its_ports(self) -> bool:
        assert self.process.is_running, f"{self!r} ended with {self.process.code}\n{self.process.tail()}"
        try:
            told = json.loads(self._ready_file.read_text())
        except (FileNotFoundError, ValueError):
            return False
        self.port, self.internal_port = told["port"], told["internal_port"]
        return True


class Fleet:
    """Replicas of one installation behind one balancer."""

    def __init__(self, redis_url: str, prefix: str, **settings: str) -> None:
        self.redis_url = redis_url
        self.prefix = prefix
        self.settings = settings
        self.balancer = Balancer()
        self.replicas: list[Replica] = []
        self.surprises: list[str] = []
        """What no replica should ever log: each traceback, with what stands before it. Set by `close`."""
        self._directory = tempfile.TemporaryDirectory(prefix="mrb-fleet-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, index: int) -> Replica:
        return self.replicas[index]

    @property
    def url(self) -> str:
        """The fleet's MCP endpoint: the balancer's."""
        return self.balancer.url

    def add(self, count: int = 1, *, redis_url: str | None = None, **settings: str) -> list[Replica]:
        """Start replicas and put them behind the balancer; returns them when they are ready."""
        added = [
            Replica(
                f"r{len(self.replicas) + i}",
                redis_url or self.redis_url,
                self.prefix,
                Path(self._directory.name),
                {"BROKER_STREAM__WRITER": _writer(len(self.replicas) + i)} | self.settings | settings,
            )
            for i in range(count)
        ]
        self.replicas += added
        for replica in added:
            replica.launch()
        for replica in added:
            replica.wait_ready()
            self.balancer.replicas.append(replica.address)
        return added

    def logs(self, lines: int = 60) -> Iterator[tuple[str, str]]:
        """Yield each replica's name and the end of its log."""
        for replica in self.replicas:
            yield replica.name, replica.process.tail(lines)

    def _surprises(self) -> list[str]:
        found: list[str] = []
        for replica in self.replicas:
            lines = replica.process.tail(10_000).splitlines()
            for number, line in enumerate(lines):
                if "Traceback (most recent call last)" in line:
                    found.append("\n".join([replica.name, *lines[max(0, number - 1) : number + 60]]))
        return found

    def close(self) -> None:
        """End every replica at once, and the balancer."""
        self.balancer.close()
        with ThreadPoolExecutor() as pool:
            list(pool.map(Replica.kill, self.replicas))
        self.surprises = self._surprises()
        with contextlib.suppress(OSError):
            self._directory.cleanup()


def _writer(index: int) -> str:
    return os.environ.get(WRITER_VARIABLE) or ("portable" if index % 2 else "fast")
