"""Where a command goes, and what an answer that says otherwise means (broker/store/slots.py)."""

import pytest
from redis import exceptions as rx

from broker.core.identity import TenantId
from broker.store.adoption import Reign, Standing, reign_of
from broker.store.keys import SHARDS, Keys
from broker.store.slots import (
    PATIENCE,
    REDIRECTIONS,
    RETRIES,
    Attempts,
    SlotMap,
    slot_in,
    slot_of,
    slot_of_all,
)

A, B, C = ("10.0.0.1", 7000), ("10.0.0.2", 7001), ("10.0.0.3", 7002)


def test_every_kind_of_key_of_a_tenant_is_in_the_slot_of_its_log() -> None:
    keys = Keys("mrb", SHARDS)
    for name in ("acme", "globex", "a b/c:é"):
        tenant = TenantId(name)
        slot = slot_of(keys.log(keys.log_number(tenant)))
        assert slot_of(keys.order(tenant)) == slot_of(keys.calls(tenant, "g")) == slot
        assert slot_of(keys.token(tenant, "x")) == slot_of(keys.quota(tenant)) == slot


def test_the_logs_are_in_sixteen_slots_spread_over_the_whole_range() -> None:
    keys = Keys("any", SHARDS)
    slots = sorted(slot_of(keys.log(number)) for number in range(SHARDS))
    assert [slot // 1024 for slot in slots] == list(range(SHARDS))


@pytest.mark.parametrize(
    "command",
    [
        ("EVALSHA", "digest", 2, "k{a}", "l{a}", "argument"),
        ("HMGET", "k{a}", "f"),
        ("XREAD", b"BLOCK", 1000, b"STREAMS", "k{a}", "0-0"),
        ("XREADGROUP", "GROUP", "g", "c", b"COUNT", 1, "STREAMS", b"k{a}", ">"),
        ("XGROUP DELCONSUMER", "k{a}", "g", "c"),
    ],
)
def test_a_command_goes_where_its_first_key_is(command: tuple[object, ...]) -> None:
    assert slot_in(command) == slot_of("{a}")


def test_a_command_without_a_key_is_a_bug_and_not_a_guess() -> None:
    with pytest.raises(ValueError, match="names no key"):
        slot_in(("TIME",))


def test_a_pipeline_of_two_slots_is_a_bug() -> None:
    with pytest.raises(ValueError, match="one slot"):
        slot_of_all([("GET", "{a}"), ("GET", "{b}")])


def test_a_map_is_learned_and_a_node_without_a_name_is_the_one_that_was_asked() -> None:
    known = SlotMap()
    ranges = [[0, 8191, [b"", 7000, b"id"], [b"10.0.0.3", 7002]], [8192, 16383, [b"10.0.0.2", 7001]]]
    assert known.learn(ranges, A, [5, 9000]) == frozenset()
    assert known.owners == {5: A, 9000: B}
    assert known.nodes == {A, B, C}


def test_who_has_lost_the_last_slot_is_named_and_who_keeps_one_is_not() -> None:
    known = SlotMap({5: A, 6: A, 9000: B})
    assert known.learn([[5, 5, [b"10.0.0.2", 7001]], [6, 6, [b"10.0.0.1", 7000]]], A, [5, 6]) == frozenset()
    assert known.learn([[0, 8191, [b"10.0.0.3", 7002]]], C, [5, 6]) == {A}


def test_a_slot_that_changes_hands_has_another_turn_and_one_that_stays_has_not() -> None:
    known = SlotMap()
    known.give(5, A)
    known.give(5, A)
    assert known.turn(5) == 0
    known.give(5, B)
    known.give(5, A)
    assert known.turn(5) == 2


def test_moved_is_followed_at_once_and_corrects_the_map() -> None:
    following = Attempts(0.0, RETRIES).after(rx.MovedError("5 10.0.0.2:7001"), A, 0.0)
    assert following is not None
    assert (following.moved, following.pause, following.ask_at) == ((5, B), 0.0, None)


def test_ask_is_followed_once_and_corrects_nothing() -> None:
    following = Attempts(0.0, RETRIES).after(rx.AskError("5 :7001"), A, 0.0)
    assert following is not None
    assert (following.moved, following.ask_at) == (None, ("10.0.0.1", 7001))


def test_nodes_that_send_a_command_to_and_fro_are_followed_for_a_while_only() -> None:
    attempts = Attempts(0.0, RETRIES)
    error = rx.MovedError("5 10.0.0.2:7001")
    followed = [attempts.after(error, A, PATIENCE + 1) for _ in range(REDIRECTIONS + 1)]
    assert all(followed[:-1])
    assert followed[-1] is None
    assert followed[REDIRECTIONS - 1].pause > 0  # type: ignore[union-attr] # not None, see above


def test_what_passes_by_waiting_is_waited_for_and_not_for_ever() -> None:
    attempts = Attempts(0.0, RETRIES)
    for error in (rx.TryAgainError("TRYAGAIN"), rx.ClusterDownError("CLUSTERDOWN")):
        following = attempts.after(error, A, 0.5)
        assert following is not None
        assert following.pause > 0
        assert attempts.after(error, A, PATIENCE + 0.1) is None


def test_a_failed_connection_is_tried_as_often_as_on_a_single_node_and_a_full_pool_never() -> None:
    attempts = Attempts(0.0, RETRIES)
    error = rx.ConnectionError("refused")
    assert all(attempts.after(error, A, 0.0) for _ in range(RETRIES))
    assert attempts.after(error, A, 0.0) is None
    assert Attempts(0.0, RETRIES).after(rx.ConnectionError("No connection available."), A, 0.0) is None


def test_an_answer_is_an_answer() -> None:
    for error in (rx.NoScriptError("NOSCRIPT"), rx.ResponseError("SCHEMA 2"), ValueError("a bug")):
        assert Attempts(0.0, RETRIES).after(error, A, 0.0) is None


def test_a_promotion_is_another_reign_of_the_same_server_and_forgets_what_was_adopted() -> None:
    server = b"redis_version:7.2.0\r\nredis_mode:cluster\r\nrun_id:abc\r\n"
    first = reign_of(server, b"role:master\r\nmaster_replid:111\r\n")
    again = reign_of(server, b"role:master\r\nmaster_replid:222\r\n")
    assert first == Reign("abc", "111")
    assert first.identity != again.identity
    standing = Standing(first, 0.0, {5: 0})
    standing.look(first)
    assert standing.adopted == {5: 0}
    standing.look(again)
    assert standing.adopted == {}
