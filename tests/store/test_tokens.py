"""Sent twice is done once: resends by the client, and repeats by a caller under its own key."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from broker.core.errors import Conflict, KeyReused, StoreUnavailable
from broker.store import publishing
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from broker.store.scripts import run
from tests.store.shelf import Shelf
from tests.support.fault_proxy import FaultProxy
from tests.support.redis_server import RedisServer
from tests.support.wait import until


async def test_a_resend_gets_the_same_answer_and_does_nothing(shelf: Shelf) -> None:
    call = shelf.publishing("a")
    first = await run(shelf.redis, call)
    assert await run(shelf.redis, call) == first
    assert first.status == "published"
    assert len(await shelf.entries()) == 1


async def test_a_resend_after_another_publish_in_between_does_not_undo_it(shelf: Shelf) -> None:
    call = shelf.publishing("a")
    first = await run(shelf.redis, call)
    await shelf.publish("b")
    assert await run(shelf.redis, call) == first
    assert '"text":"b"' in str(await shelf.text())
    assert len(await shelf.entries()) == 2


async def test_a_resent_removal_does_not_remove_what_came_after_it(shelf: Shelf) -> None:
    await shelf.publish("a")
    call = publishing.remove(shelf.keys, shelf.key())
    first = await run(shelf.redis, call)
    await shelf.publish("b")
    assert await run(shelf.redis, call) == first
    assert '"text":"b"' in str(await shelf.text())


async def test_a_resent_touch_announces_once(shelf: Shelf) -> None:
    call = publishing.touch(shelf.keys, shelf.key())
    assert await run(shelf.redis, call) == await run(shelf.redis, call)
    assert len(await shelf.entries()) == 1


async def test_a_resent_version_is_not_superseded_by_itself(shelf: Shelf) -> None:
    call = shelf.publishing("a", version=1)
    await run(shelf.redis, call)
    assert (await run(shelf.redis, call)).status == "published"
    unchanged = shelf.publishing("a", version=2)
    await run(shelf.redis, unchanged)
    assert (await run(shelf.redis, unchanged)).status == "unchanged"


async def test_a_publish_whose_reply_is_lost_is_sent_again_by_the_client_and_done_once(
    redis_server: RedisServer, redis: Redis, keys: Keys
) -> None:
    """The client repeats a command whose connection died before the reply; one XADD ran twice when tried."""
    with FaultProxy(redis_server.address) as proxy:
        client = commands(Connect(proxy.redis_url, keys, timeout=0.5))
        shelf, watcher = Shelf(client, keys), Shelf(redis, keys)
        await shelf.publish("warm")  # the connection is there, and the script known
        proxy.black_hole(up=False, down=True)
        under_way = asyncio.ensure_future(shelf.publish("once", version=5))

        async def is_stored() -> bool:
            return '"once"' in str(await watcher.text())

        await until(is_stored, "the publish reached Redis")
        proxy.cut()
        proxy.pass_all()
        outcome = await under_way
        assert proxy.accepted > 1, "nothing was sent again"
        assert outcome == Outcome("published", await watcher.stamp())
        assert len(await watcher.entries()) == 2
        await client.aclose()


async def test_the_same_key_again_is_replayed_with_the_earlier_answer(shelf: Shelf) -> None:
    first = await shelf.publish("a", idempotency_key="job-1")
    await shelf.publish("b")
    assert await shelf.publish("a", idempotency_key="job-1") == Outcome("replayed", first.stamp)
    assert '"text":"b"' in str(await shelf.text())


async def test_an_unchanged_publish_under_a_key_is_remembered_too(shelf: Shelf) -> None:
    await shelf.publish("a")
    assert (await shelf.publish("a", idempotency_key="k")).status == "unchanged"
    await shelf.publish("b")
    assert (await shelf.publish("a", idempotency_key="k")).status == "replayed"
    assert '"text":"b"' in str(await shelf.text())


async def test_a_key_used_for_other_contents_is_an_error_and_not_a_silent_replay(shelf: Shelf) -> None:
    await shelf.publish("a", idempotency_key="k")
    for other in (
        shelf.publish("b", idempotency_key="k"),
        shelf.publish("a", idempotency_key="k", version=1),
        shelf.publish("a", uri="docs://other", idempotency_key="k"),
        shelf.touch(idempotency_key="k"),
        shelf.remove(idempotency_key="k"),
    ):
        with pytest.raises(KeyReused, match="new key"):
            await other
    assert len(await shelf.entries()) == 1


async def test_a_refused_call_does_not_use_up_its_key(shelf: Shelf) -> None:
    with pytest.raises(Conflict):
        await shelf.publish("a", idempotency_key="k", expect="exists")
    await shelf.publish("x")
    assert (await shelf.publish("a", idempotency_key="k", expect="exists")).status == "published"


async def test_keys_of_two_tenants_are_two_keys(shelf: Shelf) -> None:
    other = Shelf(shelf.redis, shelf.keys, "other")
    await shelf.publish("a", idempotency_key="k")
    assert (await other.publish("b", idempotency_key="k")).status == "published"


async def test_touch_and_remove_are_replayed_under_a_key(shelf: Shelf) -> None:
    touched = await shelf.touch(idempotency_key="t")
    assert await shelf.touch(idempotency_key="t") == Outcome("replayed", touched.stamp)
    await shelf.publish("a")
    removed = await shelf.remove(idempotency_key="r")
    await shelf.publish("b")
    assert await shelf.remove(idempotency_key="r") == Outcome("replayed", removed.stamp)
    assert '"text":"b"' in str(await shelf.text())


async def test_fifty_at_once_under_one_key_publish_once(shelf: Shelf) -> None:
    outcomes = await asyncio.gather(*(shelf.publish("a", idempotency_key="k") for _ in range(50)))
    assert sorted(outcome.status for outcome in outcomes) == ["published"] + ["replayed"] * 49
    assert len({outcome.stamp for outcome in outcomes}) == 1


async def test_a_callers_key_can_never_be_a_random_token(shelf: Shelf) -> None:
    call = shelf.publishing("a")
    random_part = call.keys[-2].partition(":r:")[2]
    assert random_part
    await run(shelf.redis, call)
    assert (await shelf.publish("b", idempotency_key=f"r:{random_part}")).status == "published"


async def test_tokens_live_as_long_as_documented(shelf: Shelf, raw: Any) -> None:
    own, caller = shelf.publishing("a"), shelf.publishing("b", idempotency_key="k")
    await run(shelf.redis, own)
    await run(shelf.redis, caller)
    minute = 60_000
    assert 9 * minute < raw.pttl(own.keys[-2]) <= publishing.RESEND_MS
    assert 23 * 60 * minute < raw.pttl(caller.keys[-2]) <= publishing.IDEMPOTENCY_MS


async def test_a_publish_to_a_redis_that_is_gone_is_a_retryable_error(own_redis: RedisServer) -> None:
    client = commands(Connect(own_redis.url, Keys("gone"), timeout=0.2, connect_timeout=0.2))
    shelf = Shelf(client, Keys("gone"))
    await shelf.publish("a")
    own_redis.kill()
    with pytest.raises(StoreUnavailable) as refusal:
        await shelf.publish("b")
    assert refusal.value.retryable
    own_redis.start()
    assert (await shelf.publish("b")).status == "published"
    await client.aclose()
