"""A throw-away PostgreSQL on a Unix socket of its own, started by Debian's binaries."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg

from tests.support.process import Process
from tests.support.wait import until_sync


def _binaries() -> Path:
    """Return the folder of the newest server.

    Raises:
        FileNotFoundError: with the way to get one.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise FileNotFoundError("no PostgreSQL server: apt-get install postgresql")
    return found[-1].parent


class Cluster:
    """One server with the database postgres."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="mrb-pg-"))
        self._binaries = _binaries()
        # The server refuses to run as root; Debian's package brings this user.
        self._as: list[str] = []
        if os.geteuid() == 0:
            self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(self.directory, "postgres", "postgres")
        self._process: Process | None = None

    def __enter__(self) -> Self:
        initdb = [
            self._binaries / "initdb",
            "--auth=trust",
            "--username=test",
            "--no-sync",
            "--encoding=UTF8",
        ]
        subprocess.run(
            [*self._as, *initdb, "--pgdata", self.directory / "data"],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    @property
    def dsn(self) -> str:
        return f"host={self.directory} user=test dbname=postgres"

    def start(self) -> None:
        """Start it and wait until it answers."""
        server = [str(self._binaries / "postgres"), "-D", str(self.directory / "data")]
        options = ["-k", str(self.directory), "-c", "listen_addresses=", "-c", "fsync=off"]
        self._process = Process("postgres", [*self._as, *server, *options], self.directory / "log")
        self._process.start()
        until_sync(self._answers, lambda: f"ready\n{self._process and self._process.tail()}", 30)

    def stop(self) -> None:
        """End it at once; connections break and the next start recovers, as after a crash."""
        if self._process is not None:
            # Not SIGKILL: its children would hold the shared memory and hinder the next start.
            self._process.send(signal.SIGQUIT)
            self._process.wait()

    def run(self, *statements: str) -> None:
        """Execute statements, each in a transaction of its own."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _answers(self) -> bool:
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True
