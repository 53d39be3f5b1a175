"""Credentials from settings and files: a password is replaced on a running server, and everybody goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import StoreUnavailable
from broker.store.address import Access
from broker.store.client import Connect, commands, commands_sync
from broker.store.errors import translated
from broker.store.keys import Keys
from tests.support.mcp import Modern
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from workers import Publisher, SyncPublisher

NAME = "broker"


def set_password(server: RedisServer, password: str) -> None:
    with server.client() as raw:
        untyped: Any = raw
        untyped.execute_command(
            "ACL", "SETUSER", NAME, "on", "resetpass", f">{password}", "~*", "&*", "+@all"
        )


def write(file: Path, contents: str | bytes | None) -> None:
    if contents is None:
        file.unlink()
    else:
        file.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


def cut(server: RedisServer) -> None:
    """End every connection of the user."""
    with server.client() as raw:
        untyped: Any = raw
        untyped.execute_command("CLIENT", "KILL", "USER", NAME)


@pytest.fixture
def file(tmp_path: Path, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "password"
    monkeypatch.setenv("BROKER_REDIS__USERNAME", NAME)
    monkeypatch.setenv("BROKER_REDIS__PASSWORD_FILE", str(path))
    path.write_text("first\n")
    set_password(own_redis, "first")
    return path


async def test_a_rotated_password_ends_no_stream_and_no_publisher(
    own_redis: RedisServer,
    file: Path,
    new_fleet: Callable[..., Fleet],
    prefix: str,
) -> None:
    fleet = new_fleet(own_redis.url, 1, BROKER_REDIS__USERNAME=NAME, BROKER_REDIS__PASSWORD_FILE=str(file))
    client = Modern(fleet[0].url)
    async with (
        Publisher(own_redis.url, prefix=prefix) as publisher,
        await client.listen(["a:b"]) as stream,
    ):
        await publisher.publish("a:b", "before")
        await stream.cue("a:b")
        set_password(own_redis, "second")
        cut(own_redis)
        # The server is first, as it must be somewhere; meanwhile all are refused.
        with pytest.raises(StoreUnavailable, match="refused our credentials"):
            await publisher.publish("a:b", "refused")
        write(file, "second\n")

        async def published() -> bool:
            try:
                await publisher.publish("a:b", "after")
            except StoreUnavailable:
                return False
            return True

        await until(published, "the publisher goes on")
        await stream.cue("a:b")
        assert (await client.read("a:b"))[0]["text"] == "after"
    await client.close()


def test_a_plain_script_reads_the_file_for_each_connection(own_redis: RedisServer, file: Path) -> None:
    with SyncPublisher(own_redis.url) as publisher:
        publisher.publish("a:b", "before")
        set_password(own_redis, "second")
        file.write_text("second")
        cut(own_redis)
        assert publisher.publish("a:b", "after").status == "published"


@pytest.mark.parametrize("contents", [None, "", "wrong", b"\xff\xfe"])
async def test_a_file_that_is_of_no_use_is_a_state_that_passes(
    own_redis: RedisServer, file: Path, contents: str | bytes | None
) -> None:
    write(file, contents)
    how = Connect(own_redis.url, Keys("rotation"), access=Access(NAME, str(file)))
    client: Any = commands(how)
    with pytest.raises(StoreUnavailable) as refusal, translated():
        await client.ping()
    assert "PASSWORD_FILE" in str(refusal.value) or str(file) in str(refusal.value)
    assert "wrong" not in str(refusal.value).replace("WRONGPASS", "")
    write(file, "first")
    assert await client.ping()
    await client.aclose()
    plain: Any = commands_sync(how)
    assert plain.ping()
    plain.close()
