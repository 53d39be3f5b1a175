"""`broker export` and `broker import`: an installation moves to another prefix or Redis, whole."""

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from broker.__main__ import main
from broker.core.access import READ
from broker.core.errors import BadRequest
from broker.core.transfer import End, ResourceLine, TenantLine, decode, encode
from tests.support.mcp import Modern
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from workers import SyncPublisher

ROOT = Path(__file__).parents[2]


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


class Place:
    """An installation: a Redis and a prefix."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.url = server.url
        self.prefix = prefix

    def broker(self, *argv: str) -> Done:
        """Run a command in this process, where that costs no start of Python."""
        out, err = io.StringIO(), io.StringIO()
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("BROKER_REDIS_URL", self.url)
            patch.setenv("BROKER_PREFIX", self.prefix)
            code = main(argv)
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        return Done(code, out.getvalue(), err.getvalue())

    def publisher(self, tenant: str) -> SyncPublisher:
        return SyncPublisher(self.url, tenant=tenant, prefix=self.prefix)


@pytest.fixture
def old(redis_server: RedisServer, prefix: str) -> Place:
    return Place(redis_server, prefix)


@pytest.fixture
def new(redis_server: RedisServer, prefix: str) -> Iterator[Place]:
    """Give another installation on the same server."""
    yield Place(redis_server, f"{prefix}-new")
    with redis_server.client() as client:
        clear(client, f"{prefix}-new")


def fill(place: Place, count: int = 5) -> str:
    """Publish a little of everything; return the text of a key."""
    assert place.broker("tenant", "create", "acme", "resources=200").returncode == 0
    key = place.broker("key", "create", "acme", "reader", "--scope", READ).stdout.strip()
    with place.publisher("acme") as publisher:
        publisher.publish("docs://all", {"a": "\u2028 ü"}, title="All", version=7, ttl_ms=5000)
        publisher.publish("docs://closed", b"\0\xff", scopes=["inner"], subjects=["user:1"])
    # A rate of its own so low that an import under it would take minutes.
    assert place.broker("tenant", "limit", "acme", "publishes=1").returncode == 0
    with place.publisher("unregistered tenant: 1") as publisher:
        publisher.publish_many([(f"n://{number:05}", str(number)) for number in range(count)])
        publisher.publish("n://short", "x", expires_in=3600)
        publisher.publish("n://gone", "x")
        publisher.remove("n://gone")
    return key


def counts(done: Done) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split("\t") for line in done.stdout.splitlines())}


def test_what_was_exported_is_there_again_and_a_second_import_changes_nothing(
    old: Place, new: Place, tmp_path: Path
) -> None:
    fill(old, 1200)
    file = str(tmp_path / "all.jsonl")
    exported = old.broker("export", file)
    assert exported.returncode == 0, exported.stderr
    assert "1000 resources…" in exported.stderr
    assert Path(file).stat().st_mode & 0o077 == 0, "it has contents and digests of keys"
    checked = new.broker("import", file, "--check")
    assert checked.returncode == 1
    assert counts(checked)["missing"] == 1203 + 1
    done = new.broker("import", file)
    assert done.returncode == 0, done.stderr
    assert counts(done) == {
        "tenants": 1, "keys added": 1, "added": 1203, "same": 0, "different": 0, "expired": 0, "missing": 0,
        "refused": 0,
    }  # fmt: skip
    again = counts(new.broker("import", file))
    assert (again["added"], again["same"], again["keys added"]) == (0, 1203, 0)
    assert new.broker("import", file, "--check").returncode == 0
    again_file = str(tmp_path / "again.jsonl")
    assert new.broker("export", again_file).returncode == 0
    # Of a lifetime what is left of it moves.
    before, after = (re.sub(r'"expires_ms":\d+', "", Path(name).read_text()) for name in (file, again_file))
    assert after == before


def test_a_publisher_who_says_the_same_after_the_move_tells_nobody_and_an_old_version_stays_late(
    old: Place, new: Place, tmp_path: Path
) -> None:
    fill(old)
    file = str(tmp_path / "all.jsonl")
    old.broker("export", file)
    assert new.broker("import", file).returncode == 0
    with new.publisher("unregistered tenant: 1") as publisher:
        assert publisher.publish("n://00001", "1").status == "unchanged"
        short = publisher.read("n://short")
        assert short is not None
        assert short.expires_ms is not None
        assert publisher.read("n://gone") is None
    with new.publisher("acme") as publisher:
        assert publisher.publish("docs://all", "late", version=6).status == "superseded"
        closed = publisher.read("docs://closed")
        assert closed is not None
        assert len(closed.scopes) == 2


def test_an_import_that_was_cut_goes_on_where_it_stopped_and_says_that_it_was_cut(
    old: Place, new: Place, tmp_path: Path
) -> None:
    fill(old)
    whole = tmp_path / "all.jsonl"
    old.broker("export", str(whole))
    lines = whole.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:5]))
    done = new.broker("import", str(cut))
    assert done.returncode == 2
    assert "it was cut" in done.stderr
    assert counts(done)["added"] == 3
    done = new.broker("import", str(whole))
    assert done.returncode == 0, done.stderr
    assert (counts(done)["same"], counts(done)["added"]) == (3, 5)


def test_what_is_there_already_is_left_unless_it_is_to_be_overwritten(
    old: Place, new: Place, tmp_path: Path
) -> None:
    fill(old)
    file = str(tmp_path / "all.jsonl")
    old.broker("export", file)
    with new.publisher("unregistered tenant: 1") as publisher:
        publisher.publish("n://00001", "newer")
        assert counts(new.broker("import", file))["different"] == 1
        read = publisher.read("n://00001")
        assert read is not None
        assert b"newer" in read.contents
        assert new.broker("import", file, "--check").returncode == 1
        assert counts(new.broker("import", file, "--overwrite"))["added"] == 1
    assert new.broker("import", file, "--check").returncode == 0


def test_a_tenant_can_be_moved_alone(old: Place, new: Place, tmp_path: Path) -> None:
    fill(old)
    file = tmp_path / "acme.jsonl"
    assert old.broker("export", str(file), "--tenant", "acme").returncode == 0
    lines = [decode(line, number) for number, line in enumerate(file.read_bytes().splitlines(), 1)]
    assert [line.tenant.id for line in lines if isinstance(line, TenantLine)] == ["acme"]
    assert {line.publication.key.tenant for line in lines if isinstance(line, ResourceLine)} == {"acme"}
    assert lines[-1] == End(1, 2)
    nobody = old.broker("export", str(tmp_path / "x"), "--tenant", "nobody")
    assert nobody.returncode == 2
    assert "There is no tenant nobody" in nobody.stderr
    assert not list(tmp_path.glob("x*"))


async def test_keys_and_limits_hold_on_the_brokers_of_the_new_place(
    old: Place,
    own_redis: RedisServer,
    new_fleet: Callable[..., Fleet],
    tmp_path: Path,
    http: httpx.AsyncClient,
) -> None:
    """To another server, and while its broker serves."""
    file = str(tmp_path / "all.jsonl")
    fleet = new_fleet(own_redis.url, 1, BROKER_AUTH__MODE="keys")
    new = Place(own_redis, fleet.prefix)

    def move() -> str:
        key = fill(old)
        assert old.broker("export", file).returncode == 0
        assert new.broker("import", file).returncode == 0
        shown = json.loads(new.broker("tenant", "show", "acme").stdout)
        assert shown["limits"] == {"resources": 200, "publishes": 1}
        return key

    http.headers["authorization"] = f"Bearer {await asyncio.to_thread(move)}"
    async with Modern(fleet[0].url, "acme", http) as client:
        assert await client.list() == ["docs://all"], "the key's scopes decide, as before"


def test_the_page_s_commands_move_an_installation_as_they_stand(
    old: Place, own_redis: RedisServer, tmp_path: Path
) -> None:
    fill(old)
    text = (ROOT / "docs" / "operations" / "move.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    bins = str(Path(sys.executable).parent)
    environment = {
        "PATH": f"{bins}:/usr/bin:/bin",
        "OLD": old.url,
        "NEW": own_redis.url,
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", blocks[0]],
        env={**environment, "BROKER_PREFIX": old.prefix},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with SyncPublisher(own_redis.url, tenant="acme", prefix=old.prefix) as publisher:
        assert [listed.uri for listed in publisher.list()] == ["docs://all", "docs://closed"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "is the file whole"),
        (b'{"is":"song"}', "of no kind"),
        (b'{"is":"header","release":"9","format":2}', "newer release"),
        (b'{"is":"resource","tenant":"a","uri":"no uri"}', "Line 7 cannot be imported"),
        (
            b'{"is":"tenant","id":"a","record":{"state":"active","created_ms":0},"keys":{"d":{"id":"x"}}}',
            "Line 7",
        ),
        (b"[]", "is the file whole"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_number(line: bytes, said: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(said)):
        decode(line, 7)


def test_a_resource_comes_back_from_its_line_as_it_was() -> None:
    line = (
        b'{"is":"resource","tenant":"a","uri":"b:c","digest":"'
        + b"0" * 56
        + b'st","meta":"{\\"uri\\":\\"b:c\\"}",'
        b'"body":"[]","rule":["x"],"ttl_ms":1,"cache_scope":"public","version":null,"expires_ms":5}\n'
    )
    assert encode(decode(line, 1)) == line


DEEP = "[" * 100_000
RESOURCE: dict[str, Any] = {
    "is": "resource", "tenant": "a", "uri": "b:c", "digest": "0" * 56, "meta": '{"uri":"b:c","name":"c"}',
    "body": '[{"uri":"b:c","text":"x"}]', "rule": [], "ttl_ms": None, "cache_scope": None, "version": None,
    "expires_ms": None,
}  # fmt: skip
KEY: dict[str, Any] = {
    "id": "0123456789", "tenant": "a", "name": "ci", "scopes": [READ], "created_ms": 0, "expires_ms": None,
}  # fmt: skip
TENANT: dict[str, Any] = {
    "is": "tenant", "id": "a", "record": {"state": "active", "created_ms": 0, "limits": {}},
    "keys": {"0" * 64: KEY},
}  # fmt: skip


def test_the_lines_that_hostile_ones_are_made_of_are_taken() -> None:
    for number, given in enumerate((RESOURCE, TENANT), 2):
        decode(json.dumps(given).encode(), number)


@pytest.mark.parametrize(
    "changed",
    [
        {"meta": DEEP},
        {"body": DEEP},
        {"meta": '{"uri":"b:c",\n\n"name":"c"}'},
        {"meta": '{"uri":"b:c","name":"\u2028"}'},
        {"meta": '{"uri":"x:other","name":"c"}'},
        {"meta": '{"uri":"b:c","name":"c","name":"d"}'},
        {"body": "[NaN]"},
        {"body": "[1]"},
        {"rule": "inner"},
        {"rule": None},
        {"rule": [1]},
        {"rule": [""]},
        {"rule": ["inner other"]},
        {"rule": ["x" * 2000]},
        {"ttl_ms": "x"},
        {"ttl_ms": -1},
        {"cache_scope": "everybody"},
        {"version": 2**60},
        {"version": "1"},
        {"expires_ms": "soon"},
        {"expires_ms": 1e300},
        {"digest": "0" * 56 + "stst"},
        {"tenant": ""},
        {"uri": "b:\ud800"},
    ],
    ids=lambda changed: ascii(changed)[:40],
)
def test_a_resource_that_no_publisher_could_have_said_is_refused(changed: dict[str, Any]) -> None:
    """Its bytes would be spliced into answers, and its rule would decide."""
    with pytest.raises(BadRequest, match=r"^Line 7 "):
        decode(json.dumps(RESOURCE | changed).encode(), 7)


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "b"},
        {"record": {"state": "deleting", "created_ms": 0}},
        {"record": {"state": "active", "created_ms": 0, "limits": {"reads": "many"}}},
        {"record": {"state": "active", "created_ms": 0, "limits": {"reads": -1}}},
        {"keys": {"digest": KEY}},
        {"keys": {"0" * 64: KEY | {"tenant": "b"}}},
        {"keys": {"0" * 64: KEY | {"name": "a b"}}},
        {"keys": {"0" * 64: KEY | {"scopes": ["a b"]}}},
        {"keys": {"0" * 64: KEY | {"expires_ms": "never"}}},
    ],
    ids=lambda changed: ascii(changed)[:60],
)
def test_a_tenant_that_no_administrator_could_have_made_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"^Line 7 "):
        decode(json.dumps(TENANT | changed).encode(), 7)


@pytest.mark.parametrize(
    "line", [DEEP, '{"is":"end","tenants":1e999,"resources":0}', '{"is":"end","tenants":' + DEEP]
)
def test_a_line_that_is_deep_or_endless_is_refused_and_no_traceback(line: str) -> None:
    with pytest.raises(BadRequest, match="Line 7 is not a line of"):
        decode(line.encode(), 7)


@pytest.mark.parametrize("changes", ["lacks a line", "has one twice"])
def test_a_file_that_lacks_a_line_or_has_one_twice_says_so(
    old: Place, new: Place, tmp_path: Path, changes: str
) -> None:
    fill(old)
    file = tmp_path / "all.jsonl"
    old.broker("export", str(file))
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3:4] = [] if changes == "lacks a line" else [lines[3]] * 2
    file.write_bytes(b"".join(lines))
    done = new.broker("import", str(file))
    assert done.returncode == 2
    assert "missing, or are there twice" in done.stderr


def test_what_has_no_end_of_a_line_costs_no_memory(new: Place) -> None:
    done = new.broker("import", "/dev/zero")
    assert done.returncode == 2
    assert "Line 1 is longer than 10000 bytes" in done.stderr
