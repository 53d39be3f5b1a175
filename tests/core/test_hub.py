"""Who is told what on one replica (promises 1, 2 and 5; the hub's rules 1 to 5)."""

from broker.core.backlog import Backlog
from broker.core.hub import Hub, Topic
from broker.core.identity import LIST, Principal, ResourceKey, TenantId
from broker.core.log import CHANGE, REMOVE, SESSION, Entry, watched_name
from broker.core.log import LIST as LIST_ENTRY
from broker.core.revision import ABSENT, Revision

ACME, OTHER = TenantId("acme"), TenantId("other")
U1, U2 = "docs://1", "docs://2"


class Connection:
    """What the hub needs of a connection; counts its marks."""

    def __init__(self, tenant: TenantId = ACME, scopes: frozenset[str] | None = None) -> None:
        self.backlog: Backlog[str] = Backlog()
        self.principal = Principal(tenant, "somebody", scopes)
        self.marks = 0

    def mark(self) -> None:
        self.marks += 1

    def told(self) -> list[str]:
        return [topic.key.uri for topic, _ in self.backlog.take()]


def hub() -> Hub[str]:
    return Hub(lambda key: f"{key.tenant}/{key.uri}")


def key(uri: str = U1, tenant: TenantId = ACME) -> ResourceKey:
    return ResourceKey(tenant, uri)


def change(
    n: int, uri: str = U1, tenant: TenantId = ACME, scopes: str = "", *, relists: bool = False
) -> Entry:
    scoped = frozenset(scopes.split())
    return Entry("e", n, f"m{n}", f"m{n - 1}", CHANGE, tenant, uri, relists=relists, scopes=scoped)


def relist(n: int, tenant: TenantId = ACME) -> Entry:
    return Entry("e", n, f"m{n}", f"m{n - 1}", LIST_ENTRY, tenant, relists=True)


def test_a_change_reaches_every_watcher_of_its_uri_and_nobody_else() -> None:
    here, watching, watching_too, elsewhere = hub(), Connection(), Connection(), Connection()
    here.subscribe(watching, key(U1))
    here.subscribe(watching_too, key(U1))
    here.subscribe(elsewhere, key(U2))
    assert here.dispatch(change(1), tick=1) == 2
    assert (watching.told(), watching_too.told(), elsewhere.told()) == ([U1], [U1], [])
    assert elsewhere.marks == 0


def test_the_same_uri_in_another_tenant_has_no_watchers() -> None:
    here, ours = hub(), Connection()
    here.subscribe(ours, key(U1))
    assert here.dispatch(change(1, tenant=OTHER), tick=1) == 0
    assert here.get(key(U1, OTHER)) is None
    assert (ours.marks, ours.told()) == (0, [])


def test_a_uri_that_looks_equal_is_another_resource() -> None:
    here, ours = hub(), Connection()
    here.subscribe(ours, key("docs://a%2Fb"))
    for uri in ("docs://a/b", "docs://a%2fb", "DOCS://a%2Fb", "docs://a%2Fb/"):
        assert here.dispatch(change(1, uri), tick=1) == 0


def test_what_is_watched_anew_is_told_once_and_not_at_all_if_nobody_watches_it_any_more() -> None:
    here, first, second = hub(), Connection(), Connection()
    here.subscribe(first, key(U1))
    here.subscribe(second, key(U1))
    gone = here.subscribe(first, key(U2))
    here.unsubscribe(first, gone)
    assert here.take_fresh() == [key(U1)]
    assert here.take_fresh() == []
    here.unsubscribe(first, here.subscribe(first, key(U1)))
    assert here.take_fresh() == [], "another still watches it"
    here.subscribe(first, key(U2))
    assert here.take_fresh() == [key(U2)]


def test_subscribing_twice_is_once() -> None:
    here, ours = hub(), Connection()
    assert here.subscribe(ours, key()) is here.subscribe(ours, key())
    assert here.subscriptions == 1
    here.dispatch(change(1), tick=1)
    assert ours.told() == [U1]
    assert ours.marks == 1


def test_a_watcher_is_marked_once_however_often_the_resource_changes() -> None:
    here, ours = hub(), Connection()
    here.subscribe(ours, key())
    for n in range(1, 1001):
        here.dispatch(change(n), tick=n)
    assert ours.marks == 1
    assert ours.told() == [U1]


def test_nothing_is_told_after_unsubscribing_not_even_what_waited() -> None:
    here, ours = hub(), Connection()
    topic = here.subscribe(ours, key())
    here.dispatch(change(1), tick=1)
    here.unsubscribe(ours, topic)
    assert here.dispatch(change(2), tick=2) == 0
    assert ours.told() == []


def test_the_last_watcher_leaves_no_trace() -> None:
    here, first, second = hub(), Connection(), Connection()
    topic = here.subscribe(first, key())
    here.subscribe(second, key())
    here.unsubscribe(first, topic)
    here.unsubscribe(first, topic)
    assert (len(here), here.subscriptions) == (1, 1)
    here.unsubscribe(second, topic)
    assert (len(here), here.subscriptions, list(here)) == (0, 0, [])


def test_a_topic_of_an_earlier_life_cannot_unsubscribe_the_next() -> None:
    here, ours = hub(), Connection()
    before = here.subscribe(ours, key())
    here.unsubscribe(ours, before)
    after = here.subscribe(ours, key())
    here.unsubscribe(ours, before)
    assert here.get(key()) is after
    assert here.dispatch(change(1), tick=1) == 1


def test_wire_bytes_are_made_once_per_key_however_many_watch() -> None:
    made: list[ResourceKey] = []
    here: Hub[str] = Hub(lambda each: made.append(each) or "bytes")
    for _ in range(50):
        here.subscribe(Connection(), key())
    assert made == [key()]


# -- seen changes only together with marking all watchers (rule 3)


def test_an_entry_raises_seen_and_marks_everybody() -> None:
    here, first, second = hub(), Connection(), Connection()
    topic = here.subscribe(first, key())
    here.subscribe(second, key())
    here.dispatch(change(7), tick=3)
    assert topic.seen == Revision(7, "m7")
    assert topic.tick == 3
    assert (first.marks, second.marks) == (1, 1)


def test_a_newcomers_read_that_finds_another_revision_cues_the_earlier_watchers() -> None:
    """Two watchers and a gap: an entry was missed, and the newcomer's read is the first to see its change."""
    here, first, newcomer = hub(), Connection(), Connection()
    topic = here.subscribe(first, key())
    here.observe(topic, Revision(5, "aa"), asked_at=0)
    here.subscribe(newcomer, key())
    assert here.observe(topic, Revision(9, "bb"), asked_at=0) == 2
    assert topic.seen == Revision(9, "bb")
    assert first.told() == [U1]


def test_the_first_read_of_a_key_owes_nobody_a_cue() -> None:
    here, ours = hub(), Connection()
    topic = here.subscribe(ours, key())
    assert here.observe(topic, Revision(5, "aa"), asked_at=0) == 0
    assert topic.seen == Revision(5, "aa")
    assert ours.told() == []


def test_a_read_that_finds_what_is_known_cues_nobody() -> None:
    here, ours = hub(), Connection()
    topic = here.subscribe(ours, key())
    here.observe(topic, Revision(5, "aa"), asked_at=0)
    assert here.observe(topic, Revision(5, "aa"), asked_at=0) == 0
    assert ours.marks == 0


def test_a_resync_compares_by_inequality_and_not_by_order() -> None:
    """After a rollback the truth may be lower, or the same number with another mark."""
    for truth in (Revision(4, "cc"), Revision(5, "cc"), ABSENT):
        here, ours = hub(), Connection()
        topic = here.subscribe(ours, key())
        here.observe(topic, Revision(5, "aa"), asked_at=0)
        assert here.observe(topic, truth, asked_at=0) == 1
        assert topic.seen == truth
        assert ours.told() == [U1]


def test_an_answer_older_than_an_entry_that_came_meanwhile_is_dropped() -> None:
    here, ours = hub(), Connection()
    topic = here.subscribe(ours, key())
    here.dispatch(change(8), tick=4)
    ours.told()
    assert here.observe(topic, Revision(7, "m7"), asked_at=3) == 0
    assert topic.seen == Revision(8, "m8")
    assert ours.told() == []


def test_an_answer_asked_for_after_the_entry_is_believed() -> None:
    here, ours = hub(), Connection()
    topic = here.subscribe(ours, key())
    here.dispatch(change(8), tick=4)
    ours.told()
    assert here.observe(topic, Revision(6, "zz"), asked_at=4) == 1
    assert ours.told() == [U1]


# -- removals, lists, sessions, scopes


def test_a_removal_is_told_like_a_change() -> None:
    here, ours = hub(), Connection()
    here.subscribe(ours, key())
    assert here.dispatch(Entry("e", 1, "m1", "", REMOVE, ACME, U1), tick=1) == 1
    assert ours.told() == [U1]


def test_a_new_resource_cues_its_own_watchers_and_the_lists() -> None:
    here, reader, lister, foreign = hub(), Connection(), Connection(), Connection(OTHER)
    here.subscribe(reader, key())
    here.subscribe(lister, key(LIST))
    here.subscribe(foreign, key(LIST, OTHER))
    assert here.dispatch(change(1, relists=True), tick=1) == 2
    assert (reader.told(), lister.told(), foreign.told()) == ([U1], [LIST], [])


def test_a_change_that_the_list_does_not_show_leaves_the_list_alone() -> None:
    here, lister = hub(), Connection()
    here.subscribe(lister, key(LIST))
    assert here.dispatch(change(1), tick=1) == 0


def test_a_list_entry_cues_watchers_of_the_list_only() -> None:
    here, reader, lister = hub(), Connection(), Connection()
    here.subscribe(reader, key())
    here.subscribe(lister, key(LIST))
    assert here.dispatch(relist(1), tick=1) == 1
    assert (reader.told(), lister.told()) == ([], [LIST])


def test_a_session_entry_is_no_business_of_the_hub() -> None:
    here, ours = hub(), Connection()
    here.subscribe(ours, key())
    here.subscribe(ours, key(LIST))
    assert here.dispatch(Entry("e", 1, "m1", "", SESSION, ACME), tick=1) == 0


def test_a_scoped_change_reaches_only_those_who_may_read_it() -> None:
    here = hub()
    wide, narrow, other = (Connection(scopes=frozenset(s.split())) for s in ("a b c", "a", ""))
    developer = Connection(scopes=None)
    for each in (wide, narrow, other, developer):
        here.subscribe(each, key())
    assert here.dispatch(change(1, scopes="a b"), tick=1) == 2
    assert [bool(each.told()) for each in (wide, narrow, other, developer)] == [True, False, False, True]


# -- lists are told at most once a second, the last change always


def test_a_burst_of_list_changes_is_told_at_once_and_once_more_at_the_end() -> None:
    here, ours = hub(), Connection()
    topic = here.subscribe(ours, key(LIST))
    here.dispatch(relist(1), tick=1)
    assert ours.told() == [LIST]
    assert here.hold() == [topic]
    for n in range(2, 1000):
        here.dispatch(relist(n), tick=n)
    assert ours.told() == []
    here.release(topic)
    assert ours.told() == [LIST]
    assert here.hold() == [topic]
    here.release(topic)
    assert (ours.told(), here.hold()) == ([], [])


def test_a_list_that_changes_many_times_before_the_hold_is_held_once() -> None:
    here, ours = hub(), Connection()
    topic = here.subscribe(ours, key(LIST))
    for n in range(1, 6):
        here.dispatch(relist(n), tick=n)
    assert here.hold() == [topic]
    here.dispatch(relist(6), tick=6)
    ours.marks = 0
    here.release(topic)
    assert ours.marks == 1
    assert here.hold() == [topic]


def test_a_resource_is_never_held() -> None:
    here, ours = hub(), Connection()
    here.subscribe(ours, key())
    here.dispatch(change(1), tick=1)
    assert here.hold() == []


def test_one_who_left_while_a_list_was_held_is_not_marked() -> None:
    here, stays, leaves = hub(), Connection(), Connection()
    topic = here.subscribe(stays, key(LIST))
    here.subscribe(leaves, key(LIST))
    here.dispatch(relist(1), tick=1)
    stays.told()
    leaves.told()
    here.hold()
    here.dispatch(relist(2), tick=2)
    here.unsubscribe(leaves, topic)
    stays.marks = leaves.marks = 0
    here.release(topic)
    assert (stays.marks, leaves.marks) == (1, 0)


# -- promise 5


class Bystander(Connection):
    """Fails the test if anything but unsubscribing looks at it."""

    def mark(self) -> None:
        raise AssertionError("an uninvolved connection was visited")


def test_an_event_never_visits_an_uninvolved_connection() -> None:
    here, ours = hub(), Connection()
    for i in range(1000):
        here.subscribe(Bystander(), key(f"docs://other/{i}"))
    here.subscribe(ours, key())
    assert here.dispatch(change(1), tick=1) == 1


def test_the_hub_and_its_topics_report_themselves() -> None:
    here, ours = hub(), Connection()
    topic: Topic[str] = here.subscribe(ours, key())
    assert repr(here) == "<Hub 1 topics, 1 subscriptions>"
    assert repr(topic) == "<Topic acme/docs://1 1 watchers seen=None>"


def test_what_is_watched_is_named_for_the_reader_as_long_as_anybody_watches_it() -> None:
    here, one, two = hub(), Connection(), Connection()
    topic = here.subscribe(one, key(U1))
    assert here.watched == {watched_name(ACME, U1)}
    here.subscribe(two, key(U1))
    here.unsubscribe(one, topic)
    assert here.watched == {watched_name(ACME, U1)}
    here.unsubscribe(two, topic)
    assert here.watched == set()
