"""A reader's cursor: what it notices, and what entries may look like (design section 3)."""

from collections.abc import Container, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.identity import ResourceKey, SessionId, TenantId
from broker.core.log import (
    CHANGE,
    LIST,
    NO_HEAD,
    REMOVE,
    SESSION,
    Cursor,
    Discontinuity,
    Entry,
    Head,
    Malformed,
    SessionOp,
    decode,
    watched_name,
)
from broker.core.revision import Revision

ACME = TenantId("acme")


def entry(n: int, mark: str, previous: str, epoch: str = "e1") -> Entry:
    return Entry(epoch, n, mark, previous, CHANGE, ACME, "docs://1")


def standing_at(n: int, mark: str = "m", epoch: str = "e1") -> Cursor:
    cursor = Cursor()
    cursor.jump(Head(epoch, n, mark), n)
    return cursor


def test_entries_in_order_are_followed_without_complaint() -> None:
    cursor = standing_at(10, "a")
    assert cursor.follow(entry(11, "b", "a")) is None
    assert cursor.follow(entry(12, "c", "b")) is None
    assert (cursor.n, cursor.mark, cursor.tick) == (12, "c", 2)


def test_a_missing_entry_is_a_gap_and_the_reader_stays() -> None:
    cursor = standing_at(10, "a")
    assert cursor.follow(entry(12, "c", "b")) is Discontinuity.GAP
    assert (cursor.n, cursor.mark, cursor.tick) == (10, "a", 0)


def test_a_log_trimmed_past_the_reader_is_a_gap() -> None:
    assert standing_at(10).follow(entry(50_010, "x", "w")) is Discontinuity.GAP


def test_the_next_number_after_another_predecessor_is_a_fork() -> None:
    """The log went back to before 10 and grew again: 11 is contiguous, but its predecessor is not our 10."""
    assert standing_at(10, "a").follow(entry(11, "b", "z")) is Discontinuity.FORK


def test_a_contiguous_entry_of_another_epoch_is_not_followed() -> None:
    assert standing_at(10, "a").follow(entry(11, "b", "a", epoch="e2")) is Discontinuity.EPOCH


def test_a_jump_of_numbers_into_a_new_epoch_is_a_new_epoch() -> None:
    assert standing_at(10).follow(entry(1_700_000_000_000_000, "b", "", epoch="e2")) is Discontinuity.EPOCH


def test_only_a_gap_or_a_new_connection_says_that_redis_lost_nothing() -> None:
    assert {d for d in Discontinuity if not d.may_have_lost} == {Discontinuity.GAP, Discontinuity.RECONNECT}


def test_a_heartbeat_that_shows_our_own_place_is_no_news() -> None:
    assert standing_at(10, "a").check(Head("e1", 10, "a"), asked_at=10) is None


def test_a_fork_refilled_to_the_same_number_shows_in_the_heartbeat() -> None:
    assert standing_at(10, "a").check(Head("e1", 10, "z"), asked_at=10) is Discontinuity.FORK


def test_a_head_below_what_we_had_read_is_a_fork() -> None:
    assert standing_at(10, "a").check(Head("e1", 9, "y"), asked_at=10) is Discontinuity.FORK


def test_a_head_that_was_asked_for_before_the_last_entries_is_no_fork() -> None:
    """The heartbeat's answer is older than what the reader has read since: 9 >= 8, our place at the time."""
    assert standing_at(10, "a").check(Head("e1", 9, "y"), asked_at=8) is None


def test_a_head_beyond_ours_is_work_and_no_discontinuity() -> None:
    cursor = standing_at(10, "a")
    head = Head("e1", 12, "c")
    assert cursor.check(head, asked_at=10) is None
    assert cursor.is_behind(head)
    assert not cursor.is_behind(Head("e1", 10, "a"))


def test_another_epoch_shows_in_the_heartbeat_even_at_the_same_place() -> None:
    assert standing_at(10, "a").check(Head("e2", 10, "a"), asked_at=10) is Discontinuity.EPOCH


def test_a_head_that_vanished_shows_in_the_heartbeat() -> None:
    assert standing_at(10, "a").check(NO_HEAD, asked_at=10) is Discontinuity.EPOCH


def test_a_new_epoch_without_an_entry_yet_still_notices_a_missing_first_one() -> None:
    """A gap right after a start or failover went unnoticed.

    adopt.lua moves the head and adds no entry, so the stream's last id lies behind it; the cursor then took
    any first entry, even if a burst had trimmed earlier ones of the new epoch before this replica read.
    """
    cursor = Cursor()
    cursor.jump(Head("e2", 1000, "a"), last_id=17)
    assert cursor.n == 1000
    assert cursor.follow(entry(1002, "c", "b", epoch="e2")) is Discontinuity.GAP
    assert cursor.follow(entry(1001, "b", "a", epoch="e2")) is None


def test_a_lost_log_goes_on_behind_its_head() -> None:
    cursor = Cursor()
    cursor.jump(Head("e1", 100, "a"), last_id=0)
    assert cursor.follow(entry(101, "b", "a")) is None


def test_behind_a_lost_head_reading_goes_on_and_the_next_entry_is_another_epoch() -> None:
    """Head gone, stream kept: the next writer finds no head and begins an epoch, which must be compared."""
    cursor = Cursor()
    cursor.jump(NO_HEAD, last_id=100)
    assert cursor.n == 100
    assert not cursor.is_anchored
    assert cursor.follow(entry(5000, "b", "", epoch="e2")) is Discontinuity.EPOCH


def test_an_unreadable_entry_is_stepped_over_and_the_log_goes_on() -> None:
    """A foreign entry sits between two of ours: the second still names the first as its predecessor."""
    cursor = standing_at(10, "a")
    cursor.skip(15)
    assert (cursor.n, cursor.is_anchored) == (15, False)
    assert cursor.follow(entry(16, "b", "a")) is None
    assert cursor.is_anchored


def test_an_unreadable_entry_of_ours_is_a_fork_and_so_compared() -> None:
    """A kind that this release does not know: what follows names a predecessor that we never saw."""
    cursor = standing_at(10, "a")
    cursor.skip(11)
    assert cursor.follow(entry(12, "c", "b")) is Discontinuity.FORK


def test_behind_a_half_dead_script_the_next_writer_names_the_same_predecessor() -> None:
    """A script died between its entry (n = 11) and the head (n = 10): the next begins an epoch behind it."""
    cursor = Cursor()
    cursor.jump(Head("e1", 10, "a"), last_id=11)
    assert cursor.n == 11
    assert cursor.check(Head("e1", 10, "a"), asked_at=11) is None
    assert cursor.follow(entry(12, "c", "b")) is Discontinuity.FORK
    assert cursor.follow(entry(7000, "b", "a", epoch="e2")) is Discontinuity.EPOCH


def test_an_empty_store_that_stays_empty_is_no_news_and_its_first_entry_is_an_epoch() -> None:
    cursor = Cursor()
    cursor.jump(NO_HEAD, last_id=0)
    assert cursor.check(NO_HEAD, asked_at=0) is None
    assert cursor.follow(entry(1_700_000_000_000_000, "a", "", epoch="e1")) is Discontinuity.EPOCH


def test_an_empty_store_that_got_a_head_is_another_epoch() -> None:
    cursor = Cursor()
    cursor.jump(NO_HEAD, last_id=0)
    assert cursor.check(Head("e1", 5, "a"), asked_at=0) is Discontinuity.EPOCH


def test_ticks_never_go_back_although_numbers_do() -> None:
    cursor = standing_at(100, "a")
    cursor.follow(entry(101, "b", "a"))
    cursor.jump(Head("e1", 50, "z"), 50)
    cursor.follow(entry(51, "y", "z"))
    assert cursor.n == 51
    assert cursor.tick == 2


def test_a_cursor_reports_itself() -> None:
    cursor = Cursor()
    cursor.jump(NO_HEAD, 3)
    assert repr(cursor) == "<Cursor .3. unanchored tick=0>"


FIELDS = {b"e": b"e1", b"m": b"m1", b"p": b"m0", b"k": b"c", b"t": b"acme", b"u": "docs://ü".encode()}
SESSION_FIELDS = {
    b"e": b"e1", b"m": b"m1", b"p": b"m0", b"k": b"s", b"t": b"acme",
    b"i": b"S" * 43, b"x": b"+", b"c": b"7", b"u": b"docs://1", b"b": b"41:aa",
}  # fmt: skip


def test_a_change_is_read_as_it_was_written() -> None:
    read = decode(b"12-0", FIELDS | {b"s": b"finance hr"})
    assert read == Entry("e1", 12, "m1", "m0", CHANGE, ACME, "docs://ü", scopes=frozenset({"finance", "hr"}))
    assert read.revision == Revision(12, "m1")
    assert read.key == ResourceKey(ACME, "docs://ü")
    assert not read.relists


def test_a_change_that_shows_in_the_list_says_so() -> None:
    assert decode(b"12-0", FIELDS | {b"l": b"1"}).relists
    assert decode(b"12-0", FIELDS | {b"k": b"d", b"l": b"1"}).kind == REMOVE


def test_a_list_entry_names_no_resource() -> None:
    read = decode(b"12-0", FIELDS | {b"k": b"l"})
    assert (read.kind, read.uri, read.relists) == (LIST, "", True)


def test_a_session_entry_carries_its_baseline_and_concerns_no_resource() -> None:
    read = decode(b"12-0", SESSION_FIELDS)
    assert (read.kind, read.uri, read.relists) == (SESSION, "", False)
    event = read.session
    assert event is not None
    assert (event.id, event.op, event.counter) == (SessionId("S" * 43), SessionOp.SUBSCRIBED, 7)
    assert (event.uri, event.baseline, event.owner, event.fence) == ("docs://1", Revision(41, "aa"), None, 0)


def test_a_takeover_names_its_owner_and_fence() -> None:
    taken = {k: v for k, v in SESSION_FIELDS.items() if k not in {b"u", b"b"}}
    event = decode(b"12-0", taken | {b"x": b"g", b"o": b"r1", b"f": b"3"}).session
    assert event is not None
    assert (event.op, event.owner, event.fence, event.baseline) == (SessionOp.TAKEN, "r1", 3, None)


@pytest.mark.parametrize("missing", [b"e", b"m", b"p", b"k", b"t", b"u"])
def test_an_entry_without_a_field_is_malformed_and_not_a_crash(missing: bytes) -> None:
    with pytest.raises(Malformed):
        decode(b"12-0", {k: v for k, v in FIELDS.items() if k != missing})


@pytest.mark.parametrize("missing", [b"i", b"x", b"c"])
def test_a_session_entry_without_a_field_is_malformed(missing: bytes) -> None:
    with pytest.raises(Malformed):
        decode(b"12-0", {k: v for k, v in SESSION_FIELDS.items() if k != missing})


@pytest.mark.parametrize(
    ("entry_id", "change"),
    [
        (b"12-1", {}),
        (b"12", {}),
        (b"x-0", {}),
        (b"", {}),
        (b"12-0", {b"k": b"?"}),
        (b"12-0", {b"t": b"\xff"}),
        (b"12-0", {b"u": b"\xc3"}),
        (b"12-0", {b"u": b""}),
        (b"12-0", {b"e": b"\x80"}),
    ],
)
def test_an_entry_that_we_did_not_write_is_malformed(entry_id: bytes, change: dict[bytes, bytes]) -> None:
    with pytest.raises(Malformed):
        decode(entry_id, FIELDS | change)


@pytest.mark.parametrize("change", [{b"x": b"?"}, {b"c": b"x"}, {b"b": b"41"}, {b"b": b"x:aa"}, {b"f": b""}])
def test_a_session_entry_that_we_did_not_write_is_malformed(change: dict[bytes, bytes]) -> None:
    with pytest.raises(Malformed):
        decode(b"12-0", SESSION_FIELDS | change)


# -- passing over what nobody watches ------------------------------------------------------------------------

NOTHING: frozenset[bytes] = frozenset()
RawEntries = list[tuple[bytes, Sequence[bytes]]]


def raw(n: int, mark: str, previous: str, uri: str = "docs://1", **other: bytes) -> tuple[bytes, list[bytes]]:
    fields = {
        "e": b"e1",
        "m": mark.encode(),
        "p": previous.encode(),
        "w": b"5",
        "k": b"c",
        "t": b"acme",
        "u": uri.encode(),
    }
    return b"%d-0" % n, [part for name, value in (fields | other).items() for part in (name.encode(), value)]


def step(cursor: Cursor, entry: tuple[bytes, Sequence[bytes]]) -> Entry | Discontinuity:
    """Take one entry as the reader does that looks at each."""
    entry_id, fields = entry
    decoded = decode(entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
    return cursor.follow(decoded) or decoded


def test_what_nobody_watches_is_passed_over_and_what_somebody_watches_is_not() -> None:
    cursor = standing_at(10, "a")
    batch: RawEntries = [
        raw(11, "b", "a"),
        raw(12, "c", "b", "docs://2"),
        raw(13, "d", "c", s=b"x"),
        raw(14, "e", "d", "docs://3"),
    ]
    assert cursor.pass_over(batch, 0, {watched_name(ACME, "docs://3")}) == 3
    assert (cursor.n, cursor.mark, cursor.tick, cursor.is_anchored) == (13, "d", 3, True)
    assert cursor.pass_over(batch, 3, NOTHING) == 4


@pytest.mark.parametrize(
    "strange",
    [
        raw(12, "c", "b"), raw(11, "b", "z"), raw(11, "b", "a", e=b"e2"), raw(11, "b", "a", k=b"s"),
        raw(11, "b", "a", k=b"a"), raw(11, "b", "a", l=b"1"), raw(11, "b", "a", ""), (b"x", [b"e"]),
        (b"11-1", raw(11, "b", "a")[1]), (b"11-0", []), (b"11-0", raw(11, "b", "a")[1][2:]),
    ],
)  # fmt: skip
def test_what_does_not_follow_or_is_of_another_shape_is_looked_at(strange: tuple[bytes, list[bytes]]) -> None:
    cursor = standing_at(10, "a")
    assert cursor.pass_over([strange], 0, NOTHING) == 0
    assert (cursor.n, cursor.mark, cursor.tick) == (10, "a", 0)


def test_a_reader_without_an_anchor_looks_at_each_entry() -> None:
    cursor = standing_at(10, "a")
    cursor.skip(10)
    assert cursor.pass_over([raw(11, "b", "a")], 0, NOTHING) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["docs://1", "docs://2", "x:\u2028"]), st.booleans(), st.integers(0, 9)),
        max_size=12,
    ),
    st.sets(st.sampled_from(["docs://1", "docs://2", "x:\u2028", "docs://3"])),
)
def test_passing_over_and_looking_at_each_come_to_the_same(
    drawn: list[tuple[str, bool, int]], uris: set[str]
) -> None:
    """Entry by entry or by leaps: the same stand, the same discontinuity, the same watched changes."""
    batch: RawEntries = []
    n, mark = 10, "a"
    for uri, relists, luck in drawn:
        n += 2 if luck == 0 else 1
        previous, mark = "z" if luck == 1 else mark, f"m{n}"
        batch.append(raw(n, mark, previous, uri, **({"l": b"1"} if relists else {})))
    slow, quick = standing_at(10, "a"), standing_at(10, "a")
    expected = _watched_of(slow, batch, uris, None)
    assert _watched_of(quick, batch, uris, {watched_name(ACME, uri) for uri in uris}) == expected
    assert (quick.n, quick.mark, quick.tick) == (slow.n, slow.mark, slow.tick)


def _watched_of(
    cursor: Cursor, batch: RawEntries, uris: set[str], watched: Container[bytes] | None
) -> list[tuple[int, str] | Discontinuity]:
    """Return the changes of `uris`, and what broke the log; by leaps where `watched` is given."""
    found: list[tuple[int, str] | Discontinuity] = []
    at = 0
    while True:
        if watched is not None:
            at = cursor.pass_over(batch, at, watched)
        if at == len(batch):
            return found
        taken = step(cursor, batch[at])
        at += 1
        if isinstance(taken, Discontinuity):
            return [*found, taken]
        if taken.uri in uris:
            found.append((taken.n, taken.uri))
