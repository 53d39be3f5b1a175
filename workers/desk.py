"""Where the calls of a publisher are decided; nothing here is sent, and nothing waits.

`Desk` turns arguments into calls (store/publishing.py), `Batch` is what one round trip of many carries.
"""

import math
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from broker.core.errors import BadRequest, BrokerError
from broker.core.identity import ResourceKey, TenantId, check_tenant, check_uri
from broker.core.publication import MAX_CONTENT_BYTES, describe
from broker.store import publishing
from broker.store.batch import size
from broker.store.client import Connect, keys_at
from broker.store.publishing import Expect, Outcome
from broker.store.scripts import Call
from broker.store.touching import Rules
from broker.store.waiting import Wait, wait
from workers.item import How, Item, Result, Terms
from workers.settings import Settings

BATCH_CALLS = 64
BATCH_BYTES = 1_000_000
"""What one round trip of `publish_many` carries at most (a single larger item goes alone)."""


class Batch:
    """Items of `publish_many` that share a round trip: each decided, or refused before it is sent."""

    def __init__(self) -> None:
        self.decided: list[tuple[str, Call[Outcome] | BrokerError]] = []
        self._weight = 0

    def __repr__(self) -> str:
        return f"<Batch of {len(self.decided)} in {self._weight} bytes>"

    @property
    def calls(self) -> list[Call[Outcome]]:
        """What is sent."""
        return [decided for _, decided in self.decided if isinstance(decided, Call)]

    def has_room(self, decided: Call[Outcome] | BrokerError) -> bool:
        """Whether one more may go with it; a single one always may."""
        if not self.decided or not isinstance(decided, Call):
            return True
        return self._weight + size(decided) <= BATCH_BYTES

    def add(self, uri: str, decided: Call[Outcome] | BrokerError) -> None:
        """Add one item."""
        self.decided.append((uri, decided))
        if isinstance(decided, Call):
            self._weight += size(decided)

    def results(self, answers: Iterable[Outcome | BrokerError]) -> Iterator[Result]:
        """Yield each item's result; `answers` are those of the calls, in their order."""
        answer = iter(answers)
        for uri, decided in self.decided:
            said = next(answer) if isinstance(decided, Call) else decided
            if isinstance(said, BrokerError):
                yield Result(uri, None, said)
            else:
                yield Result(uri, said, None)


class Desk:
    """Decides the calls of one publisher; knows the tenant and the keys, and sends nothing."""

    def __init__(
        self,
        url: str | None = None,
        *,
        tenant: str | None = None,
        prefix: str | None = None,
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> None:
        settings = Settings()
        self.tenant: TenantId = check_tenant(settings.tenant if tenant is None else tenant)
        self._max_content_bytes = max_content_bytes
        self.rules = Rules()
        """The templates' rules for touches, as last seen."""
        found, access = settings.find(url, "publish to")
        self.keys = keys_at(found, settings.prefix if prefix is None else prefix)
        self.how = Connect(found, self.keys, access=access)

    def __repr__(self) -> str:
        return f"<Desk tenant={self.tenant!a} prefix={self.keys.prefix}>"

    def key(self, uri: str) -> ResourceKey:
        """Return the key of `uri` in this tenant."""
        return ResourceKey(self.tenant, check_uri(uri))

    def wait(self, how: How) -> Wait | None:
        """Return for how many replicas of Redis a publish waits, None for none."""
        return wait(how.get("wait_replicas"), how.get("wait_ms"))

    def publish(self, uri: str, contents: Any, how: How) -> Call[Outcome]:
        """Return the call that publishes."""
        about: dict[str, Any] = dict(how)
        terms = {name: about.pop(name, None) for name in Terms.__annotations__}
        publication = describe(self.key(uri), contents, self._max_content_bytes, **about)
        return publishing.publish(
            self.keys,
            publication,
            version=terms["version"],
            expect=terms["expect"],
            idempotency_key=terms["idempotency_key"],
            expires_in_ms=_milliseconds(terms["expires_in"]),
        )

    def list_changed(self, idempotency_key: str | None) -> Call[Outcome]:
        """Return the call that tells of a changed list."""
        return publishing.list_changed(self.keys, self.tenant, idempotency_key=idempotency_key)

    def remove(
        self, uri: str, version: int | None, expect: Expect | None, idempotency_key: str | None
    ) -> Call[Outcome]:
        """Return the call that removes."""
        return publishing.remove(
            self.keys, self.key(uri), version=version, expect=expect, idempotency_key=idempotency_key
        )

    def batches(self, items: Iterable[Item | tuple[str, Any]]) -> Iterator[Batch]:
        """Yield the items, decided or refused, in batches that one round trip may carry."""
        batch = Batch()
        for item in items:
            uri, contents, how = _parts(item)
            decided: Call[Outcome] | BrokerError
            try:
                decided = self.publish(uri, contents, _not_waiting(how))
            except BrokerError as error:
                decided = error
            if not batch.has_room(decided):
                yield batch
                batch = Batch()
            batch.add(uri, decided)
            if len(batch.decided) >= BATCH_CALLS:
                # At once: the next item may be long in coming.
                yield batch
                batch = Batch()
        if batch.decided:
            yield batch


def _parts(item: Item | tuple[str, Any]) -> tuple[str, Any, How]:
    if isinstance(item, Item):
        return item.uri, item.contents, item.how
    uri, contents = item
    return uri, contents, How()


def _not_waiting(how: How) -> How:
    """Return `how` of an item of `publish_many`, whose round trips are shared.

    Raises:
        BadRequest: it wants to wait for replicas.
    """
    if "wait_replicas" in how or "wait_ms" in how:
        raise BadRequest("publish_many waits for no replicas: publish such items one by one.")
    return how


def _milliseconds(lifetime: timedelta | float | None) -> int | None:
    if lifetime is None:
        return None
    seconds = lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime
    if not math.isfinite(seconds):
        raise BadRequest(f"A lifetime is finite, not {seconds}; leave it out for a resource that stays.")
    return math.ceil(seconds * 1000)
