"""One child process: its log in a file, ended by its own id, and never outliving the test's process."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).parents[2]

_SPAWNER = ThreadPoolExecutor(1, "spawner")
"""Linux takes the thread that started a child for its parent: this one lives as long as the process."""


def _die_with_parent() -> None:
    """Run in the child: Linux kills it when the test's process is gone, however that ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A program that a test starts, hurts and ends."""

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.env = dict(os.environ if env is None else env)
        self._child: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<{self.name} {f'pid {self.pid}' if self.is_running else 'ended'}>"

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} was never started"
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def code(self) -> int | None:
        """The exit status once it has ended; negative for a signal."""
        return None if self._child is None else self._child.poll()

    def start(self) -> None:
        assert not self.is_running, f"{self.name} is running"
        self._child = _SPAWNER.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=ROOT,
                # It is one system call between fork and exec: no lock can be held by another thread there.
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - see above
            )

    def send(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def wait(self, seconds: float = 10.0) -> int:
        """Return the exit status.

        Raises:
            AssertionError: it is still running after `seconds`.
        """
        assert self._child is not None, f"{self.name} was never started"
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {seconds:g} s\n{self.tail()}") from None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.send(signal.SIGKILL)
        if self._child is not None:
            self._child.wait(10)

    def terminate(self) -> None:
        """Ask it to leave; `wait` for it then."""
        self.send(signal.SIGTERM)

    def pause(self) -> None:
        """Stop its clock: it holds its sockets and answers nothing."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def tail(self, lines: int = 60) -> str:
        """Return the end of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
