"""The shell commands, as a person at a terminal or a script would use them."""

import argparse
import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.__main__ import main
from broker.cli import watch
from broker.cli.watch import messages
from broker.core.errors import Unavailable
from broker.settings import Settings
from tests.process.conftest import environment
from tests.support.process import Process
from tests.support.redis_server import RedisServer
from tests.support.wait import until_sync


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes


Shell = Callable[..., Done]


@pytest.fixture
def shell(
    redis_server: RedisServer,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Iterator[Shell]:
    """Run `broker …` against the shared Redis, in this process: starting Python costs half a second."""
    for name in list(os.environ):
        if name.startswith("BROKER_"):
            monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*argv: str, given: bytes = b"", **settings: str) -> Done:
        with monkeypatch.context() as patch:
            fixed = {"BROKER_REDIS_URL": redis_server.url, "BROKER_PREFIX": prefix}
            for name, value in {**fixed, **settings}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
            code = main(argv)
        said = capfdbinary.readouterr()
        return Done(code, said.out, said.err)

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def test_what_is_published_is_listed_read_and_removed(shell: Shell, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    assert shell("publish", "docs://page", str(page)).stdout.startswith(b"published docs://page at revision ")
    assert shell("publish", "docs://page", str(page)).stdout.startswith(b"unchanged docs://page")
    assert shell("list").stdout == b"docs://page\ttext/markdown\n"
    assert shell("read", "docs://page").stdout == b"# Page\n"
    assert shell("touch", "docs://page").stdout.startswith(b"touched docs://page")
    assert shell("remove", "docs://page").stdout.startswith(b"removed docs://page")
    assert shell("remove", "docs://page").stdout.startswith(b"absent docs://page")
    assert shell("list").stdout == b""


def test_the_release_is_told_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"broker {version('mcp-resource-broker')}\n"


def test_what_nobody_published_can_be_touched_and_is_still_not_there(shell: Shell) -> None:
    """A worker answers it, or nobody: a touch stores nothing that could be read or listed."""
    done = shell("touch", "users://7/profile")
    assert (done.returncode, done.stdout.partition(b" at ")[0]) == (0, b"touched users://7/profile")
    assert shell("list").stdout == b""
    assert shell("read", "users://7/profile").returncode == 2
    assert shell("remove", "users://7/profile").stdout.startswith(b"absent users://7/profile")


def test_contents_come_from_standard_input_and_leave_byte_for_byte(shell: Shell) -> None:
    data = bytes(range(256))
    assert shell("publish", "bin://all", given=data).returncode == 0
    assert shell("read", "bin://all").stdout == data
    assert shell("publish", "text://x", "-", "--mime-type", "text/csv", given=b"a,b\n").returncode == 0
    assert b"text://x\ttext/csv\n" in shell("list").stdout


def test_an_older_version_of_ones_own_is_superseded(shell: Shell) -> None:
    assert shell("publish", "v://x", "--version", "2", given=b"two").stdout.startswith(b"published")
    assert shell("publish", "v://x", "--version", "1", given=b"one").stdout.startswith(b"superseded")
    assert shell("read", "v://x").stdout == b"two"


def test_each_tenant_has_its_own_resources(shell: Shell) -> None:
    shell("publish", "x://y", "--tenant", "acme", given=b"acme's")
    assert shell("read", "x://y", "--tenant", "acme").stdout == b"acme's"
    assert shell("read", "x://y").returncode == 2
    assert shell("read", "x://y", BROKER_TENANT="acme").stdout == b"acme's"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("read", "docs://none"), "Nothing is published under 'docs://none'"),
        (("publish", "no uri"), "is not a resource URI"),
        (("publish", "a:b", "/nowhere/file"), "/nowhere/file cannot be read: No such file or directory"),
        (("list", "--tenant", ""), "a tenant id has 1 to 64 bytes"),
        (("list", "--redis-url", "localhost:6379"), "BROKER_REDIS_URL will not do"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(shell: Shell, argv: tuple[str, ...], said: str) -> None:
    done = shell(*argv)
    assert said in done.stderr.decode()
    assert done.stderr.startswith(b"broker: ")
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("argv", "usage"),
    [
        (("watch", "docs://x", "--nonsense"), "broker watch"),
        (("key", "create", "acme", "x", "--nonsense"), "broker key create"),
        (("publish",), "broker publish"),
        (("--nonsense", "list"), "broker"),
    ],
)
def test_a_wrong_argument_shows_the_usage_of_its_own_command(
    argv: tuple[str, ...], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"usage: {usage} [-h]")


def test_a_watch_says_once_that_the_broker_is_away_and_once_that_it_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said so each second, and a rolling update filled the screen."""
    told = ("notifications/resources/updated", {"uri": "docs://x"})
    streams = iter(["told", "away", "away", "away", "told", "away", "away", "told", "stop"])

    def listen(*_: object) -> Iterator[tuple[str, dict[str, Any]]]:
        match next(streams):
            case "told":
                yield told
            case "away":
                raise Unavailable("No broker answers.")
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr(watch, "listen", listen)
    monkeypatch.setattr(watch, "_AGAIN_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        watch.run(argparse.Namespace(url="http://x/mcp", uri=["docs://x"], tenant="acme"), Settings())
    said = capsys.readouterr().out
    assert said.count("Trying again until it is back") == 2
    assert said.count("the broker is back") == 2
    assert said.count("changed   docs://x") == 3


def test_a_redis_that_is_not_there_is_exit_code_1_since_it_may_come(shell: Shell) -> None:
    done = shell("publish", "a:b", BROKER_REDIS_URL="redis://127.0.0.1:1/0", given=b"x")
    assert done.returncode == 1
    assert b"Redis cannot be reached" in done.stderr


def test_without_a_redis_the_ways_to_one_are_told(shell: Shell, tmp_path: Path) -> None:
    done = shell("list", BROKER_REDIS_URL="", BROKER_STATE_DIR=str(tmp_path))
    assert done.returncode == 2
    assert b"start one with broker dev, or set BROKER_REDIS_URL" in done.stderr


def test_watching_without_a_broker_says_how_to_start_one(shell: Shell) -> None:
    done = shell("watch", "docs://x", "--url", "http://127.0.0.1:1/mcp")
    assert done.returncode == 1
    assert b"start one with broker dev" in done.stderr


@pytest.fixture
def not_mcp() -> Iterator[str]:
    """Give the address of an HTTP server that knows no MCP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the base class's name
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
        thread.join()


def test_watching_something_else_than_a_broker_says_so(shell: Shell, not_mcp: str) -> None:
    done = shell("watch", "docs://x", "--url", not_mcp)
    assert done.returncode == 2
    assert b"answered 404 Not Found: is that the MCP endpoint of a broker?" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(
    shell: Shell, redis_server: RedisServer, prefix: str
) -> None:
    shell("publish", "big://x", given=b"x" * 1_000_000)
    command = f"{sys.executable} -m broker read big://x | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment(BROKER_REDIS_URL=redis_server.url, BROKER_PREFIX=prefix),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"0\n"
    assert done.stderr == b""


def test_events_of_a_stream_are_read_whatever_their_line_ends() -> None:
    lines = [
        b": keep-alive\n",
        b"\n",
        b"id: 1\n",
        b"data:\n",
        b"\n",
        b"event: message\r\n",
        b'data: {"a":\r\n',
    ]
    assert list(messages(iter([*lines, b"data: 1}\r\n", b"\r\n"]))) == [{"a": 1}]


def test_the_commands_that_publish_need_no_web_server() -> None:
    probe = (
        "import sys, broker.cli.resource, broker.cli.watch, workers.__main__, workers.folder; "
        "print({'fastapi', 'uvicorn', 'starlette', 'uvloop', 'mcp_types'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_folder_is_published_by_one_command(redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n")
    settings = environment(BROKER_REDIS_URL=redis_server.url, BROKER_PREFIX=prefix)
    argv = [sys.executable, "-m", "workers", "folder", str(folder), "--base", "site://"]
    worker = Process("worker", argv, tmp_path / "log", settings)
    worker.start()
    try:
        until_sync(lambda: "published=1" in worker.tail(), worker.tail)
        worker.terminate()
        assert worker.wait() == 0
        assert "Traceback" not in worker.tail()
    finally:
        worker.kill()


def test_a_folder_that_is_none_is_a_sentence(redis_server: RedisServer) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workers", "folder", os.devnull],
        env=environment(BROKER_REDIS_URL=redis_server.url),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == b"workers: /dev/null is no folder.\n"
