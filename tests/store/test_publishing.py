"""What publish, touch and remove answer, store and announce."""

import asyncio
import random
from typing import Any

import pytest
from redis.asyncio import Redis

from broker.core.errors import BadRequest, Conflict, InvalidUri, WrongStore
from broker.core.identity import LIST
from broker.core.log import CHANGE, REMOVE
from broker.core.publication import Description
from broker.core.revision import Stamp
from broker.store import publishing
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from broker.store.scripts import run
from tests.store.shelf import URI, Shelf


async def test_an_acknowledged_publish_is_stored_and_announced_at_one_revision(shelf: Shelf) -> None:
    outcome = await shelf.publish("hello", about={"mime_type": "text/plain"})
    (entry,) = await shelf.entries()
    stored = await shelf.read()
    assert stored is not None
    assert outcome == Outcome("published", stored.stamp)
    assert (entry.kind, entry.key, entry.revision) == (CHANGE, shelf.key(), stored.stamp.revision)
    assert stored.contents == b'[{"uri":"docs://readme","mimeType":"text/plain","text":"hello"}]'


async def test_an_unchanged_publish_announces_nothing_and_keeps_the_revision(shelf: Shelf) -> None:
    first = await shelf.publish("hello")
    assert await shelf.publish("hello") == Outcome("unchanged", first.stamp)
    assert len(await shelf.entries()) == 1


async def test_contents_alone_do_not_change_the_list(shelf: Shelf) -> None:
    first = await shelf.publish("one")
    assert await shelf.list_stamp() == first.stamp
    await shelf.publish("two")
    assert [entry.relists for entry in await shelf.entries()] == [True, False]
    assert await shelf.list_stamp() == first.stamp


@pytest.mark.parametrize(
    "about",
    [
        {"title": "T"},
        {"name": "other"},
        {"mime_type": "text/html"},
        {"scopes": ("staff",)},
        {"size": 5},
        {"annotations": {"priority": 1}},
    ],
    ids=str,
)
async def test_what_the_list_shows_changes_the_list_in_the_same_entry(
    shelf: Shelf, about: Description
) -> None:
    await shelf.publish("one")
    outcome = await shelf.publish("one", about=about)
    assert outcome.status == "published"
    entries = await shelf.entries()
    assert [entry.relists for entry in entries] == [True, True]
    assert await shelf.list_stamp() == await shelf.stamp() == outcome.stamp


@pytest.mark.parametrize("about", [{"ttl_ms": 500}, {"cache_scope": "public"}], ids=str)
async def test_a_caching_hint_is_a_change_that_the_list_does_not_show(
    shelf: Shelf, about: Description
) -> None:
    await shelf.publish("one")
    assert (await shelf.publish("one", about=about)).status == "published"
    assert [entry.relists for entry in await shelf.entries()] == [True, False]


async def test_what_is_no_longer_declared_is_absent_again(shelf: Shelf) -> None:
    everything: Description = {"scopes": ("a",), "ttl_ms": 5, "cache_scope": "private", "title": "T"}
    await shelf.publish("one", about=everything, expires_in_ms=60_000)
    before = await shelf.read()
    await shelf.publish("one")
    after = await shelf.read()
    assert before is not None
    assert after is not None
    assert (before.scopes, before.ttl_ms, before.cache_scope) == ({"a"}, 5, "private")
    assert before.expires_ms is not None
    assert (after.scopes, after.ttl_ms, after.cache_scope, after.expires_ms) == (
        frozenset(),
        None,
        None,
        None,
    )
    assert b"title" not in after.meta


async def test_required_scopes_travel_in_the_entry(shelf: Shelf) -> None:
    await shelf.publish("one", about={"scopes": "b a"})
    await shelf.touch()
    await shelf.remove()
    assert [entry.scopes for entry in await shelf.entries()] == [{"a", "b"}] * 3


async def test_an_older_or_equal_version_is_superseded_and_changes_nothing(shelf: Shelf) -> None:
    newest = await shelf.publish("seven", version=7)
    for version in (0, 6, 7):
        assert await shelf.publish("late", version=version) == Outcome("superseded", newest.stamp)
        assert await shelf.remove(version=version) == Outcome("superseded", newest.stamp)
    assert "seven" in str(await shelf.text())
    assert len(await shelf.entries()) == 1


async def test_versions_up_to_the_largest_exact_integer_are_told_apart(shelf: Shelf) -> None:
    top = 2**53 - 1
    await shelf.publish("a", version=top - 1)
    assert (await shelf.publish("b", version=top - 1)).status == "superseded"
    assert (await shelf.publish("c", version=top)).status == "published"
    stored = await shelf.read()
    assert stored is not None
    assert stored.version == top


async def test_an_unchanged_publish_stores_its_newer_version(shelf: Shelf) -> None:
    await shelf.publish("same", version=1)
    assert (await shelf.publish("same", version=5)).status == "unchanged"
    assert (await shelf.publish("late", version=4)).status == "superseded"


async def test_a_publish_without_a_version_keeps_the_stored_one(shelf: Shelf) -> None:
    await shelf.publish("a", version=5)
    await shelf.publish("b")
    assert (await shelf.publish("c", version=5)).status == "superseded"


async def test_a_tombstone_remembers_the_version(shelf: Shelf) -> None:
    await shelf.publish("a", version=5)
    assert (await shelf.remove(version=6)).status == "removed"
    assert (await shelf.publish("late", version=6)).status == "superseded"
    assert await shelf.read() is None
    assert (await shelf.publish("new", version=7)).status == "published"


async def test_a_removal_of_nothing_still_outruns_an_older_publish(shelf: Shelf) -> None:
    assert await shelf.remove(version=3) == Outcome("absent", None)
    assert (await shelf.publish("late", version=2)).status == "superseded"
    assert (await shelf.publish("new", version=4)).status == "published"
    assert "new" in str(await shelf.text())


async def test_a_removal_is_announced_once_and_leaves_the_list(shelf: Shelf) -> None:
    await shelf.publish("a")
    removed = await shelf.remove()
    assert removed.status == "removed"
    assert await shelf.remove() == Outcome("absent", removed.stamp)
    assert [entry.kind for entry in await shelf.entries()] == [CHANGE, REMOVE]
    assert await shelf.uris() == []
    assert await shelf.list_stamp() == await shelf.stamp() == removed.stamp


async def test_removing_what_never_was_is_absent_and_leaves_no_key(shelf: Shelf, raw: Any) -> None:
    assert await shelf.remove() == Outcome("absent", None)
    assert not raw.exists(shelf.keys.resource(shelf.key()))
    assert await shelf.entries() == []


async def test_a_tombstone_holds_a_revision_and_a_version_and_goes_after_a_day(
    shelf: Shelf, raw: Any
) -> None:
    everything: Description = {"scopes": ("a",), "ttl_ms": 5, "cache_scope": "private"}
    await shelf.publish("a", version=3, about=everything, expires_in_ms=60_000)
    await shelf.remove()
    name = shelf.keys.resource(shelf.key())
    assert set(raw.hgetall(name)) == {b"e", b"n", b"m", b"ver", b"gone", b"sc"}
    assert 0 < raw.pttl(name) <= publishing.TOMBSTONE_MS
    assert raw.zcard(shelf.keys.expiry()) == 0
    assert raw.zcard(shelf.keys.order(shelf.tenant)) == 0


async def test_a_publish_over_a_tombstone_stays_for_good(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a")
    await shelf.remove()
    assert (await shelf.publish("a")).status == "published"
    assert raw.pttl(shelf.keys.resource(shelf.key())) == -1
    assert await shelf.uris() == [URI]
    assert [entry.relists for entry in await shelf.entries()] == [True, True, True]


async def test_touch_raises_the_revision_and_leaves_contents_and_list(shelf: Shelf) -> None:
    first = await shelf.publish("a")
    touched = await shelf.touch()
    assert touched.status == "touched"
    assert await shelf.stamp() == touched.stamp != first.stamp
    assert await shelf.list_stamp() == first.stamp
    assert "a" in str(await shelf.text())
    assert [(entry.kind, entry.relists) for entry in await shelf.entries()] == [
        (CHANGE, True),
        (CHANGE, False),
    ]


async def test_touch_announces_a_change_of_what_was_never_published(shelf: Shelf, raw: Any) -> None:
    touched = await shelf.touch("users://7/profile")
    (entry,) = await shelf.entries()
    assert (entry.uri, entry.relists) == ("users://7/profile", False)
    assert await shelf.stamp("users://7/profile") == touched.stamp
    assert await shelf.read("users://7/profile") is None
    assert await shelf.uris() == []
    assert 0 < raw.pttl(shelf.keys.resource(shelf.key("users://7/profile"))) <= publishing.TOMBSTONE_MS


async def test_a_publish_over_what_was_only_touched_stays_for_good(shelf: Shelf, raw: Any) -> None:
    await shelf.touch()
    assert (await shelf.publish("a", expect="absent")).status == "published"
    assert raw.pttl(shelf.keys.resource(shelf.key())) == -1
    assert await shelf.uris() == [URI]


async def test_a_resource_of_another_tenant_is_another_resource(redis: Redis, keys: Keys) -> None:
    ours, theirs = Shelf(redis, keys), Shelf(redis, keys, "a:b{c}*")
    await ours.publish("ours")
    await theirs.publish("theirs")
    await theirs.remove()
    assert "ours" in str(await ours.text())
    assert await theirs.read() is None
    assert await ours.uris() == [URI]


async def test_expect_lets_only_the_named_revision_through(shelf: Shelf) -> None:
    first = await shelf.publish("one")
    assert first.stamp is not None
    second = await shelf.publish("two", expect=first.stamp)
    assert second.stamp is not None
    with pytest.raises(Conflict, match=str(second.stamp)):
        await shelf.publish("three", expect=first.stamp)
    with pytest.raises(Conflict):
        await shelf.remove(expect=[first.stamp, Stamp("x", 1, "y")])
    assert (await shelf.remove(expect=[first.stamp, second.stamp])).status == "removed"
    with pytest.raises(Conflict, match="no such resource"):
        await shelf.publish("four", expect=second.stamp)
    assert len(await shelf.entries()) == 3


async def test_expect_exists_and_absent_say_what_must_be_there(shelf: Shelf) -> None:
    with pytest.raises(Conflict):
        await shelf.publish("a", expect="exists")
    await shelf.publish("a", expect="absent")
    with pytest.raises(Conflict):
        await shelf.publish("b", expect="absent")
    await shelf.publish("b", expect="exists")
    await shelf.remove(expect="exists")
    with pytest.raises(Conflict):
        await shelf.remove(expect="exists")


async def test_an_expectation_of_no_revision_at_all_never_holds(shelf: Shelf) -> None:
    await shelf.publish("a")
    with pytest.raises(Conflict):
        await shelf.publish("b", expect=())


async def test_a_refusal_consumes_no_n(shelf: Shelf) -> None:
    first = await shelf.publish("a", version=2)
    await shelf.publish("b", version=1)
    await shelf.publish("a")
    with pytest.raises(Conflict):
        await shelf.publish("c", expect="absent")
    last = await shelf.publish("d")
    assert first.stamp is not None
    assert last.stamp is not None
    assert last.stamp.n == first.stamp.n + 1


async def test_fifty_publishers_racing_with_versions_leave_the_newest(shelf: Shelf) -> None:
    versions = list(range(1, 51))
    random.shuffle(versions)
    outcomes = await asyncio.gather(*(shelf.publish(f"<{v}>", version=v) for v in versions))
    assert "<50>" in str(await shelf.text())
    published = [each.stamp for each in outcomes if each.status == "published"]
    assert {each.status for each in outcomes} <= {"published", "superseded"}
    entries = await shelf.entries()
    assert sorted(stamp.revision for stamp in published if stamp) == [entry.revision for entry in entries]
    assert await shelf.stamp() == max(published, key=lambda stamp: stamp.n if stamp else 0)


async def test_a_flushed_script_cache_is_filled_again(shelf: Shelf, redis: Redis) -> None:
    for text in ("a", "b"):
        await redis.script_flush()
        assert (await shelf.publish(text)).status == "published"
        await redis.script_flush()
        assert (await shelf.touch()).status == "touched"
    await redis.script_flush()
    assert (await shelf.remove()).status == "removed"
    assert len(await shelf.entries()) == 5


def _kinds(shelf: Shelf) -> dict[str, str]:
    keys = shelf.keys
    return {
        "log": keys.log(),
        "head": keys.head(),
        "resource": keys.resource(shelf.key()),
        "list": keys.resource(shelf.key(LIST)),
        "order": keys.order(shelf.tenant),
        "expiry": keys.expiry(),
    }


@pytest.mark.parametrize("which", ["log", "head", "resource", "list", "order", "expiry"])
async def test_a_key_of_another_type_refuses_before_anything_is_written(
    shelf: Shelf, raw: Any, which: str
) -> None:
    await shelf.publish("a", uri="docs://first")  # so that the log and the head are there
    name = _kinds(shelf)[which]
    raw.delete(name)
    raw.rpush(name, "not ours")
    before = {each: raw.dump(each) for each in raw.scan_iter(f"{shelf.keys.prefix}:*")}
    with pytest.raises(WrongStore, match="type"):
        await shelf.publish("b", expires_in_ms=60_000)
    assert {each: raw.dump(each) for each in raw.scan_iter(f"{shelf.keys.prefix}:*")} == before
    raw.delete(name)
    assert (await shelf.publish("b", expires_in_ms=60_000)).status == "published"


async def test_another_schema_refuses_before_anything_is_written(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a")
    raw.hset(shelf.keys.head(), "schema", "99")
    for call in (shelf.publish("b"), shelf.touch(), shelf.remove(), shelf.expire()):
        with pytest.raises(WrongStore, match="99"):
            await call
    assert len(await shelf.entries()) == 1


async def test_a_bad_uri_version_key_or_lifetime_is_refused_before_redis_is_asked(shelf: Shelf) -> None:
    with pytest.raises(InvalidUri):
        await shelf.touch("no uri")
    with pytest.raises(InvalidUri):
        await shelf.remove("@list")
    refused: list[dict[str, Any]] = [
        {"version": -1},
        {"version": 2**53},
        {"version": True},
        {"idempotency_key": ""},
        {"idempotency_key": "a\nb"},
        {"expires_in_ms": 0},
        {"expect": "sometimes"},
    ]
    for terms in refused:
        with pytest.raises(BadRequest):
            await shelf.publish("a", **terms)
    assert await shelf.entries() == []


async def test_a_member_of_the_expiry_set_names_its_resource_exactly(shelf: Shelf) -> None:
    for tenant in ("a", "a:b", "ü {x}", "%3A"):
        for uri in ("x:y", "x:a:b%3A?q=1#f", "x:é"):
            key = Shelf(shelf.redis, shelf.keys, tenant).key(uri)
            assert publishing.key_of(publishing.member(key).encode()) == key


async def test_the_call_of_a_publish_may_be_sent_by_anyone(shelf: Shelf) -> None:
    call = shelf.publishing("a")
    assert (await run(shelf.redis, call)).status == "published"
