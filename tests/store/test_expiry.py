"""What has a lifetime: absent once it is over, swept with an entry, never forgotten, never early."""

from typing import Any

import pytest

from broker.core.errors import Conflict
from broker.core.log import REMOVE
from broker.store import publishing, resources
from tests.store.shelf import URI, Shelf

HOUR_MS = 3_600_000


def make_past(raw: Any, shelf: Shelf, uri: str = URI) -> None:
    """Let the resource's time be over, as if it had been published long ago."""
    raw.hset(shelf.keys.resource(shelf.key(uri)), "exp", "1000")
    raw.zadd(shelf.keys.expiry(), {publishing.member(shelf.key(uri)): 1000})


async def due(shelf: Shelf) -> list[str]:
    return [key.uri for key in await resources.due(shelf.redis, shelf.keys)]


async def test_past_its_time_a_resource_is_absent_before_it_is_swept(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a", expires_in_ms=HOUR_MS)
    assert await shelf.uris() == [URI]
    make_past(raw, shelf)
    assert await shelf.read() is None
    assert await shelf.uris() == []
    with pytest.raises(Conflict):
        await shelf.publish("b", expect="exists")
    assert (await shelf.publish("a")).status == "published", "not unchanged: it was gone"
    assert [entry.relists for entry in await shelf.entries()] == [True, True]


async def test_a_sweep_is_an_ordinary_removal_with_its_own_entry(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a", version=3, expires_in_ms=HOUR_MS)
    make_past(raw, shelf)
    assert await due(shelf) == [URI]
    swept = await shelf.expire()
    assert swept is not None
    assert swept.status == "removed"
    last = (await shelf.entries())[-1]
    assert (last.kind, last.uri, last.relists) == (REMOVE, URI, True)
    assert await shelf.stamp() == await shelf.list_stamp() == swept.stamp
    assert await due(shelf) == []
    assert raw.pttl(shelf.keys.resource(shelf.key())) > 0
    assert (await shelf.publish("late", version=3)).status == "superseded"


async def test_swept_twice_is_swept_once(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a", expires_in_ms=HOUR_MS)
    make_past(raw, shelf)
    assert await shelf.expire() is not None
    assert await shelf.expire() is None
    assert len(await shelf.entries()) == 2


async def test_a_sweep_looks_again_by_the_servers_clock(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a", expires_in_ms=HOUR_MS)
    ahead = await resources.due(shelf.redis, shelf.keys, now_ms=2**50)
    assert [key.uri for key in ahead] == [URI]
    assert await shelf.expire() is None
    assert '"a"' in str(await shelf.text())
    assert len(await shelf.entries()) == 1
    assert raw.zcard(shelf.keys.expiry()) == 1


async def test_a_lifetime_that_was_prolonged_is_swept_at_the_later_time(shelf: Shelf, raw: Any) -> None:
    """The set keeps the earlier time, and the sweep that comes then corrects it."""
    await shelf.publish("a", expires_in_ms=1000)
    earlier = raw.zscore(shelf.keys.expiry(), publishing.member(shelf.key()))
    assert (await shelf.publish("a", expires_in_ms=HOUR_MS)).status == "unchanged"
    stored = await shelf.read()
    assert stored is not None
    assert stored.expires_ms is not None
    assert stored.expires_ms > earlier
    assert await shelf.expire() is None
    assert raw.zscore(shelf.keys.expiry(), publishing.member(shelf.key())) == stored.expires_ms


async def test_a_lifetime_that_was_shortened_is_swept_at_the_earlier_time(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a", expires_in_ms=HOUR_MS)
    await shelf.publish("a", expires_in_ms=1000)
    stored = await shelf.read()
    assert stored is not None
    assert raw.zscore(shelf.keys.expiry(), publishing.member(shelf.key())) == stored.expires_ms


async def test_published_again_without_a_lifetime_a_resource_stays(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a", expires_in_ms=HOUR_MS)
    await shelf.publish("a")
    raw.zadd(shelf.keys.expiry(), {publishing.member(shelf.key()): 1000})
    assert await shelf.expire() is None
    assert raw.zcard(shelf.keys.expiry()) == 0
    assert '"a"' in str(await shelf.text())


async def test_removing_what_is_past_and_not_swept_announces_its_end(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a", expires_in_ms=HOUR_MS)
    make_past(raw, shelf)
    assert (await shelf.remove()).status == "removed"
    assert len(await shelf.entries()) == 2
    assert await due(shelf) == []


async def test_due_is_bounded_and_earliest_first(shelf: Shelf, raw: Any) -> None:
    for number in range(resources.SWEPT_AT_ONCE + 5):
        raw.zadd(shelf.keys.expiry(), {publishing.member(shelf.key(f"x:{number:03}")): 1000 + number})
    assert await due(shelf) == [f"x:{number:03}" for number in range(resources.SWEPT_AT_ONCE)]
    for _ in range(2):
        for uri in await due(shelf):
            assert await shelf.expire(uri) is None
    assert raw.zcard(shelf.keys.expiry()) == 0
    assert await shelf.entries() == []


async def test_a_replica_whose_clock_runs_ahead_asks_the_servers(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.publish("a", expires_in_ms=HOUR_MS)
    monkeypatch.setattr(resources.time, "time", lambda: 1e12)
    assert '"a"' in str(await shelf.text())
    assert await shelf.uris() == [URI]
