"""Publishing from Python: `Publisher` for asyncio, `SyncPublisher` for plain scripts.

Two thin shells around the same decisions: a `Desk` (desk.py) turns arguments into calls, a shell sends them.
Rules:

1. An acknowledged publish is stored and announced; anything else is an error from core/errors.py, and
   `error.retryable` says whether the same call may succeed later.
2. Repeating a call that failed is always safe: publishing the same again announces nothing. An
   `idempotency_key` makes that hold when another publish came in between; a `version` makes late writers
   harmless.
3. In `publish_many` each item has its own outcome, and one that fails does not lose the rest. The order of
   items is kept within one call as long as nothing fails.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, Self, Unpack

from broker.core.publication import MAX_CONTENT_BYTES
from broker.store import resources, touching
from broker.store.batch import run_batch, run_batch_sync
from broker.store.client import commands, commands_sync
from broker.store.publishing import Expect, Outcome
from broker.store.resources import Listed, Stored
from broker.store.scripts import run, run_sync
from broker.store.waiting import run_waiting, run_waiting_sync
from workers import tracing
from workers.desk import Desk
from workers.following import Change, Follower, Relist
from workers.item import How, Item, Progress, Result

PAGE = 200
"""How many resources one round trip of `list` brings."""


class Publisher:
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
        self._desk = Desk(url, tenant=tenant, prefix=prefix, max_content_bytes=max_content_bytes)
        self.tenant, self.keys = self._desk.tenant, self._desk.keys
        self._redis = commands(self._desk.how)

    def __repr__(self) -> str:
        return f"<Publisher tenant={self.tenant!a} prefix={self.keys.prefix}>"

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
            asked, call = self._desk.wait(how), self._desk.publish(uri, contents, how)
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
                self._redis, self._desk.rules, self.keys, self._desk.key(uri), idempotency_key=idempotency_key
            )

    async def list_changed(self, *, idempotency_key: str | None = None) -> Outcome:
        """Tell the subscribers of the tenant's list that it changed: the instances of a worker's `list=`.

        What is published, removed, declared or withdrawn is told without this.

        Raises:
            BadRequest, Conflict, Unavailable: as `publish`.
        """
        with tracing.published("list_changed", self.tenant):
            return await run(self._redis, self._desk.list_changed(idempotency_key))

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
            return await run(self._redis, self._desk.remove(uri, version, expect, idempotency_key))

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
            for batch in self._desk.batches(items):
                results += batch.results(await run_batch(self._redis, batch.calls))
                if progress is not None:
                    progress(len(results), total)
        return results

    async def read(self, uri: str) -> Stored | None:
        """Return what is stored under `uri`, None if there is nothing.

        Raises:
            BadRequest, Unavailable: as `publish`.
        """
        return await resources.read(self._redis, self.keys, self._desk.key(uri))

    def changes(self, group: str, *, contents: bool = True) -> AsyncGenerator[Change | Relist]:
        """Yield the tenant's changes from where `group` has stopped, for ever (following.py).

        With `contents` each comes with what its URI holds now.

        Raises:
            Misconfigured: a group that cannot be one.
        """
        return Follower(self._desk.how, self.tenant, group, contents=contents).changes()

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


class SyncPublisher:
    """What `Publisher` is, for plain scripts: `with SyncPublisher() as publisher`. Threads may share one."""

    def __init__(
        self,
        url: str | None = None,
        *,
        tenant: str | None = None,
        prefix: str | None = None,
        max_content_bytes: int = MAX_CONTENT_BYTES,
    ) -> None:
        self._desk = Desk(url, tenant=tenant, prefix=prefix, max_content_bytes=max_content_bytes)
        self.tenant, self.keys = self._desk.tenant, self._desk.keys
        self._redis = commands_sync(self._desk.how)

    def __repr__(self) -> str:
        return f"<SyncPublisher tenant={self.tenant!a} prefix={self.keys.prefix}>"

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
            asked, call = self._desk.wait(how), self._desk.publish(uri, contents, how)
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
                self._redis, self._desk.rules, self.keys, self._desk.key(uri), idempotency_key=idempotency_key
            )

    def list_changed(self, *, idempotency_key: str | None = None) -> Outcome:
        """Do what `Publisher.list_changed` does.

        Raises:
            BadRequest, Conflict, Unavailable: as there.
        """
        with tracing.published("list_changed", self.tenant):
            return run_sync(self._redis, self._desk.list_changed(idempotency_key))

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
            return run_sync(self._redis, self._desk.remove(uri, version, expect, idempotency_key))

    def publish_many(
        self, items: Iterable[Item | tuple[str, Any]], *, progress: Progress | None = None
    ) -> list[Result]:
        """Do what `Publisher.publish_many` does."""
        total = len(items) if isinstance(items, Sized) else None
        results: list[Result] = []
        with tracing.published("publish_many", self.tenant):
            for batch in self._desk.batches(items):
                results += batch.results(run_batch_sync(self._redis, batch.calls))
                if progress is not None:
                    progress(len(results), total)
        return results

    def read(self, uri: str) -> Stored | None:
        """Do what `Publisher.read` does.

        Raises:
            BadRequest, Unavailable: as there.
        """
        return resources.read_sync(self._redis, self.keys, self._desk.key(uri))

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
