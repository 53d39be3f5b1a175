"""Publishing from Python: `Publisher` for asyncio, `SyncPublisher` for plain scripts.

Two thin shells around the same decisions: `_Desk` turns arguments into calls (store/publishing.py), a shell
sends them. Rules:

1. An acknowledged publish is stored and announced; anything else is an error from core/errors.py, and
   `error.retryable` says whether the same call may succeed later.
2. Repeating a call that failed is always safe: publishing the same again announces nothing. An
   `idempotency_key` makes that hold when another publish came in between; a `version` makes late writers
   harmless.
3. In `publish_many` each item has its own outcome, and one that fails does not lose the rest. The order of
   items is kept within one call as long as nothing fails.
"""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from broker.core.errors import BadRequest, BrokerError
from broker.core.identity import ResourceKey, TenantId, check_tenant, check_uri
from broker.core.publication import MAX_CONTENT_BYTES, Description, describe
from broker.store import publishing, resources, touching
from broker.store.batch import run_batch, run_batch_sync, size
from broker.store.client import Connect, commands, commands_sync, keys_at
from broker.store.publishing import Expect, Outcome
from broker.store.resources import Listed, Stored
from broker.store.scripts import Call, run, run_sync
from broker.store.touching import Rules
from broker.store.waiting import Wait, run_waiting, run_waiting_sync, wait
from workers import tracing
from workers.following import Change, Follower, Relist
from workers.settings import Settings

BATCH_CALLS = 64
BATCH_BYTES = 1_000_000
"""What one round trip of `publish_many` carries at most (a single larger item goes alone)."""

PAGE = 200
"""How many resources one round trip of `list` brings."""

Progress = Callable[[int, int | None], None]
"""Called with how many items are done and how many there are, None where that is unknown."""


class Terms(TypedDict, total=False):
    """Under which conditions, and for how long, something is published; all of it optional.

    `version` is your own number, 0 to 2^53 - 1: older and equal ones are superseded. `idempotency_key` makes
    a repeated call answer "replayed" for 24 hours. `expires_in` is a lifetime, in seconds if it is a number.
    `expect` is the revision that must be there (`Outcome.stamp`), "exists" or "absent"; else Conflict.
    `wait_replicas` waits until that many replicas of Redis have it as well, for at most `wait_ms` (1000);
    else NotReplicated, and the same call may be repeated.
    """

    version: int | None
    idempotency_key: str | None
    expires_in: timedelta | float | None
    expect: Expect | None
    wait_replicas: int | None
    wait_ms: int | None


class How(Description, Terms, total=False):
    """Everything that may be said about a publish beside its URI and contents."""


class Item:
    """One resource for `publish_many`; the arguments of `publish`."""

    __slots__ = ("contents", "how", "uri")

    def __init__(self, uri: str, contents: Any, **how: Unpack[How]) -> None:
        self.uri = uri
        self.contents = contents
        self.how = how

    def __repr__(self) -> str:
        return f"<Item {self.uri!a}>"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one item: an outcome, or the error that refused it."""

    uri: str
    outcome: Outcome | None
    error: BrokerError | None


class _Desk:
    """Where calls are decided; knows the tenant and the keys, and sends nothing."""

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
        self._rules = Rules()
        found, access = settings.find(url, "publish to")
        self.keys = keys_at(found, settings.prefix if prefix is None else prefix)
        self._how = Connect(found, self.keys, access=access)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} tenant={self.tenant!a} prefix={self.keys.prefix}>"

    def _key(self, uri: str) -> ResourceKey:
        return ResourceKey(self.tenant, check_uri(uri))

    def _wait(self, how: How) -> Wait | None:
        return wait(how.get("wait_replicas"), how.get("wait_ms"))

    def _publish(self, uri: str, contents: Any, how: How) -> Call[Outcome]:
        about: dict[str, Any] = dict(how)
        terms = {name: about.pop(name, None) for name in Terms.__annotations__}
        publication = describe(self._key(uri), contents, self._max_content_bytes, **about)
        return publishing.publish(
            self.keys,
            publication,
            version=terms["version"],
            expect=terms["expect"],
            idempotency_key=terms["idempotency_key"],
            expires_in_ms=_milliseconds(terms["expires_in"]),
        )

    def _list_changed(self, idempotency_key: str | None) -> Call[Outcome]:
        return publishing.list_changed(self.keys, self.tenant, idempotency_key=idempotency_key)

    def _remove(
        self, uri: str, version: int | None, expect: Expect | None, idempotency_key: str | None
    ) -> Call[Outcome]:
        return publishing.remove(
            self.keys, self._key(uri), version=version, expect=expect, idempotency_key=idempotency_key
        )

    def _batches(
        self, items: Iterable[Item | tuple[str, Any]]
    ) -> Iterator[list[tuple[str, Call[Outcome] | BrokerError]]]:
        """Yield the items, decided or refused, in batches that one round trip may carry."""
        batch: list[tuple[str, Call[Outcome] | BrokerError]] = []
        weight = 0
        for item in items:
            uri, contents, how = _parts(item)
            try:
                decided = self._publish(uri, contents, _not_waiting(how))
            except BrokerError as error:
                batch.append((uri, error))
            else:
                if batch and weight + size(decided) > BATCH_BYTES:
                    yield batch
                    batch, weight = [], 0
                batch.append((uri, decided))
                weight += size(decided)
            if len(batch) >= BATCH_CALLS:
                yield batch
                batch, weight = [], 0
        if batch:
            yield batch


class Publisher(_Desk):
    """Publishes for one tenant; `async with Publisher() as publisher`.

    `url` is a Redis URL: by default BROKER_REDIS_URL, else the embedded Redis of a broker on this machine.
    `tenant` and `prefix` are by default BROKER_TENANT and BROKER_PREFIX, else "default" and "mrb".
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tenant: str | None = None,
        prefix: str | None = None,
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> None:
        super().__init__(url, tenant=tenant, prefix=prefix, max_content_bytes=max_content_bytes)
        self._redis = commands(self._how)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def publish(self, uri: str, contents: Any, **how: Unpack[How]) -> Outcome:
        """Store `contents` under `uri` and tell the subscribers, unless the same is there already.

        `contents` is text, bytes, anything that JSON can say, or a list of `Contents`.

        Raises:
            BadRequest: the URI, the contents or a condition must be changed.
            Conflict: `expect` did not hold, or the idempotency key was used for something else.
            NotReplicated: it is stored, but not on as many replicas as `wait_replicas` asked for.
            Unavailable: Redis cannot answer now; the same call may be repeated.
        """
        with tracing.published("publish", self.tenant):
            asked, call = self._wait(how), self._publish(uri, contents, how)
            if asked is not None:
                return await run_waiting(self._redis, self.keys, self.tenant, call, asked)
            return await run(self._redis, call)

    async def touch(self, uri: str, *, idempotency_key: str | None = None) -> Outcome:
        """Tell the subscribers of `uri` that it changed, whether or not anything is published there.

        Raises:
            BadRequest, Conflict, Unavailable: as `publish`.
        """
        with tracing.published("touch", self.tenant):
            return await touching.touch(
                self._redis, self._rules, self.keys, self._key(uri), idempotency_key=idempotency_key
            )

    async def list_changed(self, *, idempotency_key: str | None = None) -> Outcome:
        """Tell the subscribers of the tenant's list that it changed: the instances of a worker's `list=`.

        What is published, removed, declared or withdrawn is told without this.

        Raises:
            BadRequest, Conflict, Unavailable: as `publish`.
        """
        with tracing.published("list_changed", self.tenant):
            return await run(self._redis, self._list_changed(idempotency_key))

    async def remove(
        self,
        uri: str,
        *,
        version: int | None = None,
        expect: Expect | None = None,
        idempotency_key: str | None = None,
    ) -> Outcome:
        """Remove `uri` and tell its subscribers; "absent" if nothing was there.

        Raises:
            BadRequest, Conflict, Unavailable: as `publish`.
        """
        with tracing.published("remove", self.tenant):
            return await run(self._redis, self._remove(uri, version, expect, idempotency_key))

    async def publish_many(
        self, items: Iterable[Item | tuple[str, Any]], *, progress: Progress | None = None
    ) -> list[Result]:
        """Publish each of `items` (an `Item`, or a URI and contents) and return what became of each.

        `items` is consumed as it is sent, so a generator may be longer than memory. Refusals and failures
        are results, never raised.
        """
        total = len(items) if isinstance(items, Sized) else None
        results: list[Result] = []
        with tracing.published("publish_many", self.tenant):
            for batch in self._batches(items):
                calls = [decided for _, decided in batch if isinstance(decided, Call)]
                results += _results(batch, await run_batch(self._redis, calls))
                if progress is not None:
                    progress(len(results), total)
        return results

    async def read(self, uri: str) -> Stored | None:
        """Return what is stored under `uri`, None if there is nothing.

        Raises:
            BadRequest, Unavailable: as `publish`.
        """
        return await resources.read(self._redis, self.keys, self._key(uri))

    def changes(self, group: str, *, contents: bool = True) -> AsyncGenerator[Change | Relist]:
        """Yield the tenant's changes from where `group` has stopped, for ever (following.py).

        With `contents` each comes with what its URI holds now.

        Raises:
            Misconfigured: a group that cannot be one.
        """
        return Follower(self._how, self.tenant, group, contents=contents).changes()

    async def list(self, after: str | None = None) -> AsyncIterator[Listed]:
        """Yield the tenant's resources in the order of their URIs, those after `after` if it is given.

        Raises:
            Unavailable: as `publish`.
        """
        while True:
            listed, has_more = await resources.page(self._redis, self.keys, self.tenant, after, PAGE)
            for each in listed:
                yield each
            if not has_more:
                return
            after = listed[-1].uri


class SyncPublisher(_Desk):
    """What `Publisher` is, for plain scripts: `with SyncPublisher() as publisher`. Threads may share one."""

    def __init__(
        self,
        url: str | None = None,
        *,
        tenant: str | None = None,
        prefix: str | None = None,
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> None:
        super().__init__(url, tenant=tenant, prefix=prefix, max_content_bytes=max_content_bytes)
        self._redis = commands_sync(self._how)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def publish(self, uri: str, contents: Any, **how: Unpack[How]) -> Outcome:
        """Do what `Publisher.publish` does.

        Raises:
            BadRequest, Conflict, Unavailable: as there.
        """
        with tracing.published("publish", self.tenant):
            asked, call = self._wait(how), self._publish(uri, contents, how)
            if asked is not None:
                return run_waiting_sync(self._redis, self.keys, self.tenant, call, asked)
            return run_sync(self._redis, call)

    def touch(self, uri: str, *, idempotency_key: str | None = None) -> Outcome:
        """Do what `Publisher.touch` does.

        Raises:
            BadRequest, Conflict, Unavailable: as there.
        """
        with tracing.published("touch", self.tenant):
            return touching.touch_sync(
                self._redis, self._rules, self.keys, self._key(uri), idempotency_key=idempotency_key
            )

    def list_changed(self, *, idempotency_key: str | None = None) -> Outcome:
        """Do what `Publisher.list_changed` does.

        Raises:
            BadRequest, Conflict, Unavailable: as there.
        """
        with tracing.published("list_changed", self.tenant):
            return run_sync(self._redis, self._list_changed(idempotency_key))

    def remove(
        self,
        uri: str,
        *,
        version: int | None = None,
        expect: Expect | None = None,
        idempotency_key: str | None = None,
    ) -> Outcome:
        """Do what `Publisher.remove` does.

        Raises:
            BadRequest, Conflict, Unavailable: as there.
        """
        with tracing.published("remove", self.tenant):
            return run_sync(self._redis, self._remove(uri, version, expect, idempotency_key))

    def publish_many(
        self, items: Iterable[Item | tuple[str, Any]], *, progress: Progress | None = None
    ) -> list[Result]:
        """Do what `Publisher.publish_many` does."""
        total = len(items) if isinstance(items, Sized) else None
        results: list[Result] = []
        with tracing.published("publish_many", self.tenant):
            for batch in self._batches(items):
                calls = [decided for _, decided in batch if isinstance(decided, Call)]
                results += _results(batch, run_batch_sync(self._redis, calls))
                if progress is not None:
                    progress(len(results), total)
        return results

    def read(self, uri: str) -> Stored | None:
        """Do what `Publisher.read` does.

        Raises:
            BadRequest, Unavailable: as there.
        """
        return resources.read_sync(self._redis, self.keys, self._key(uri))

    def list(self, after: str | None = None) -> Iterator[Listed]:
        """Do what `Publisher.list` does.

        Raises:
            Unavailable: as there.
        """
        while True:
            listed, has_more = resources.page_sync(self._redis, self.keys, self.tenant, after, PAGE)
            yield from listed
            if not has_more:
                return
            after = listed[-1].uri


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


def _results(
    batch: list[tuple[str, Call[Outcome] | BrokerError]], answers: Iterable[Outcome | BrokerError]
) -> Iterator[Result]:
    """Yield each item's result; `answers` are those of the decided ones."""
    answer = iter(answers)
    for uri, decided in batch:
        said = next(answer) if isinstance(decided, Call) else decided
        if isinstance(said, BrokerError):
            yield Result(uri, None, said)
        else:
            yield Result(uri, said, None)


def _milliseconds(lifetime: timedelta | float | None) -> int | None:
    if lifetime is None:
        return None
    seconds = lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime
    if not math.isfinite(seconds):
        raise BadRequest(f"A lifetime is finite, not {seconds}; leave it out for a resource that stays.")
    return math.ceil(seconds * 1000)
