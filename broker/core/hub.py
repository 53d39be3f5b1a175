"""Who on this replica watches what.

Rules:

1. The hub does no I/O and never awaits: each change of who watches what, and each dispatch of an entry, is
   atomic without a lock.
2. The hub knows keys, watchers and revisions; never sessions, connections or wire formats. `Topic.wire` is
   made once per key by the encoder given at the start and only handed back.
3. A topic's `seen` revision changes only together with marking all of its watchers: by an entry, by a
   resync, or by a subscriber's read that finds another revision. (One raised quietly by a newcomer's read
   would hide that change from the earlier watchers for ever.)
4. Unknown counts as different.
5. An event costs per watcher of its key, never per connection (promise 5).
6. What the resource requires comes with each change of it, and is applied to every watcher before the next
   cue: who may not read it is not marked, and what was marked and not yet told is forgotten (promise 8).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from broker.core.access import may_read
from broker.core.backlog import Backlog
from broker.core.identity import LIST, Principal, ResourceKey
from broker.core.log import LIST as LIST_ENTRY
from broker.core.log import Entry, watched_name
from broker.core.revision import Revision

W = TypeVar("W")


NO_RULE: frozenset[str] = frozenset()


class Watcher(Protocol[W]):
    """What the hub needs of a connection. `mark` must not await and must not call the hub."""

    backlog: Backlog[W]
    principal: Principal

    def mark(self) -> None:
        """Note that the backlog has grown; called once per topic that was added."""
        ...


class Topic(Generic[W]):
    """A key that somebody on this replica watches, interned: one object per key, hashed by identity."""

    __slots__ = ("is_held", "key", "rule", "seen", "tick", "watchers", "wire")

    def __init__(self, key: ResourceKey, wire: W) -> None:
        self.key = key
        self.wire = wire
        self.watchers: dict[Watcher[W], None] = {}
        self.seen: Revision | None = None
        self.rule: frozenset[str] = NO_RULE
        """What is required of whoever hears of it, as of `seen` (core/access.py)."""
        self.tick = 0
        """The cursor's tick when an entry last touched this key: a resync's older answer is dropped."""
        self.is_held = False
        """Told within the last second: list changes are cued at most once a second, the last one always."""

    def __repr__(self) -> str:
        return f"<Topic {self.key.tenant}/{self.key.uri} {len(self.watchers)} watchers seen={self.seen}>"


class Hub(Generic[W]):
    """The registry of watchers of one replica."""

    def __init__(self, encode: Callable[[ResourceKey], W]) -> None:
        self._encode = encode
        self._topics: dict[ResourceKey, Topic[W]] = {}
        self.watched: set[bytes] = set()
        """What is watched, by its `log.watched_name`: most entries of a log are passed over by it."""
        self._fresh: dict[ResourceKey, None] = {}
        self._subscriptions = 0
        self._cued_lists: dict[Topic[W], None] = {}
        self.coalesced = 0
        """How often a change found its topic waiting already."""

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic[W]]:
        return iter(self._topics.values())

    def __repr__(self) -> str:
        return f"<Hub {len(self._topics)} topics, {self._subscriptions} subscriptions>"

    @property
    def subscriptions(self) -> int:
        """How many (connection, key) pairs there are."""
        return self._subscriptions

    def get(self, key: ResourceKey) -> Topic[W] | None:
        """Return the topic of `key` if anybody watches it."""
        return self._topics.get(key)

    def subscribe(self, watcher: Watcher[W], key: ResourceKey) -> Topic[W]:
        """Let `watcher` be marked at each change of `key` from now on. Twice is once.

        Undone by `unsubscribe`. Read the key's revision after this and give it to `observe`.
        """
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = Topic(key, self._encode(key))
            self.watched.add(watched_name(*key))
            self._fresh[key] = None
        if watcher not in topic.watchers:
            topic.watchers[watcher] = None
            self._subscriptions += 1
        return topic

    def unsubscribe(self, watcher: Watcher[W], topic: Topic[W]) -> None:
        """Undo `subscribe`: no later change marks the watcher, and what waits for it is forgotten."""
        watcher.backlog.discard(topic)
        if watcher in topic.watchers:
            del topic.watchers[watcher]
            self._subscriptions -= 1
            if not topic.watchers and self._topics.get(topic.key) is topic:
                del self._topics[topic.key]
                self.watched.discard(watched_name(*topic.key))
                self._fresh.pop(topic.key, None)

    def take_fresh(self) -> list[ResourceKey]:
        """Return what is watched and was not when this was asked last."""
        fresh = list(self._fresh)
        self._fresh.clear()
        return fresh

    def dispatch(self, entry: Entry, tick: int) -> int:
        """Mark everybody whom `entry` concerns; returns how many cues that owes.

        Session entries do not concern the hub. Their reader is sessions/ownership.py.
        """
        told = 0
        if entry.uri:
            topic = self._topics.get(ResourceKey(entry.tenant, entry.uri))
            if topic is not None:
                told += self._change(topic, entry.revision, tick, entry.scopes)
        if entry.relists or entry.kind == LIST_ENTRY:
            topic = self._topics.get(ResourceKey(entry.tenant, LIST))
            if topic is not None:
                told += self._change(topic, entry.revision, tick, NO_RULE)
        return told

    def observe(
        self, topic: Topic[W], revision: Revision, asked_at: int, rule: frozenset[str] = NO_RULE
    ) -> int:
        """Take in a revision that was read from Redis, asked for when the cursor's tick was `asked_at`.

        `rule` is what stands beside it. By inequality: another revision than the one seen is a change that no
        entry told us (or has not told us yet), so all watchers are marked. Dropped where an entry has touched
        the key since the question.
        """
        if topic.tick > asked_at or topic.seen == revision:
            return 0
        if topic.seen is None:
            # The first to look: nobody was promised anything before this (rule 4 is for those who were).
            topic.seen, topic.rule = revision, rule
            return 0
        return self._change(topic, revision, topic.tick, rule)

    def restrict(self, watcher: Watcher[W], topics: Iterable[Topic[W]]) -> None:
        """Forget what `watcher` is owed and may not be told any more: its principal has changed (rule 6)."""
        for topic in topics:
            if not may_read(watcher.principal, topic.rule):
                watcher.backlog.discard(topic)

    def hold(self) -> list[Topic[W]]:
        """Hold each list that was cued since the last call, and return them; `release` them a second later.

        List changes come in bursts (a job publishes a thousand new resources): the first is told at once,
        the rest of that second together.
        """
        held = list(self._cued_lists)
        self._cued_lists.clear()
        for topic in held:
            topic.is_held = True
        return held

    def release(self, topic: Topic[W]) -> None:
        """Undo `hold`: whoever waits for the list's change is marked, and the next second begins."""
        topic.is_held = False
        owed = [watcher for watcher in topic.watchers if topic in watcher.backlog]
        if owed:
            self._cued_lists[topic] = None
        for watcher in owed:
            watcher.mark()

    def _change(self, topic: Topic[W], revision: Revision, tick: int, rule: frozenset[str]) -> int:
        topic.tick = tick
        topic.rule = rule
        if topic.seen == revision:
            # A read was ahead of the log and has told everybody (rule 3); who joined since has looked.
            return 0
        topic.seen = revision
        if topic.key.is_list and not topic.is_held:
            self._cued_lists[topic] = None
        owed = (topic, revision.n)
        told = 0
        for watcher in topic.watchers:
            backlog = watcher.backlog
            if rule and not may_read(watcher.principal, rule):
                backlog.discard(topic)
                continue
            if backlog.waiting is None:
                # Backlog.add, for the commonest case, without a call for each watcher.
                backlog.waiting = owed
                watcher.mark()
            elif backlog.add(topic, revision.n):
                watcher.mark()
            else:
                self.coalesced += 1
            told += 1
        return told
