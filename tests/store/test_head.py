"""The head and the log: one of them gone, both, trimmed to nothing, or of another type.

n never restarts at 1 and never repeats in the stream; a head that cannot be continued begins a new epoch.
"""

from typing import Any

import pytest

from broker.core.errors import WrongStore
from broker.core.revision import Stamp
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from broker.store.publishing import Outcome
from tests.store.shelf import Shelf
from tests.support.redis_server import RedisServer

YEAR_2024_US = 1_704_067_200_000_000


def at(outcome: Outcome) -> Stamp:
    assert outcome.stamp is not None
    return outcome.stamp


async def test_the_first_n_is_the_servers_time_in_microseconds(shelf: Shelf) -> None:
    assert at(await shelf.publish("a")).n > YEAR_2024_US


async def test_head_gone_begins_a_new_epoch_behind_the_log(shelf: Shelf, raw: Any) -> None:
    before = at(await shelf.publish("a"))
    raw.delete(shelf.keys.head())
    after = at(await shelf.publish("b"))
    assert after.epoch != before.epoch
    assert after.n > before.n
    assert at(await shelf.publish("c")) == at(await shelf.publish("c"))._replace(n=after.n + 1)
    assert len(await shelf.entries()) == 3


async def test_head_gone_while_the_log_is_ahead_of_the_clock(shelf: Shelf, raw: Any) -> None:
    """The stream refuses an id that does not rise: then n goes on behind what it generated last."""
    await shelf.publish("a")
    ahead = 2**52
    raw.xadd(
        shelf.keys.log(), {"e": "x", "m": "x", "p": "x", "k": "c", "t": "other", "u": "x:y"}, id=f"{ahead}-0"
    )
    raw.delete(shelf.keys.head())
    after = at(await shelf.publish("b"))
    assert after.n == ahead + 1
    assert at(await shelf.publish("c")).n == ahead + 2


async def test_head_rolled_back_begins_a_new_epoch_behind_the_log(shelf: Shelf, raw: Any) -> None:
    await shelf.publish("a")
    old = raw.hgetall(shelf.keys.head())
    second = at(await shelf.publish("b"))
    raw.hset(shelf.keys.head(), mapping=old)
    third = at(await shelf.publish("c"))
    assert third.epoch != second.epoch
    assert third.n > second.n
    assert raw.hget(shelf.keys.head(), "epoch").decode() == third.epoch


async def test_log_gone_goes_on_counting(shelf: Shelf, raw: Any) -> None:
    before = at(await shelf.publish("a"))
    raw.delete(shelf.keys.log())
    after = at(await shelf.publish("b"))
    assert (after.epoch, after.n) == (before.epoch, before.n + 1)
    (entry,) = await shelf.entries()
    assert entry.previous == before.mark


async def test_both_gone_begins_a_new_epoch_that_looks_like_no_earlier_n(shelf: Shelf, raw: Any) -> None:
    before = at(await shelf.publish("a"))
    raw.delete(shelf.keys.log(), shelf.keys.head())
    after = at(await shelf.publish("b"))
    assert after.epoch != before.epoch
    assert after.n > before.n


async def test_a_log_trimmed_to_nothing_goes_on_counting(shelf: Shelf, raw: Any) -> None:
    before = at(await shelf.publish("a"))
    raw.xtrim(shelf.keys.log(), maxlen=0)
    after = at(await shelf.publish("b"))
    assert (after.epoch, after.n) == (before.epoch, before.n + 1)


async def test_a_log_or_head_of_another_type_refuses_everything_with_a_sentence(
    shelf: Shelf, raw: Any
) -> None:
    await shelf.publish("a")
    for name in (shelf.keys.log(), shelf.keys.head()):
        kept = raw.dump(name)
        raw.delete(name)
        raw.set(name, "not ours")
        for call in (shelf.publish("b"), shelf.touch(), shelf.remove()):
            with pytest.raises(WrongStore, match="another type"):
                await call
        assert raw.get(name) == b"not ours"
        raw.delete(name)
        raw.restore(name, 0, kept)
    assert (await shelf.publish("b")).status == "published"
    assert len(await shelf.entries()) == 2


async def test_the_log_is_kept_at_the_length_that_the_broker_set(
    redis_server: RedisServer, keys: Keys, raw: Any
) -> None:
    client = commands(Connect(redis_server.url, keys, log_length=100))
    shelf = Shelf(client, keys)
    for number in range(600):
        await shelf.publish(number)
    assert 100 <= raw.xlen(keys.log()) < 300  # whole nodes of a hundred entries are dropped
    await client.aclose()


async def test_a_publisher_on_a_restarted_server_is_in_a_new_epoch(own_redis: RedisServer) -> None:
    keys = Keys("again")
    client = commands(Connect(own_redis.url, keys))
    shelf = Shelf(client, keys)
    before = at(await shelf.publish("a"))
    own_redis.restart()
    after = at(await shelf.publish("b"))
    assert after.epoch != before.epoch
    assert after.n > before.n + 1
    assert '"text":"b"' in str(await shelf.text())
    await client.aclose()
