"""Each write of each script made to fail in turn, on a real server (promise 11).

A user is made who may do everything but write to one of the call's keys: the scripts' reads pass, and the
write to that key fails where it stands, with everything before it done. (Scripts are not rolled back.) What
must hold whichever write fails: the publisher gets an error; nothing that can be read or listed has changed
without an entry that announces it; and the same call repeated, once writing is possible, heals everything.
"""

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from redis.exceptions import ResponseError

from broker.core.errors import StoreUnavailable, WrongStore
from broker.core.identity import LIST
from broker.core.publication import Description
from broker.store import publishing
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from broker.store.scripts import Call, run
from tests.store.shelf import URI, Shelf
from tests.support.redis_server import RedisServer

OLD: Description = {"title": "old"}
NEW: Description = {"title": "new", "scopes": ("staff",)}


@dataclass(frozen=True)
class Seen:
    """Everything that a client could notice without being told."""

    contents: str | None
    listed: bytes | None
    uris: tuple[str, ...]

    @classmethod
    async def of(cls, shelf: Shelf) -> "Seen":
        stored = await shelf.read()
        return cls(await shelf.text(), stored.meta if stored else None, tuple(await shelf.uris()))


@contextmanager
def without_writing(raw: Any, call: Call[Any], name: str) -> Generator[tuple[str, str]]:
    """Give the name and password of a user who may only read `name`, and do anything else with the rest."""
    user, password = f"u{secrets.token_hex(6)}", secrets.token_hex(6)
    # EVALSHA itself wants to write to each key that it names; the script's commands are looked at again.
    rules = [f"~{key}" for key in call.keys if key != name]
    raw.execute_command(
        "ACL", "SETUSER", user, "on", f">{password}", "+@all", "-evalsha", "-eval", f"%R~{name}", *rules,
        "(+evalsha +eval ~*)",
    )  # fmt: skip
    try:
        yield user, password
    finally:
        raw.execute_command("ACL", "DELUSER", user)


def changed(raw: Any, before: dict[bytes, bytes], call: Call[Any]) -> set[str]:
    """Return which of the call's keys differ from `before`."""
    now = contents_of(raw, call)
    return {name.decode() for name in now if now[name] != before[name]}


def contents_of(raw: Any, call: Call[Any]) -> dict[bytes, bytes]:
    return {name.encode(): raw.dump(name) for name in call.keys}


async def fails_at(
    server: RedisServer,
    shelf: Shelf,
    call: Call[Any],
    order: list[str],
    which: str,
    *,
    token: str | None = None,
) -> None:
    """Send `call` as a user who cannot write to one key, and see it fail with the writes before it done.

    `order` is in which order the call writes; exactly what stands before `which` must have changed.
    """
    known = {**names(shelf), "token": token or call.keys[-2]}
    name = known[which]
    with server.client() as raw, without_writing(raw, call, name) as (user, password):
        before = contents_of(raw, call)
        client = commands(Connect(f"redis://{user}:{password}@127.0.0.1:{server.port}/0", shelf.keys))
        # It cannot adopt without writing to the head, which is not what is under test.
        client.connection_pool.connection_kwargs.pop("redis_connect_func")
        try:
            with pytest.raises(WrongStore, match="permission"):
                await run(client, call)
        finally:
            await client.aclose()
        assert changed(raw, before, call) == {known[each] for each in order[: order.index(which)]}


@pytest.fixture(autouse=True)
def _needs_key_permissions(raw: Any) -> None:
    """Skip on servers older than 7.0, whose users have no permission for reading alone."""
    try:
        raw.execute_command("ACL", "SETUSER", "probe", "%R~x")
        raw.execute_command("ACL", "DELUSER", "probe")
    except ResponseError:
        pytest.skip("this server is older than 7.0: its users have no permission for reading alone")


def names(shelf: Shelf) -> dict[str, str]:
    keys = shelf.keys
    return {
        "log": keys.log(),
        "head": keys.head(),
        "resource": keys.resource(shelf.key()),
        "list": keys.resource(shelf.key(LIST)),
        "order": keys.order(shelf.tenant),
        "expiry": keys.expiry(),
        "quota": keys.quota(shelf.tenant),
    }


async def announced(shelf: Shelf, since: int) -> bool:
    """Whether an entry about the resource, that also tells the list's watchers, came after the first ones."""
    return any(entry.uri == URI and entry.relists for entry in (await shelf.entries())[since:])


FIRST = ["log", "head", "order", "list", "expiry", "resource", "quota", "token"]
CHANGE = ["log", "head", "list", "expiry", "resource", "token"]
REMOVE = ["log", "head", "order", "list", "resource", "quota", "expiry", "token"]
SWEEP = REMOVE[:-1]
TOUCH = ["log", "head", "resource", "token"]
"""In which order each call writes."""


@pytest.mark.parametrize("which", FIRST)
async def test_a_first_publish_that_dies_at_a_write_is_never_silent_and_heals(
    redis_server: RedisServer, raw: Any, shelf: Shelf, which: str
) -> None:
    before = await Seen.of(shelf)
    call = shelf.publishing("new", about=NEW, expires_in_ms=60_000, version=1)
    await fails_at(redis_server, shelf, call, FIRST, which)
    if await Seen.of(shelf) != before:
        assert await announced(shelf, 0)
    repeated = await run(shelf.redis, call)
    # A token or count that could not be written leaves a complete publish; by its version it is known again.
    assert repeated.status == ("superseded" if which in {"quota", "token"} else "published")
    await _is_whole(shelf, raw, repeated)


@pytest.mark.parametrize("which", CHANGE)
async def test_a_changing_publish_that_dies_at_a_write_is_never_silent_and_heals(
    redis_server: RedisServer, raw: Any, shelf: Shelf, which: str
) -> None:
    await shelf.publish("old", about=OLD)
    before, since = await Seen.of(shelf), len(await shelf.entries())
    call = shelf.publishing("new", about=NEW, expires_in_ms=60_000)
    await fails_at(redis_server, shelf, call, CHANGE, which)
    after = await Seen.of(shelf)
    if after != before:
        assert await announced(shelf, since)
    if which != "token":
        # The contents come last, so until all of it is done the old ones are read.
        assert after.contents == before.contents
    repeated = await run(shelf.redis, shelf.publishing("new", about=NEW, expires_in_ms=60_000))
    assert repeated.status == ("unchanged" if which == "token" else "published")
    await _is_whole(shelf, raw, repeated)


async def _is_whole(shelf: Shelf, raw: Any, outcome: Outcome) -> None:
    assert '"text":"new"' in str(await shelf.text())
    stored = await shelf.read()
    assert stored is not None
    assert stored.stamp == outcome.stamp
    assert stored.scopes == {"staff"}
    assert await shelf.uris() == [URI]
    assert await shelf.list_stamp() == outcome.stamp
    assert raw.pttl(shelf.keys.resource(shelf.key())) == -1
    due = raw.zscore(shelf.keys.expiry(), publishing.member(shelf.key()))
    assert due is not None
    assert due <= (stored.expires_ms or 0)
    last = (await shelf.entries())[-1]
    assert (last.uri, last.relists, last.revision) == (URI, True, stored.stamp.revision)


@pytest.mark.parametrize("which", FIRST)
async def test_a_publish_over_a_tombstone_that_dies_at_a_write_heals(
    redis_server: RedisServer, raw: Any, shelf: Shelf, which: str
) -> None:
    await shelf.publish("old", about=OLD)
    await shelf.remove()
    before, since = await Seen.of(shelf), len(await shelf.entries())
    call = shelf.publishing("new", about=NEW, expires_in_ms=60_000)
    await fails_at(redis_server, shelf, call, FIRST, which)
    if await Seen.of(shelf) != before:
        assert await announced(shelf, since)
    await _is_whole(
        shelf, raw, await run(shelf.redis, shelf.publishing("new", about=NEW, expires_in_ms=60_000))
    )


@pytest.mark.parametrize("which", REMOVE)
async def test_a_removal_that_dies_at_a_write_is_never_silent_and_heals(
    redis_server: RedisServer, raw: Any, shelf: Shelf, which: str
) -> None:
    await shelf.publish("old", about=OLD, expires_in_ms=60_000)
    before, since = await Seen.of(shelf), len(await shelf.entries())
    call = publishing.remove(shelf.keys, shelf.key())
    await fails_at(redis_server, shelf, call, REMOVE, which)
    if await Seen.of(shelf) != before:
        assert await announced(shelf, since)
    await shelf.remove()
    assert await Seen.of(shelf) == Seen(None, None, ())
    assert set(raw.hgetall(shelf.keys.resource(shelf.key()))) <= {b"e", b"n", b"m", b"gone", b"sc"}
    assert raw.pttl(shelf.keys.resource(shelf.key())) > 0
    assert await announced(shelf, since)
    last = (await shelf.entries())[-1]
    stamp = await shelf.stamp()
    assert stamp is not None
    assert stamp.revision == last.revision


@pytest.mark.parametrize("which", TOUCH)
@pytest.mark.parametrize("is_published", [True, False])
async def test_a_touch_that_dies_at_a_write_fails_and_heals(
    redis_server: RedisServer, raw: Any, shelf: Shelf, which: str, *, is_published: bool
) -> None:
    if is_published:
        await shelf.publish("old")
    before = await shelf.stamp()
    call = publishing.touch(shelf.keys, shelf.key())
    await fails_at(redis_server, shelf, call, TOUCH, which)
    if which != "token":
        assert await shelf.stamp() == before
    touched = await run(shelf.redis, call)
    assert touched is not None
    assert await shelf.stamp() == touched.stamp != before
    assert touched.stamp is not None
    assert (await shelf.entries())[-1].revision == touched.stamp.revision


@pytest.mark.parametrize("which", ["log", "head", "list", "token"])
async def test_an_announced_list_that_dies_at_a_write_fails_and_heals(
    redis_server: RedisServer, raw: Any, shelf: Shelf, which: str
) -> None:
    await shelf.publish("old")
    before = await shelf.list_stamp()
    call = publishing.list_changed(shelf.keys, shelf.tenant)
    await fails_at(redis_server, shelf, call, ["log", "head", "list", "token"], which, token=call.keys[-1])
    if which != "token":
        assert await shelf.list_stamp() == before
    announced = await run(shelf.redis, call)
    assert await shelf.list_stamp() == announced.stamp != before
    assert announced.stamp is not None
    last = (await shelf.entries())[-1]
    assert (last.kind, last.revision) == ("l", announced.stamp.revision)


@pytest.mark.parametrize("which", SWEEP)
async def test_an_expiry_that_dies_at_a_write_is_swept_again(
    redis_server: RedisServer, raw: Any, shelf: Shelf, which: str
) -> None:
    await shelf.publish("old", expires_in_ms=60_000)
    # Its time is over, by Redis' clock.
    raw.hset(shelf.keys.resource(shelf.key()), "exp", "1")
    raw.zadd(shelf.keys.expiry(), {publishing.member(shelf.key()): 1})
    call = publishing.expire(shelf.keys, shelf.key())
    await fails_at(redis_server, shelf, call, SWEEP, which)
    assert raw.zcard(shelf.keys.expiry()) == 1, "or nobody would sweep it again"
    await shelf.expire()
    assert raw.zcard(shelf.keys.expiry()) == 0
    assert (await shelf.entries())[-1].kind == "d"
    assert await shelf.uris() == []
    assert await shelf.list_stamp() == await shelf.stamp()


async def test_a_full_redis_refuses_before_anything_is_written_and_recovers(own_redis: RedisServer) -> None:
    """Out of memory is the failure that happens: all writes are refused at the first of them."""
    keys = Keys("full")
    client = commands(Connect(own_redis.url, keys))
    shelf = Shelf(client, keys)
    await shelf.publish("old")
    with own_redis.client() as meddler:
        raw: Any = meddler
        before = {key: raw.dump(key) for key in raw.scan_iter("full:*")}
        raw.config_set("maxmemory", "1mb")
        for call in (shelf.publish("new"), shelf.touch(), shelf.remove()):
            with pytest.raises(StoreUnavailable, match="memory"):
                await call
        assert {key: raw.dump(key) for key in raw.scan_iter("full:*")} == before
        assert "old" in str(await shelf.text())
        raw.config_set("maxmemory", "0")
    assert (await shelf.publish("new")).status == "published"
    await client.aclose()
