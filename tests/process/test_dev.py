"""`broker dev`, as somebody meets it who has just cloned this: what it prints is run as it stands."""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPDeprecationWarning
from mcp.client.subscriptions import ResourceUpdated
from mcp_types import ResourceUpdatedNotification, TextResourceContents

from tests.process.conftest import Program, Start, environment
from tests.support.process import Process
from tests.support.wait import until_sync, within


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "hello.md").write_text("# Hello\n")
    return folder


@pytest.fixture
def dev(start: Start, docs: Path, tmp_path: Path) -> Program:
    program = start("-m", "broker", "dev", str(docs), BROKER_STATE_DIR=str(tmp_path / "state"))
    until_sync(lambda: "Ctrl+C ends it." in program.process.tail(), program.process.tail)
    return program


def _banner(program: Program) -> str:
    return program.process.log.read_text()


@pytest.fixture
def snippet(dev: Program, tmp_path: Path) -> Iterator[Process]:
    """Run the Python that was printed, as it was printed."""
    block = re.search(
        r"^    import asyncio\n.*?^    asyncio\.run\(main\(\)\)$", _banner(dev), re.MULTILINE | re.DOTALL
    )
    assert block is not None
    script = tmp_path / "snippet.py"
    script.write_text(re.sub(r"^    ", "", block.group(), flags=re.MULTILINE))
    process = Process("snippet", [sys.executable, str(script)], tmp_path / "snippet.log", environment())
    process.start()
    yield process
    process.kill()


def test_the_printed_snippet_hears_of_an_edit(dev: Program, docs: Path, snippet: Process) -> None:
    def hears() -> bool:
        # The snippet says nothing when its stream opens, so the file changes until it has heard.
        (docs / "hello.md").write_text(f"# Edited {os.urandom(4).hex()}\n")
        return "# Edited" in snippet.tail()

    until_sync(hears, lambda: f"heard\n{snippet.tail()}\n{dev.process.tail()}", 20)
    assert snippet.is_running


def test_the_printed_shell_commands_work_in_another_terminal(
    dev: Program, docs: Path, tmp_path: Path
) -> None:
    settings = environment()
    lines = [line.strip() for line in _banner(dev).splitlines()]
    publish = next(line for line in lines if line.startswith("echo hello |"))
    done = subprocess.run(["bash", "-c", publish], env=settings, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("published demo://hello")
    listing = next(line for line in lines if "broker list" in line)
    done = subprocess.run(["bash", "-c", listing], env=settings, capture_output=True, text=True, check=True)
    assert done.stdout == "demo://hello\ttext/plain\ndocs://hello.md\ttext/markdown\n"
    watch = next(line for line in lines if "broker watch" in line)
    watcher = Process("watch", shlex.split(watch), tmp_path / "watch.log", settings)
    watcher.start()
    try:
        until_sync(lambda: "watching  docs://hello.md" in watcher.tail(), watcher.tail)
        (docs / "hello.md").write_text("# Edited\n")
        until_sync(lambda: "changed   docs://hello.md" in watcher.tail(), watcher.tail)
    finally:
        watcher.kill()


@contextlib.asynccontextmanager
async def _cues(port: int, era: str, uri: str) -> AsyncGenerator[tuple[Client, asyncio.Queue[str]]]:
    """Give an official client that watches `uri` as its era does, and the cues that it gets."""
    cues: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await cues.put(str(message.params.uri))

    url = f"http://127.0.0.1:{port}/mcp"
    if era == "handshake":
        async with Client(url, mode="legacy", message_handler=heard) as client:
            with warnings.catch_warnings(action="ignore", category=MCPDeprecationWarning):
                await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated] # that era's way
            yield client, cues
        return
    async with (
        Client(url, mode="2026-07-28") as client,
        client.listen(resource_subscriptions=[uri]) as changes,
    ):

        async def follow() -> None:
            async for change in changes:
                assert isinstance(change, ResourceUpdated)
                await cues.put(change.uri)

        following = asyncio.create_task(follow())
        yield client, cues
        following.cancel()
        await asyncio.wait({following})


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_an_edit_reaches_an_official_client_in_under_a_second(
    dev: Program, docs: Path, era: str
) -> None:
    """The acceptance of issue 2: once per era, and the read that follows returns the new text."""
    uri = "docs://hello.md"
    loop = asyncio.get_running_loop()
    async with _cues(dev.port, era, uri) as (client, cues):
        started = loop.time()
        (docs / "hello.md").write_text(f"# Edited for {era}\n")
        assert await within(cues.get(), "a cue", 5) == uri
        [contents] = (await client.read_resource(uri)).contents
        assert loop.time() - started < 1.0
        assert isinstance(contents, TextResourceContents)
        assert contents.text == f"# Edited for {era}\n"


def test_a_folder_that_is_not_there_is_a_sentence(start: Start, tmp_path: Path) -> None:
    program = start("-m", "broker", "dev", str(tmp_path / "none"))
    assert program.process.wait() == 2
    assert "is no folder: name one with Markdown files" in program.process.tail()


def test_a_second_dev_on_the_same_port_says_so(start: Start, dev: Program, docs: Path) -> None:
    second = start("-m", "broker", "dev", str(docs), BROKER_PORT=str(dev.port))
    assert second.process.wait() == 2
    assert "is in use, perhaps by another broker" in second.process.tail()


def test_ctrl_c_ends_everything_quickly_and_quietly(dev: Program) -> None:
    dev.process.send(signal.SIGINT)
    assert dev.process.wait(5) == 0
    assert "Traceback" not in dev.process.tail()
