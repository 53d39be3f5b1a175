"""Worker processes of the tests, started by the command that an operator would use."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.process import Process
from tests.support.replica import Fleet

ROOT = Path(__file__).parents[3]


class Workers:
    """Processes of one worker program that a test starts, hurts and ends."""

    def __init__(self, fleet: Fleet, program: str, tenant: str) -> None:
        self.processes: list[Process] = []
        self._directory = tempfile.TemporaryDirectory(prefix="mrb-workers-")
        self._argv = [sys.executable, "-m", "workers", "run", f"tests.workers.serving.programs.{program}"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("BROKER_")}
        self._env = clean | {
            "BROKER_REDIS_URL": fleet.redis_url,
            "BROKER_PREFIX": fleet.prefix,
            "BROKER_TENANT": tenant,
            "PYTHONPATH": str(ROOT),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        with contextlib.suppress(OSError):
            self._directory.cleanup()

    def start(self) -> Process:
        """Start one more process; it is not waited for."""
        name = f"worker-{len(self.processes)}"
        process = Process(name, self._argv, Path(self._directory.name) / f"{name}.log", self._env)
        process.start()
        self.processes.append(process)
        return process

    def logs(self) -> Iterator[str]:
        for process in self.processes:
            yield f"{process!r}\n{process.tail(20)}"
