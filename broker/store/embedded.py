"""Our own Redis, for development and for one machine: started when no BROKER_REDIS_URL is set.

All brokers (and shell commands) of one state directory share one server, on a unix socket:

1. Who holds the lock file's flock starts the server, and hands the lock's descriptor to it. The lock then
   lives exactly as long as the server: there is never a second one on the same data, and never a lock
   without a server, whoever is killed in whatever order.
2. The server dies with the broker that started it. The other brokers try the lock a few times a second; one
   of them gets it and starts the server again, on the same data and the same socket.
3. The socket file is removed and made by the lock's holder only.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from types import TracebackType

from broker.core.errors import Misconfigured
from broker.store.redis_server import (
    MAX_SOCKET_PATH,
    Health,
    RedisServer,
    find_binary,
    ping,
    start_server,
    url_of,
)

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.02
_SUPERVISE_SECONDS = 0.2
"""How soon a dead server's lock is noticed; one system call each time."""
_RETRY_SECONDS = 2.0
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_OPTIONS = ("--appendonly", "yes", "--appendfsync", "everysec")


class Embedded:
    """`async with Embedded(state_dir) as url`: a Redis to use meanwhile, shared or started.

    Enter it in the main thread (see `redis_server`, rule 1). With `is_ephemeral` the data is in a directory
    of its own that is deleted at the end.
    """

    def __init__(self, state_dir: Path, *, binary: str | None = None, is_ephemeral: bool = False) -> None:
        self._binary = binary
        self._is_ephemeral = is_ephemeral
        self._directory = directory_of(state_dir)
        self._socket = Path()
        self._server: RedisServer | None = None
        self._supervision: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        role = "sharing" if self._server is None else f"owning {self._server}"
        return f"<Embedded {self._directory} {role}>"

    @property
    def server(self) -> RedisServer | None:
        """The server that we started, None while another broker's serves us."""
        return self._server

    async def __aenter__(self) -> str:
        """Return the URL of a server that answers.

        Raises:
            Misconfigured: no program, a directory that cannot be written, a server that does not start.
        """
        self._binary = find_binary(self._binary)
        if self._is_ephemeral:
            self._directory = Path(tempfile.mkdtemp(prefix="mrb-"))
        try:
            _make(self._directory)
            self._socket = socket_of(self._directory)
            _make(self._socket.parent)
            await self._until_it_answers()
        except BaseException:
            await self._stop()
            raise
        self._supervision = asyncio.create_task(self._supervise(), name="embedded redis")
        return url_of(self._socket)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the supervision, and the server if we started it: another broker starts it again if it must."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait({self._supervision})
        await self._stop()

    async def _until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while ping(self._socket) is Health.SILENT:
            if self._server is not None:
                self._server.check()
            else:
                self._start_if_free()
            if time.monotonic() > deadline:
                raise Misconfigured(
                    f"Another process holds {self._directory / 'lock'}, but no Redis answers on "
                    f"{self._socket}. Is it stopped? End it, or set BROKER_STATE_DIR to another directory."
                )
            await asyncio.sleep(_POLL_SECONDS)

    def _start_if_free(self) -> bool:
        """Start the server if nobody else has; whether we did."""
        lock = self._lock()
        if lock is None:
            return False
        try:
            with contextlib.suppress(FileNotFoundError):
                self._socket.unlink()
            assert self._binary is not None
            self._server = start_server(
                self._binary, self._directory, self._socket, _OPTIONS, pass_fds=(lock,)
            )
        except OSError as error:
            raise Misconfigured(
                f"The embedded Redis {self._binary} cannot be started in {self._directory}: {error.strerror}."
            ) from None
        finally:
            # The server's copy keeps the lock; ours would outlive the server.
            os.close(lock)
        log.info("redis_started", extra={"pid": self._server.pid, "directory": str(self._directory)})
        return True

    def _lock(self) -> int | None:
        """Return the descriptor that holds the lock, None if somebody else does."""
        path = self._directory / "lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    async def _supervise(self) -> None:
        """Start the server whenever nobody runs it, whoever ran it before."""
        while True:
            await asyncio.sleep(_SUPERVISE_SECONDS)
            try:
                if self._server is not None and not self._server.is_running:
                    log.warning("redis_ended", extra={"why": self._server.last_words()})
                    self._server = None
                if self._server is None and self._start_if_free():
                    log.warning("redis_taken_over", extra={"directory": str(self._directory)})
                    # A server that ends at once, as on a full disk, is not started five times a second.
                    await asyncio.sleep(_RETRY_SECONDS)
            except Misconfigured as error:
                log.error("redis_not_started", extra={"why": str(error)})  # noqa: TRY400 # a sentence says it all
                await asyncio.sleep(_RETRY_SECONDS)

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            deadline = time.monotonic() + _STOP_SECONDS
            # A child's end has no event that every loop on every system offers.
            while self._server.is_running and time.monotonic() < deadline:  # noqa: ASYNC110 # see above
                await asyncio.sleep(_POLL_SECONDS)
            if self._server.is_running:
                self._server.kill()
            self._server = None
        if self._is_ephemeral:
            shutil.rmtree(self._directory, ignore_errors=True)


def find(state_dir: Path) -> str | None:
    """Return the URL of the embedded Redis that a running broker keeps in `state_dir`, if one answers."""
    socket = socket_of(directory_of(state_dir))
    return None if ping(socket) is Health.SILENT else url_of(socket)


def directory_of(state_dir: Path) -> Path:
    """Return where in a state directory the embedded Redis lives."""
    return state_dir.expanduser().absolute() / "redis"


def socket_of(directory: Path) -> Path:
    """Return the socket of the server in `directory`: in it, or where a short path can be had."""
    inside = directory / "redis.sock"
    # Redis binds a temporary name first in some versions, hence the spare bytes.
    if len(os.fsencode(inside)) + 8 <= MAX_SOCKET_PATH:
        return inside
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"mrb-{os.getuid()}-{digest}" / "redis.sock"


def _make(directory: Path) -> None:
    """Make a directory for this user alone, or check that it is one.

    Raises:
        Misconfigured: it cannot be made or written, or belongs to somebody else.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.stat()
    except OSError as error:
        raise _unwritable(directory, error) from None
    # In a shared temporary directory, somebody else may have made it before us, to read what we write.
    if facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Misconfigured(
            f"{directory} belongs to another user, or others may write there: remove it, or set "
            "BROKER_STATE_DIR to a directory of your own."
        )


def _unwritable(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(
        f"The embedded Redis cannot keep its data in {path} ({error.strerror}): set BROKER_STATE_DIR to a "
        "directory that this user may write, or BROKER_REDIS_URL to a Redis of yours."
    )
