"""Programs of ours as real processes."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.process import Process
from tests.support.wait import until_sync

ROOT = Path(__file__).parents[2]


def environment(**settings: str) -> dict[str, str]:
    """Return our environment without settings of the person who runs the tests, and with those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BROKER_")}
    return {**kept, **settings}


class Program:
    """A started broker, the stub's or the real one, that told its ports in a ready file."""

    def __init__(self, process: Process, ready: Path) -> None:
        self.process = process
        self._ready = ready
        self._connections: list[HTTPConnection] = []

    @property
    def is_ready(self) -> bool:
        return self._ready.exists()

    def wait_ready(self) -> None:
        until_sync(
            lambda: self.is_ready or not self.process.is_running,
            lambda: f"serving\n{self.process.tail()}",
        )
        assert self.process.is_running, self.process.tail()

    @property
    def port(self) -> int:
        return int(json.loads(self._ready.read_text())["port"])

    @property
    def internal_port(self) -> int:
        return int(json.loads(self._ready.read_text())["internal_port"])

    def connect(self, port: int | None = None) -> HTTPConnection:
        """Return a connection that is closed with the program."""
        connection = HTTPConnection("127.0.0.1", port or self.port, timeout=10)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self.process.kill()

    def get(self, path: str, port: int | None = None) -> tuple[int, str]:
        connection = self.connect(port)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start programs that are ended with the test."""
    started: list[Program] = []

    def go(*argv: str, **settings: str) -> Program:
        ready = tmp_path / f"ready-{len(started)}"
        fixed = {"BROKER_PORT": "0", "BROKER_INTERNAL_PORT": "0", "BROKER_READY_FILE": str(ready)}
        process = Process(
            f"program {len(started)}",
            [sys.executable, *argv],
            tmp_path / f"log-{len(started)}",
            environment(**{**fixed, **settings}),
        )
        process.start()
        program = Program(process, ready)
        started.append(program)
        return program

    yield go
    for program in started:
        program.close()
