"""The rows of a real PostgreSQL, published: what is published is what is there, whatever happened."""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import Process
from tests.support.redis_server import RedisServer
from tests.support.wait import until, within
from tests.workers.postgres.cluster import Cluster
from workers import Change, Item, Misconfigured, Publisher, Relist, Result
from workers.ending import end
from workers.postgres import Rows, RowsWorker, install

pytestmark = pytest.mark.full

BASE = "row://orders/"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def rows(cluster: Cluster) -> Rows:
    """Give a new table of orders that notifies its changes."""
    await asyncio.to_thread(
        cluster.run,
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id text PRIMARY KEY, total int, at timestamptz DEFAULT '2026-12-01T00:00Z')",
    )
    rows = Rows(cluster.dsn, "orders")
    await install(rows)
    return rows


@pytest.fixture
async def publisher(redis_server: RedisServer, prefix: str) -> AsyncIterator[Publisher]:
    async with Publisher(redis_server.url, prefix=prefix, max_content_bytes=10_000) as opened:
        yield opened


@contextlib.asynccontextmanager
async def following(rows: Rows, publisher: Publisher) -> AsyncGenerator[RowsWorker]:
    worker = RowsWorker(rows, publisher)
    task = asyncio.create_task(worker.run())
    try:
        await within(worker.is_published.wait(), "a first look")
        yield worker
    finally:
        await within(end({task}), "an end")


async def totals(publisher: Publisher) -> dict[str, Any]:
    """Return the total of each published order by its URI after the base."""
    found: dict[str, Any] = {}
    async for listed in publisher.list():
        stored = await publisher.read(listed.uri)
        if stored is not None:
            [entry] = json.loads(stored.contents)
            found[listed.uri.removeprefix(BASE)] = json.loads(entry["text"])["total"]
    return found


async def becomes(publisher: Publisher, expected: dict[str, Any]) -> None:
    async def holds() -> bool:
        return await totals(publisher) == expected

    await until(holds, f"published: {expected}", 20)


async def run(cluster: Cluster, *statements: str) -> None:
    await asyncio.to_thread(cluster.run, *statements)


async def test_inserts_updates_and_deletes_reach_who_follows(
    cluster: Cluster, rows: Rows, publisher: Publisher
) -> None:
    told: list[Change | Relist] = []

    async def listen() -> None:
        async with contextlib.aclosing(publisher.changes("test")) as changes:
            async for change in changes:
                told.append(change)  # noqa: PERF401 # told one by one, to who looks meanwhile

    def last() -> Change | Relist | None:
        return told[-1] if told else None

    listening = asyncio.create_task(listen())
    await until(lambda: told, "told to list")
    async with following(rows, publisher):
        await run(cluster, "INSERT INTO orders VALUES ('a/b', 1)")
        await until(lambda: isinstance(found := last(), Change) and found.uri == BASE + "a%2Fb", "an insert")
        await run(cluster, "UPDATE orders SET total = 2")
        await becomes(publisher, {"a%2Fb": 2})
        await until(lambda: isinstance(found := last(), Change) and b"2," in _contents(found), "an update")
        await run(cluster, "DELETE FROM orders")
        await until(lambda: isinstance(found := last(), Change) and found.is_removed, "a deletion")
    await within(end({listening}), "an end")


def _contents(change: Change) -> bytes:
    return change.stored.contents if change.stored else b""


async def test_a_new_key_and_an_emptied_table_are_followed(
    cluster: Cluster, rows: Rows, publisher: Publisher
) -> None:
    async with following(rows, publisher):
        await run(cluster, "INSERT INTO orders VALUES ('a', 1), ('b', 2)")
        await becomes(publisher, {"a": 1, "b": 2})
        await run(cluster, "UPDATE orders SET id = 'c' WHERE id = 'a'")
        await becomes(publisher, {"c": 1, "b": 2})
        await run(cluster, "TRUNCATE orders")
        await becomes(publisher, {})


async def test_a_burst_of_many_rows_ends_as_the_table_is(
    cluster: Cluster, rows: Rows, publisher: Publisher
) -> None:
    async with following(rows, publisher):
        await run(cluster, "INSERT INTO orders SELECT n::text, n FROM generate_series(1, 1500) n")
        await becomes(publisher, {str(n): n for n in range(1, 1501)})


async def test_what_changed_while_nobody_followed_is_published_at_the_start(
    cluster: Cluster, rows: Rows, publisher: Publisher
) -> None:
    async with following(rows, publisher):
        await run(cluster, "INSERT INTO orders VALUES ('a', 1), ('b', 2)")
        await becomes(publisher, {"a": 1, "b": 2})
    await publisher.publish("row://other/1", '{"total": 9}')
    await run(cluster, "UPDATE orders SET total = 3 WHERE id = 'a'", "DELETE FROM orders WHERE id = 'b'")
    async with following(rows, publisher):
        assert await totals(publisher) == {"a": 3, "row://other/1": 9}


async def test_a_change_during_the_first_look_is_not_lost(
    cluster: Cluster, rows: Rows, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listening begins before the first look: a row changed after it was read is notified afterwards."""
    await run(cluster, "INSERT INTO orders VALUES ('a', 1)")
    publish_many = publisher.publish_many

    async def change_and_publish(items: list[Item]) -> list[Result]:
        await run(cluster, "UPDATE orders SET total = 2 WHERE total = 1")
        return await publish_many(items)

    monkeypatch.setattr(publisher, "publish_many", change_and_publish)
    async with following(rows, publisher):
        await becomes(publisher, {"a": 2})


async def test_a_lost_listener_is_noticed_though_reading_goes_on(
    cluster: Cluster, rows: Rows, publisher: Publisher
) -> None:
    async with following(rows, publisher):
        await run(
            cluster,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
            "INSERT INTO orders VALUES ('a', 1)",
        )
        await becomes(publisher, {"a": 1})


async def test_a_notification_that_is_no_key_hinders_nothing(cluster: Cluster, publisher: Publisher) -> None:
    await run(
        cluster, "DROP TABLE IF EXISTS numbered", "CREATE TABLE numbered (id int PRIMARY KEY, total int)"
    )
    rows = Rows(cluster.dsn, "numbered", base=BASE)
    await install(rows)
    async with following(rows, publisher):
        await run(cluster, f"NOTIFY {rows.channel}, 'no number'", "INSERT INTO numbered VALUES (1, 1)")
        await becomes(publisher, {"1": 1})


async def test_an_unchanged_table_announces_nothing(
    cluster: Cluster, rows: Rows, publisher: Publisher
) -> None:
    await run(cluster, "INSERT INTO orders VALUES ('a', 1)")
    async with following(rows, publisher):
        before = await publisher.read(BASE + "a")
    # Another time zone of the database must not make the same moment look new.
    await run(cluster, "ALTER ROLE test SET timezone TO 'Asia/Seoul'")
    async with following(rows, publisher):
        after = await publisher.read(BASE + "a")
    assert before is not None
    assert after is not None
    assert after.stamp == before.stamp


async def test_a_restart_of_postgresql_loses_nothing(
    cluster: Cluster, rows: Rows, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    await run(cluster, "INSERT INTO orders VALUES ('a', 1), ('b', 2)")
    async with following(rows, publisher):
        with caplog.at_level(logging.WARNING, "workers.postgres"):
            await asyncio.to_thread(cluster.stop)
            await until(lambda: "postgres_lost" in caplog.text, "the outage was noticed")
        assert await totals(publisher) == {"a": 1, "b": 2}
        await asyncio.to_thread(cluster.start)
        await run(cluster, "UPDATE orders SET total = 3 WHERE id = 'a'", "DELETE FROM orders WHERE id = 'b'")
        await becomes(publisher, {"a": 3})
        await run(cluster, "INSERT INTO orders VALUES ('c', 4)")
        await becomes(publisher, {"a": 3, "c": 4})


async def test_after_an_outage_of_redis_the_rows_are_as_published_again(
    cluster: Cluster, rows: Rows, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    await run(cluster, "INSERT INTO orders VALUES ('a', 1), ('b', 2)")
    async with Publisher(own_redis.url) as publisher, following(rows, publisher):
        await asyncio.to_thread(own_redis.kill)
        with caplog.at_level(logging.WARNING, "workers.postgres"):
            await run(cluster, "UPDATE orders SET total = 3", "DELETE FROM orders WHERE id = 'b'")
            await until(lambda: "publishing_failed" in caplog.text, "the outage was noticed")
        await asyncio.to_thread(lambda: own_redis.restart(keep_data=False))
        await becomes(publisher, {"a": 3})


async def test_a_row_that_cannot_be_published_hinders_no_other(
    cluster: Cluster, rows: Rows, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    await run(
        cluster,
        "ALTER TABLE orders ADD note text",
        "INSERT INTO orders VALUES ('big', 1, now(), repeat('x', 20000))",
        "INSERT INTO orders VALUES (repeat('k', 9000), 1, now(), ''), ('ok', 1, now(), '')",
    )
    with caplog.at_level(logging.WARNING, "workers.postgres"):
        async with following(rows, publisher):
            # A key that no notification can carry must not make the application's own statement fail.
            await run(cluster, "UPDATE orders SET total = 2")
            await becomes(publisher, {"ok": 2})
    assert [record.message for record in caplog.records] == ["row_left_out"] * 2


async def test_hostile_names_are_names_and_only_chosen_columns_are_published(
    cluster: Cluster, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """A name with what looks like a parameter's place failed each notified read, and only full looks went."""
    name = "o\"; DROP TABLE x; --'%s{}"
    quoted = '"' + name.replace('"', '""') + '"'
    await run(
        cluster,
        f"DROP TABLE IF EXISTS {quoted}",
        f"CREATE TABLE {quoted} (id int PRIMARY KEY, total int, secret text)",
    )
    rows = Rows(cluster.dsn, name, base=BASE, columns=("total",), channel="it's")
    await install(rows)
    async with following(rows, publisher):
        await run(cluster, f"INSERT INTO {quoted} VALUES (7, 1, 'secret')")
        await becomes(publisher, {"7": 1})
        stored = await publisher.read(BASE + "7")
        assert stored is not None
        assert b"secret" not in stored.contents
        await run(cluster, f"UPDATE {quoted} SET id = 8, total = 2")
        await becomes(publisher, {"8": 2})
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_table_without_triggers_is_published_and_told(
    cluster: Cluster, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    await run(cluster, "DROP TABLE IF EXISTS plain", "CREATE TABLE plain (id int, total int)")
    await run(cluster, "INSERT INTO plain VALUES (1, 1)")
    with caplog.at_level(logging.WARNING, "workers.postgres"):
        async with following(Rows(cluster.dsn, "plain", base=BASE), publisher):
            assert await totals(publisher) == {"1": 1}
            await until(lambda: "rows_not_notified" in caplog.text, "a warning")


async def test_a_missing_table_or_column_is_a_sentence(cluster: Cluster, publisher: Publisher) -> None:
    with pytest.raises(Misconfigured, match="There is no table nowhere in this database"):
        await within(RowsWorker(Rows(cluster.dsn, "nowhere"), publisher).run(), "an end")
    with pytest.raises(Misconfigured, match="There is no table nowhere in this database"):
        await install(Rows(cluster.dsn, "nowhere"))
    await run(cluster, "CREATE TABLE IF NOT EXISTS keyless (total int)")
    with pytest.raises(Misconfigured, match="keyless lacks a column"):
        await within(RowsWorker(Rows(cluster.dsn, "keyless"), publisher).run(), "an end")


def test_a_connection_string_that_is_none_is_a_sentence_without_its_password() -> None:
    with pytest.raises(Misconfigured, match="cannot be read") as caught:
        Rows("postgresql://me:hunter2@host:port:what/?x", "orders")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(Rows("postgresql://me:hunter2@host/db", "orders"))


def test_the_command_says_in_a_sentence_what_is_wrong(cluster: Cluster, redis_server: RedisServer) -> None:
    command = [sys.executable, "-m", "workers", "postgres", cluster.dsn, "nowhere"]
    ended = subprocess.run(
        [*command, "--redis-url", redis_server.url], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert "workers: There is no table nowhere" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_the_command_installs_the_triggers_and_follows(
    cluster: Cluster, publisher: Publisher, redis_server: RedisServer, tmp_path: Path
) -> None:
    await run(
        cluster, "DROP TABLE IF EXISTS told", "CREATE TABLE told (code text UNIQUE, total int, secret int)"
    )
    await run(cluster, "INSERT INTO told VALUES ('a', 1, 9)")
    command = [sys.executable, "-m", "workers", "postgres", cluster.dsn, "told", "--install", "--key", "code"]
    options = ["--column", "total", "--base", BASE]
    env = {**os.environ, "BROKER_REDIS_URL": redis_server.url, "BROKER_PREFIX": publisher.keys.prefix}
    process = Process("workers", [*command, *options], tmp_path / "log", env)
    process.start()
    try:
        await becomes(publisher, {"a": 1})
        await run(cluster, "UPDATE told SET total = 2")
        await becomes(publisher, {"a": 2})
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0
        assert "rows_not_notified" not in process.tail()
    finally:
        process.kill()
