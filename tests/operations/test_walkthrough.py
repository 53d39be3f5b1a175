"""Each guide for operators, followed to the letter: reader.py says what that means."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.charts.chart import Manifest, pods
from tests.operations.reader import ROOT, Command, Reader, commands
from tests.support.authority import Authority
from tests.support.process import free_port
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet

pytestmark = pytest.mark.usefixtures("helm_binary")

OPERATIONS = ROOT / "docs" / "operations"
INSTALL = OPERATIONS / "install.md"
PAGES = [
    page
    for page in (*sorted(OPERATIONS.glob("*.md")), ROOT / "docs" / "tenants.md", ROOT / "helm" / "README.md")
    if commands(page)
]
NEEDS_BROKER = ("--url", "broker top", "broker streams")
IMAGE = "registry.example.org/mcp-resource-broker:0.1.0"


@pytest.fixture
def reader(
    redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """Give a reader with an empty installation, and another one to move to."""
    monkeypatch.chdir(tmp_path)
    port = str(free_port())
    environment = {
        "BROKER_REDIS_URL": redis_server.url,
        "BROKER_PREFIX": prefix,
        "BROKER_PORT": port,
        "BROKER_INTERNAL_PORT": port,
    }
    reader = Reader(tmp_path, environment, {"redis://localhost:6379/0": redis_server.url})
    reader.prepare()
    yield reader
    with redis_server.client() as client:
        clear(client, prefix)


def follow(reader: Reader, page: Path, new_fleet: Callable[..., Fleet]) -> list[Command]:
    """Do all that a page says; returns what it was."""
    steps = commands(page)
    if not any("tenant create acme" in step.line for step in steps):
        reader.have("acme")
    if any(needed in step.line for step in steps for needed in NEEDS_BROKER):
        fleet = new_fleet(reader.environment["BROKER_REDIS_URL"], 1, BROKER_AUTH__MODE="keys")
        reader.environment |= {"BROKER_INTERNAL_PORT": str(fleet[0].internal_port)}
        reader.meant["https://mcp.example.org"] = fleet[0].url.removesuffix("/mcp")
    done: set[str] = set()
    for step in steps:
        if step.is_in_text:
            if step.line in done:
                continue
            if "acme" in step.words:
                reader.have("acme")
        reader.do(step)
        done.add(step.line)
    reader.check_variables()
    return steps


@pytest.mark.parametrize("page", [page for page in PAGES if page != INSTALL], ids=lambda page: page.stem)
def test_every_command_of_a_page_runs_or_says_what_it_needs(
    page: Path, reader: Reader, new_fleet: Callable[..., Fleet], request: pytest.FixtureRequest
) -> None:
    if page.stem == "move":
        there: RedisServer = request.getfixturevalue("own_redis")
        reader.meant |= {"$OLD": reader.environment["BROKER_REDIS_URL"], "$NEW": there.url}
    assert follow(reader, page, new_fleet)


def test_the_redis_commands_of_the_pages_are_ones_that_redis_takes(own_redis: RedisServer) -> None:
    """Those of Sentinel and Cluster need them; tests/store runs these."""
    written = {
        each
        for page in OPERATIONS.glob("*.md")
        for each in re.findall(r"`((?:ACL|CLIENT|INFO|SLOWLOG|REPLICAOF) [^`]+)`", page.read_text())
    }
    assert len(written) > 5
    with own_redis.client() as client:
        redis: Any = client
        redis.execute_command("ACL", "SETUSER", "broker", "on", ">OLD")
        for each in sorted(written):
            redis.execute_command(*each.split())
        redis.execute_command("CLIENT", "UNPAUSE")


def test_a_newcomer_who_follows_the_install_guide_has_all_that_the_pods_ask_for(
    reader: Reader, new_fleet: Callable[..., Fleet]
) -> None:
    """Nothing that is named is missing: pods without their Secrets never start, and say so in no log."""
    authority = Authority(reader.folder, "authority")
    authority.file.rename(reader.folder / "ca.crt")
    authority.issue("tls")
    follow(reader, INSTALL, new_fleet)
    made = {(each["kind"], each["metadata"]["name"]): each for each in reader.made}
    for kind, name, key in _named(reader.made):
        assert (kind, name) in made, f"{INSTALL.name} makes no {kind} {name}"
        if key:
            assert key in {*made[kind, name].get("data", ()), *made[kind, name].get("stringData", ())}, (
                name,
                key,
            )
    images = {container["image"] for _, pod in pods(reader.made) for container in pod["containers"]}
    assert images - {"valkey/valkey:9.1-alpine"} == {IMAGE}
    assert f"docker push {IMAGE}" in INSTALL.read_text()


def _named(manifests: list[Manifest]) -> Iterator[tuple[str, str, str]]:
    """Yield what pods and Ingresses need to be there: kind, name, and the key in it."""
    for _, pod in pods(manifests):
        if "priorityClassName" in pod:
            yield "PriorityClass", pod["priorityClassName"], ""
        yield from _mounted(pod)
        for container in pod["containers"]:
            for variable in container.get("env", ()):
                asked: dict[str, Any] = variable.get("valueFrom", {}).get("secretKeyRef", {})
                if asked:
                    yield "Secret", asked["name"], asked["key"]
    for ingress in manifests:
        if ingress["kind"] == "Ingress":
            yield from (("Secret", each["secretName"], "tls.crt") for each in ingress["spec"].get("tls", ()))


def _mounted(pod: Manifest) -> Iterator[tuple[str, str, str]]:
    for volume in pod.get("volumes", ()):
        if "secret" in volume:
            for item in volume["secret"].get("items", [{"key": ""}]):
                yield "Secret", volume["secret"]["secretName"], item["key"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], ""
