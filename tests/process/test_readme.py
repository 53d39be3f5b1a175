"""The README's examples, run as they stand against a broker; only its port is the one of the test."""

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store import embedded
from tests.process.conftest import ROOT, Program, Start, environment
from tests.support.process import Process
from tests.support.wait import until_sync
from workers import SyncPublisher

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def _block(language: str, mark: str) -> str:
    [found] = [text for kind, text in BLOCKS if kind == language and mark in text]
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def broker(start: Start, state: Path) -> Program:
    program = start("-m", "broker", "serve", BROKER_STATE_DIR=str(state), BROKER_LINGER_SECONDS="0")
    program.wait_ready()
    return program


@pytest.fixture
def shell(broker: Program, state: Path) -> dict[str, str]:
    """Give the environment of somebody whose broker has this port and this directory."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return environment(BROKER_STATE_DIR=str(state), BROKER_PORT=str(broker.port), PATH=path)


@pytest.fixture
def listening(
    broker: Program, shell: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Process]:
    script = tmp_path / "listen.py"
    script.write_text(_block("python", request.param).replace("127.0.0.1:8000", f"127.0.0.1:{broker.port}"))
    process = Process("listen", [sys.executable, str(script)], tmp_path / "listen.log", shell)
    process.start()
    yield process
    process.kill()


def test_publishing_from_python(broker: Program, shell: dict[str, str], state: Path, tmp_path: Path) -> None:
    script = tmp_path / "publish.py"
    script.write_text(_block("python", "from workers"))
    done = subprocess.run([sys.executable, script], env=shell, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("published ")
    with SyncPublisher(embedded.find(state)) as publisher:
        assert [each.uri for each in publisher.list()] == ["config://app", "logo://main", "report://weekly"]


def test_publishing_over_http(broker: Program, state: Path) -> None:
    """The curl command's parts are sent without curl, which a fresh machine may lack."""
    words = shlex.split(_block("sh", "curl"))
    pairs = list(itertools.pairwise(words))
    headers = dict(value.split(": ", 1) for option, value in pairs if option == "-H")
    [method] = [value for option, value in pairs if option == "-X"]
    [data] = [value for option, value in pairs if option == "--data-binary"]
    connection = broker.connect()
    connection.request(method, words[-1].removeprefix("http://127.0.0.1:8000"), data, headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.read()
    with SyncPublisher(embedded.find(state)) as publisher:
        stored = publisher.read("report://weekly")
        assert stored is not None
        assert b'"# Week 49"' in stored.contents
        assert b'"text/markdown"' in stored.contents


def test_publishing_and_watching_from_a_shell(broker: Program, shell: dict[str, str], tmp_path: Path) -> None:
    publish, listing, watch = _block("sh", "broker watch").strip().splitlines()
    watcher = Process("watch", shlex.split(watch), tmp_path / "watch.log", shell)
    watcher.start()
    try:
        until_sync(lambda: "watching  report://weekly" in watcher.tail(), watcher.tail)
        done = subprocess.run(["bash", "-c", publish], env=shell, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("published report://weekly")
        until_sync(lambda: "changed   report://weekly" in watcher.tail(), watcher.tail)
        done = subprocess.run(["bash", "-c", listing], env=shell, capture_output=True, text=True, check=True)
        assert done.stdout == "report://weekly\ttext/markdown\n"
    finally:
        watcher.kill()


@pytest.mark.parametrize("listening", ["client.listen", "subscribe_resource"], indirect=True)
def test_subscribing_from_python_in_either_era(state: Path, listening: Process) -> None:
    with SyncPublisher(embedded.find(state)) as publisher:

        def hears() -> bool:
            # The example says nothing when its stream opens, so the resource changes until it has heard.
            publisher.publish("report://weekly", f"new {os.urandom(4).hex()}")
            return "new " in listening.tail() or "changed report://weekly" in listening.tail()

        until_sync(hears, listening.tail, 20)
    assert listening.is_running


def test_its_links_and_pictures_are_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
