"""`Publisher` and `SyncPublisher`: what a backend job sees."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import workers
from tests.store.shelf import Shelf
from tests.support.redis_server import RedisServer
from workers import (
    BadRequest,
    Conflict,
    Contents,
    InvalidContents,
    InvalidTenant,
    InvalidUri,
    Item,
    Misconfigured,
    Publisher,
    StoreUnavailable,
    SyncPublisher,
    TooLarge,
)

URI = "docs://readme"


async def test_both_publishers_do_the_same(publisher: Publisher, sync_publisher: SyncPublisher) -> None:
    first = await publisher.publish(URI, "a", title="T", version=1)
    assert first.status == "published"
    assert sync_publisher.publish(URI, "a", title="T").status == "unchanged"
    assert sync_publisher.read(URI) == await publisher.read(URI)
    assert sync_publisher.touch(URI).status == "touched"
    assert (await publisher.touch(URI)).status == "touched"
    listed = [each async for each in publisher.list()]
    assert listed == list(sync_publisher.list())
    assert [each.uri for each in listed] == [URI]
    assert sync_publisher.remove(URI).status == "removed"
    assert (await publisher.remove(URI)).status == "absent"
    assert await publisher.read(URI) is None


async def test_every_description_and_condition_reaches_the_store(publisher: Publisher, shelf: Shelf) -> None:
    await publisher.publish(
        URI,
        [Contents(text="a"), Contents(blob=b"b", uri="docs://b", mime_type="image/png")],
        name="n",
        title="t",
        description="d",
        mime_type="text/plain",
        annotations={"priority": 1},
        icons=[{"src": "https://x/i.png"}],
        size=3,
        scopes=["s"],
        ttl_ms=5,
        cache_scope="private",
        version=9,
        idempotency_key="k",
        expires_in=timedelta(hours=1),
        expect="absent",
    )
    stored = await shelf.read()
    assert stored is not None
    assert (stored.scopes, stored.ttl_ms, stored.cache_scope, stored.version) == ({"s"}, 5, "private", 9)
    assert stored.expires_ms is not None
    for part in (b'"n"', b'"t"', b'"d"', b"text/plain", b"priority", b"i.png", b'"size":3'):
        assert part in stored.meta
    with pytest.raises(Conflict):
        await publisher.publish(URI, "x", expect="absent")
    assert (await publisher.publish(URI, "x", expect=stored.stamp)).status == "published"


@pytest.mark.parametrize("lifetime", [timedelta(milliseconds=1500), 1.5])
async def test_a_lifetime_is_a_timedelta_or_seconds(
    publisher: Publisher, shelf: Shelf, lifetime: Any
) -> None:
    before = await cast("Any", shelf.redis).time()
    await publisher.publish(URI, "a", expires_in=lifetime)
    stored = await shelf.read()
    assert stored is not None
    assert stored.expires_ms is not None
    assert 1500 <= stored.expires_ms - before[0] * 1000 - before[1] // 1000 < 10_000


async def test_bad_input_is_refused_before_redis_is_asked(publisher: Publisher, shelf: Shelf) -> None:
    refused: list[tuple[type[Exception], Any]] = [
        (InvalidUri, publisher.publish("no uri", "a")),
        (InvalidUri, publisher.read("@list")),
        (InvalidUri, publisher.touch("")),
        (InvalidContents, publisher.publish(URI, None)),
        (TooLarge, publisher.publish(URI, "x" * 10_000_001)),
        (InvalidContents, publisher.publish(URI, "a", colour="red")),  # type: ignore[call-arg] # a typing error
        (BadRequest, publisher.publish(URI, "a", expires_in=-1)),
        (BadRequest, publisher.publish(URI, "a", expires_in=float("inf"))),
    ]
    for kind, call in refused:
        with pytest.raises(kind) as refusal:
            await call
        assert str(refusal.value).endswith((".", ")"))
    assert await shelf.entries() == []


def test_a_tenant_a_prefix_or_a_url_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(InvalidTenant):
        SyncPublisher("redis://127.0.0.1:1", tenant="a\nb")
    with pytest.raises(Misconfigured, match="BROKER_PREFIX"):
        SyncPublisher("redis://127.0.0.1:1", prefix="a{b}")
    with pytest.raises(Misconfigured, match="redis://"):
        SyncPublisher("http://127.0.0.1:1")


def test_the_environment_says_where_and_for_whom(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_REDIS_URL", redis_server.url)
    monkeypatch.setenv("BROKER_PREFIX", prefix)
    monkeypatch.setenv("BROKER_TENANT", "from-env")
    with SyncPublisher() as publisher:
        assert (publisher.tenant, publisher.keys.prefix) == ("from-env", prefix)
        assert publisher.publish(URI, "a").status == "published"
    with SyncPublisher(tenant="given") as publisher:
        assert publisher.read(URI) is None


def test_without_a_redis_anywhere_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BROKER_REDIS_URL", raising=False)
    monkeypatch.setenv("BROKER_STATE_DIR", str(tmp_path))
    with pytest.raises(Misconfigured, match=r"BROKER_REDIS_URL.*start a broker"):
        Publisher()


def test_a_redis_that_is_gone_is_a_retryable_error() -> None:
    with SyncPublisher("redis://127.0.0.1:1") as publisher, pytest.raises(StoreUnavailable) as refusal:
        publisher.publish(URI, "a")
    assert refusal.value.retryable


async def test_publish_many_gives_each_item_its_own_outcome(publisher: Publisher, shelf: Shelf) -> None:
    await publisher.publish("x:held", "newer", version=9)
    items: list[Item | tuple[str, Any]] = [
        Item("x:1", "a", title="T"),
        ("no uri", "b"),
        ("x:2", float("nan")),
        Item("x:held", "late", version=1),
        Item("x:1", "a", title="T", expect="absent"),
        ("x:3", {"a": 1}),
    ]
    results = await publisher.publish_many(items)
    said = [result.outcome.status if result.outcome else type(result.error).__name__ for result in results]
    assert said == ["published", "InvalidUri", "InvalidContents", "superseded", "Conflict", "published"]
    assert [result.uri for result in results] == ["x:1", "no uri", "x:2", "x:held", "x:1", "x:3"]
    assert await shelf.uris() == ["x:1", "x:3", "x:held"]


async def test_publish_many_reports_progress_and_takes_a_generator(
    publisher: Publisher, sync_publisher: SyncPublisher
) -> None:
    seen: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> None:
        seen.append((done, total))

    def made() -> Iterator[tuple[str, Any]]:
        for number in range(150):
            yield f"x:{number:03}", number

    results = await publisher.publish_many(list(made()), progress=progress)
    assert {result.outcome and result.outcome.status for result in results} == {"published"}
    assert seen[-1] == (150, 150)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    seen.clear()
    again = sync_publisher.publish_many(made(), progress=progress)
    assert {result.outcome and result.outcome.status for result in again} == {"unchanged"}
    assert seen[-1] == (150, None)
    assert len([each async for each in publisher.list()]) == 150
    assert [each.uri for each in sync_publisher.list(after="x:147")] == ["x:148", "x:149"]


async def test_publish_many_of_large_items_stays_within_its_batches(
    publisher: Publisher, shelf: Shelf
) -> None:
    results = await publisher.publish_many([(f"x:{number}", "y" * 600_000) for number in range(5)])
    assert {result.outcome and result.outcome.status for result in results} == {"published"}
    assert len(await shelf.entries()) == 5


async def test_publish_many_survives_a_flushed_script_cache(
    publisher: Publisher, sync_publisher: SyncPublisher, shelf: Shelf
) -> None:
    await shelf.redis.script_flush()
    first = await publisher.publish_many([("x:1", "a"), ("x:2", "b")])
    await shelf.redis.script_flush()
    second = sync_publisher.publish_many([("x:1", "c"), ("x:2", "d")])
    said = [result.outcome and result.outcome.status for result in [*first, *second]]
    assert said == ["published"] * 4


async def test_publish_many_to_a_redis_that_is_gone_gives_every_item_the_error() -> None:
    async with Publisher("redis://127.0.0.1:1") as publisher:
        results = await publisher.publish_many([("x:1", "a"), ("no uri", "b")])
    assert [type(result.error).__name__ for result in results] == ["StoreUnavailable", "InvalidUri"]


async def test_publish_many_of_nothing_is_nothing(publisher: Publisher) -> None:
    assert await publisher.publish_many([]) == []


async def test_more_publishes_at_once_than_connections_all_succeed(
    publisher: Publisher, shelf: Shelf
) -> None:
    outcomes = await asyncio.gather(*(publisher.publish(f"x:{number}", "a") for number in range(100)))
    assert {outcome.status for outcome in outcomes} == {"published"}
    assert len(await shelf.entries()) == 100


def test_threads_share_one_sync_publisher(sync_publisher: SyncPublisher) -> None:
    async def spread() -> None:
        await asyncio.gather(
            *(asyncio.to_thread(sync_publisher.publish, f"x:{number}", "a") for number in range(20))
        )

    asyncio.run(spread())
    assert len(list(sync_publisher.list())) == 20


def test_a_publishers_repr_shows_no_password() -> None:
    with SyncPublisher("redis://user:geheim@127.0.0.1:1", tenant="t") as publisher:
        assert "geheim" not in repr(publisher)


def test_publishing_needs_neither_fastapi_nor_uvicorn() -> None:
    names = "{'fastapi', 'starlette', 'uvicorn', 'mcp_types'}"
    code = f"import sys, workers; print(sorted({names} & set(sys.modules)))"
    root = Path(workers.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env={**os.environ}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_everything_a_job_catches_is_exported() -> None:
    for name in workers.__all__:
        assert getattr(workers, name) is not None
    assert issubclass(workers.StoreUnavailable, workers.Unavailable)
