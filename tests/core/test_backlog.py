"""One connection's backlog: an ordered set with low-water numbers (promise 6, design section 3)."""

from broker.core.backlog import Backlog
from broker.core.hub import Topic
from broker.core.identity import LIST, ResourceKey, TenantId


def topic(uri: str) -> Topic[str]:
    return Topic(ResourceKey(TenantId("acme"), uri), uri)


U1, U2, U3 = topic("docs://1"), topic("docs://2"), topic("docs://3")


def test_a_resource_that_changes_a_thousand_times_waits_once() -> None:
    backlog: Backlog[str] = Backlog()
    assert [backlog.add(U1, n) for n in range(1, 1001)] == [True] + [False] * 999
    assert len(backlog) == 1
    assert backlog.take() == [(U1, None)]


def test_topics_are_told_in_the_order_of_their_first_change() -> None:
    backlog: Backlog[str] = Backlog()
    for each, n in ((U2, 10), (U3, 11), (U1, 12), (U2, 13)):
        backlog.add(each, n)
    assert [told for told, _ in backlog.take()] == [U2, U3, U1]


def test_a_cut_after_the_first_of_two_cues_still_owes_the_second() -> None:
    """U1@10, U2@11, U1@12: U1 goes out first, and its id must not claim that U2's change at 11 was told."""
    backlog: Backlog[str] = Backlog()
    for each, n in ((U1, 10), (U2, 11), (U1, 12)):
        backlog.add(each, n)
    assert backlog.take() == [(U1, 10), (U2, None)]


def test_taking_leaves_nothing_behind() -> None:
    backlog: Backlog[str] = Backlog()
    backlog.add(U1, 7)
    assert U1 in backlog
    backlog.take()
    assert U1 not in backlog
    assert len(backlog) == 0
    assert backlog.take() == []


def test_a_change_after_the_cue_was_taken_waits_again() -> None:
    backlog: Backlog[str] = Backlog()
    backlog.add(U1, 7)
    backlog.take()
    assert backlog.add(U1, 9)
    assert backlog.take() == [(U1, None)]


def test_a_held_list_stays_and_holds_every_id_below_it() -> None:
    held = topic(LIST)
    held.is_held = True
    backlog: Backlog[str] = Backlog()
    for each, n in ((U1, 20), (held, 21), (U2, 22)):
        backlog.add(each, n)
    assert backlog.take() == [(U1, 20), (U2, 20)]
    assert held in backlog
    assert backlog.take() == []
    held.is_held = False
    assert backlog.take() == [(held, None)]


def test_a_catch_up_that_comes_late_lowers_the_ids_before_it() -> None:
    """A catch-up finds a change at 5 while a later one of another resource already waits."""
    backlog: Backlog[str] = Backlog()
    backlog.add(U1, 9)
    backlog.add(U2, 5)
    assert backlog.take() == [(U1, 4), (U2, None)]


def test_an_older_change_of_a_waiting_resource_lowers_its_low_water() -> None:
    """The log went back: U1 waits since 120, and its change after the rollback is at 101."""
    backlog: Backlog[str] = Backlog()
    backlog.add(U2, 119)
    backlog.add(U1, 120)
    assert not backlog.add(U1, 101)
    assert backlog.take() == [(U2, 100), (U1, None)]


def test_what_is_discarded_is_neither_told_nor_holds_ids_back() -> None:
    backlog: Backlog[str] = Backlog()
    for each, n in ((U1, 10), (U2, 11), (U3, 12)):
        backlog.add(each, n)
    backlog.discard(U2)
    backlog.discard(topic("docs://never"))
    assert backlog.take() == [(U1, 11), (U3, None)]
    backlog.discard(U1)
    assert len(backlog) == 0


def test_an_idle_backlog_costs_no_dict() -> None:
    backlog: Backlog[str] = Backlog()
    backlog.add(U1, 1)
    backlog.discard(U1)
    assert backlog.waiting is None
    backlog.add(U1, 2)
    backlog.take()
    assert backlog.waiting is None


def test_a_backlog_reports_itself() -> None:
    backlog: Backlog[str] = Backlog()
    backlog.add(U1, 1)
    assert repr(backlog) == "<Backlog 1 waiting>"
