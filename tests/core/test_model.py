"""The hub and its backlogs against a model that is too simple to be wrong.

The model keeps, per connection and key, whether a change is owed and since which n. The real thing may only
differ in cost. What is checked is what a client can see: who is told what, and whether an id claims too much.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.core.backlog import Backlog
from broker.core.hub import Hub
from broker.core.identity import LIST, Principal, ResourceKey, TenantId
from broker.core.log import CHANGE, Entry
from broker.core.revision import Revision

TENANTS = (TenantId("a"), TenantId("b"))
URIS = ("x:1", "x:2", "x:3", LIST)
connections = st.integers(0, 4)
tenants = st.sampled_from(TENANTS)
uris = st.sampled_from(URIS)
resources = st.sampled_from(URIS[:-1])


class Connection:
    def __init__(self, tenant: TenantId) -> None:
        self.backlog: Backlog[ResourceKey] = Backlog()
        self.principal = Principal(tenant, "s")
        self.is_dirty = False

    def mark(self) -> None:
        self.is_dirty = True


class HubModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.hub: Hub[ResourceKey] = Hub(lambda key: key)
        self.connections = [Connection(TENANTS[i % 2]) for i in range(5)]
        self.n = 0
        self.watching: set[tuple[int, ResourceKey]] = set()
        self.owed: dict[tuple[int, ResourceKey], int] = {}
        self.truth: dict[ResourceKey, Revision] = {}
        self.held: set[ResourceKey] = set()

    def _owe(self, key: ResourceKey, n: int) -> None:
        for pair in self.watching:
            if pair[1] == key:
                self.owed.setdefault(pair, n)

    @rule(who=connections, uri=uris)
    def subscribe(self, who: int, uri: str) -> None:
        connection = self.connections[who]
        key = ResourceKey(connection.principal.tenant, uri)
        topic = self.hub.subscribe(connection, key)
        self.watching.add((who, key))
        if topic.seen is None:
            self.hub.observe(topic, self.truth.get(key, Revision(0, "")), self.n)

    @rule(who=connections, uri=uris)
    def unsubscribe(self, who: int, uri: str) -> None:
        connection = self.connections[who]
        key = ResourceKey(connection.principal.tenant, uri)
        topic = self.hub.get(key)
        if topic is not None:
            self.hub.unsubscribe(connection, topic)
        self.watching.discard((who, key))
        self.owed.pop((who, key), None)
        if self.hub.get(key) is None:
            self.held.discard(key)

    @rule(tenant=tenants, uri=resources, relists=st.booleans())
    def change(self, tenant: TenantId, uri: str, relists: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        self.n += 1
        entry = Entry("e", self.n, f"m{self.n}", "", CHANGE, tenant, uri, relists=relists)
        self.hub.dispatch(entry, self.n)
        for key in [entry.key] + [ResourceKey(tenant, LIST)] * relists:
            self.truth[key] = entry.revision
            self._owe(key, self.n)

    @rule(tenant=tenants, uri=uris)
    def miss_a_change_and_resync(self, tenant: TenantId, uri: str) -> None:
        self.n += 1
        key = ResourceKey(tenant, uri)
        self.truth[key] = Revision(self.n, f"m{self.n}")
        topic = self.hub.get(key)
        if topic is not None:
            self.hub.observe(topic, self.truth[key], self.n)
        self._owe(key, self.n)

    @rule()
    def hold(self) -> None:
        """As the replica does: what may be told is told first, then the lists told are held for a second."""
        for who in range(len(self.connections)):
            self.flush(who)
        self.held |= {topic.key for topic in self.hub.hold() if self.hub.get(topic.key) is topic}

    @rule()
    def release(self) -> None:
        for key in self.held:
            topic = self.hub.get(key)
            assert topic is not None
            self.hub.release(topic)
        self.held.clear()

    @rule(who=connections)
    def flush(self, who: int) -> None:
        connection = self.connections[who]
        connection.is_dirty = False
        taken = connection.backlog.take()
        may_go = {key for mine, key in self.owed if mine == who and key not in self.held}
        assert {topic.key for topic, _ in taken} == may_go
        assert len(taken) == len(may_go)
        for topic, low_water in taken:
            del self.owed[who, topic.key]
            pending = [n for (mine, _), n in self.owed.items() if mine == who]
            assert low_water == (min(pending) - 1 if pending else None)

    @invariant()
    def who_is_owed_something_is_marked(self) -> None:
        for who, key in self.owed:
            assert self.connections[who].is_dirty or key in self.held

    @invariant()
    def the_hub_holds_exactly_what_is_watched(self) -> None:
        assert self.hub.subscriptions == len(self.watching)
        assert {topic.key for topic in self.hub} == {key for _, key in self.watching}

    @invariant()
    def what_is_seen_is_the_truth_once_everything_arrived(self) -> None:
        for topic in self.hub:
            assert topic.seen == self.truth.get(topic.key, Revision(0, ""))

    def teardown(self) -> None:
        """Everybody leaves: nothing may stay behind."""
        for who, key in list(self.watching):
            topic = self.hub.get(key)
            assert topic is not None
            self.hub.unsubscribe(self.connections[who], topic)
        assert len(self.hub) == self.hub.subscriptions == 0
        assert all(len(connection.backlog) == 0 for connection in self.connections)


TestHubModel: Any = HubModel.TestCase
TestHubModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
