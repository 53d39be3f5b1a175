"""A folder published by a worker: what is published is what is there, whatever happened in between."""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer
from tests.support.wait import until
from workers import Publisher
from workers.folder import Folder, FolderWorker

Texts = dict[str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
async def publisher(redis_server: RedisServer, prefix: str) -> AsyncIterator[Publisher]:
    async with Publisher(redis_server.url, prefix=prefix, max_content_bytes=10_000) as opened:
        yield opened


@contextlib.asynccontextmanager
async def following(folder: Folder, publisher: Publisher) -> AsyncGenerator[FolderWorker]:
    worker = FolderWorker(folder, publisher)
    task = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(worker.is_published.wait(), 10)
        yield worker
    finally:
        task.cancel()
        await asyncio.wait({task})


async def texts(publisher: Publisher) -> Texts:
    """Return what is published: URI → text, or the blob."""
    found: Texts = {}
    async for listed in publisher.list():
        stored = await publisher.read(listed.uri)
        if stored is not None:
            [entry] = json.loads(stored.contents)
            found[listed.uri] = entry.get("text", entry.get("blob"))
    return found


async def becomes(publisher: Publisher, expected: Texts) -> None:
    async def holds() -> bool:
        return await texts(publisher) == expected

    await until(holds, f"published: {expected}", 15)


def _worker(folder: Path, publisher: Publisher, pattern: str = "*") -> FolderWorker:
    return FolderWorker(Folder(folder, "docs://", pattern), publisher)


async def test_files_are_published_under_their_paths(folder: Path, publisher: Publisher) -> None:
    (folder / "guide").mkdir()
    (folder / "README.md").write_text("# Read me\n")
    (folder / "guide" / "deep file ü.txt").write_text("deep")
    change = await _worker(folder, publisher).reconcile()
    assert change.published == 2
    assert await texts(publisher) == {
        "docs://README.md": "# Read me\n",
        "docs://guide/deep%20file%20%C3%BC.txt": "deep",
    }


async def test_a_file_has_its_type_name_and_title(folder: Path, publisher: Publisher) -> None:
    (folder / "a.md").write_text("intro\n\n# The title #\n")
    (folder / "b.json").write_text("{}")
    (folder / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (folder / "LICENSE").write_text("text without a suffix")
    (folder / "liar.txt").write_bytes(b"\xff\xfe\0binary")
    await _worker(folder, publisher).reconcile()
    about = {listed.uri: json.loads(listed.meta) async for listed in publisher.list()}
    assert about["docs://a.md"] == {
        "uri": "docs://a.md", "name": "a.md", "title": "The title", "mimeType": "text/markdown",
    }  # fmt: skip
    types = {uri.removeprefix("docs://"): meta["mimeType"] for uri, meta in about.items()}
    assert types == {
        "a.md": "text/markdown",
        "b.json": "application/json",
        "c.png": "image/png",
        "LICENSE": "text/plain",
        "liar.txt": "text/plain",
    }
    stored = await publisher.read("docs://liar.txt")
    assert stored is not None
    assert "blob" in json.loads(stored.contents)[0]


async def test_an_unchanged_folder_is_not_published_again(folder: Path, publisher: Publisher) -> None:
    (folder / "a.md").write_text("a")
    worker = _worker(folder, publisher)
    assert (await worker.reconcile()).published == 1
    assert (await worker.reconcile()).published == 0


async def test_hidden_files_and_those_of_editors_are_left_out(folder: Path, publisher: Publisher) -> None:
    for name in (".secret", "a.md~", ".a.md.swp"):
        (folder / name).write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    await _worker(folder, publisher).reconcile()
    assert await texts(publisher) == {}


async def test_only_files_of_the_pattern_are_published(folder: Path, publisher: Publisher) -> None:
    (folder / "a.md").write_text("a")
    (folder / "b.txt").write_text("b")
    await _worker(folder, publisher, "*.md").reconcile()
    assert await texts(publisher) == {"docs://a.md": "a"}


async def test_a_link_that_leaves_the_folder_is_not_followed(
    folder: Path, publisher: Publisher, tmp_path: Path
) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.md").write_text("secret")
    (folder / "inside.md").write_text("inside")
    (folder / "link.md").symlink_to(folder / "inside.md")
    (folder / "leak.md").symlink_to(tmp_path / "secret.md")
    (folder / "leaks").symlink_to(tmp_path / "outside")
    (folder / "circle.md").symlink_to(folder / "circle.md")
    await _worker(folder, publisher).reconcile()
    assert await texts(publisher) == {"docs://inside.md": "inside", "docs://link.md": "inside"}


async def test_a_pipe_in_the_folder_stops_nothing(folder: Path, publisher: Publisher) -> None:
    os.mkfifo(folder / "pipe.md")
    (folder / "a.md").write_text("a")
    await asyncio.wait_for(_worker(folder, publisher).reconcile(), 5)
    assert await texts(publisher) == {"docs://a.md": "a"}


async def test_what_an_earlier_run_published_without_a_file_now_is_removed(
    folder: Path, publisher: Publisher
) -> None:
    await publisher.publish("docs://gone.md", "old")
    await publisher.publish("doct://other", "not ours")
    await publisher.publish("other://x", "not ours either")
    (folder / "a.md").write_text("a")
    change = await _worker(folder, publisher).reconcile()
    assert change.removed == 1
    assert await texts(publisher) == {
        "docs://a.md": "a",
        "doct://other": "not ours",
        "other://x": "not ours either",
    }


async def test_a_file_that_cannot_be_published_is_told_once_and_hinders_no_other(
    folder: Path, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "a.md").write_text("a")
    (folder / "large.md").write_text("x" * 20_000)
    (folder / ("n" * 200)).mkdir()
    (folder / ("n" * 200) / ("ü" * 100 + ".md")).write_text("too long a URI")
    worker = _worker(folder, publisher)
    with caplog.at_level(logging.WARNING, "workers.folder"):
        assert (await worker.reconcile()).failed == 2
        assert (await worker.reconcile()).published == 0
    assert [record.message for record in caplog.records] == ["file_left_out"] * 2
    assert await texts(publisher) == {"docs://a.md": "a"}
    (folder / "large.md").write_text("small now")
    await worker.reconcile()
    assert (await texts(publisher))["docs://large.md"] == "small now"


async def test_a_file_that_cannot_be_read_keeps_what_was_published(
    folder: Path, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root reads everything, so the refusal is made here."""
    file = folder / "a.md"
    file.write_text("a")
    worker = _worker(folder, publisher)
    await worker.reconcile()
    file.write_text("not readable now")

    def refuse(_folder: Folder, _path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as refused:
        refused.setattr(Folder, "read", refuse)
        assert (await worker.reconcile()).failed == 1
    assert await texts(publisher) == {"docs://a.md": "a"}


async def test_edits_new_files_renames_and_deletions_are_followed(folder: Path, publisher: Publisher) -> None:
    (folder / "a.md").write_text("one")
    async with following(Folder(folder), publisher):
        await becomes(publisher, {"docs://a.md": "one"})
        (folder / "a.md").write_text("two")
        await becomes(publisher, {"docs://a.md": "two"})
        (folder / "b.md").write_text("new")
        await becomes(publisher, {"docs://a.md": "two", "docs://b.md": "new"})
        (folder / "b.md").rename(folder / "c.md")
        await becomes(publisher, {"docs://a.md": "two", "docs://c.md": "new"})
        (folder / "deep").mkdir()
        (folder / "deep" / "d.md").write_text("deep")
        await becomes(publisher, {"docs://a.md": "two", "docs://c.md": "new", "docs://deep/d.md": "deep"})
        (folder / "deep").rename(folder / "deeper")
        await becomes(publisher, {"docs://a.md": "two", "docs://c.md": "new", "docs://deeper/d.md": "deep"})
        (folder / "a.md").unlink()
        await becomes(publisher, {"docs://c.md": "new", "docs://deeper/d.md": "deep"})


async def test_an_edit_is_published_within_a_second(folder: Path, publisher: Publisher) -> None:
    (folder / "a.md").write_text("one")
    async with following(Folder(folder), publisher):
        loop = asyncio.get_running_loop()
        started = loop.time()
        # As editors save: a new file in place of the old one.
        (folder / "a.md.tmp~").write_text("two")
        (folder / "a.md.tmp~").rename(folder / "a.md")
        await becomes(publisher, {"docs://a.md": "two"})
        assert loop.time() - started < 1.0


async def test_a_change_during_the_first_look_is_not_lost(
    folder: Path, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch begins before the first look: a file written while that goes on is told afterwards."""
    (folder / "a.md").write_text("one")
    read: Callable[[Folder, Path], bytes] = Folder.read

    def read_and_write(followed: Folder, path: Path) -> bytes:
        data = read(followed, path)
        if data == b"one":
            path.write_text("two")
        return data

    monkeypatch.setattr(Folder, "read", read_and_write)
    async with following(Folder(folder), publisher):
        await becomes(publisher, {"docs://a.md": "two"})


async def test_after_an_outage_of_redis_the_folder_is_as_published_again(
    folder: Path, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "a.md").write_text("one")
    (folder / "b.md").write_text("gone during the outage")
    async with Publisher(own_redis.url) as publisher, following(Folder(folder), publisher):
        await asyncio.to_thread(own_redis.kill)
        with caplog.at_level(logging.WARNING, "workers.folder"):
            (folder / "a.md").write_text("two")
            (folder / "b.md").unlink()
            await until(lambda: "publishing_failed" in caplog.text, "the outage was noticed")
        # It also forgets everything that it had.
        await asyncio.to_thread(lambda: own_redis.restart(keep_data=False))
        (folder / "c.md").write_text("three")
        await becomes(publisher, {"docs://a.md": "two", "docs://c.md": "three"})


async def test_a_folder_that_is_gone_removes_nothing_and_is_waited_for(
    folder: Path, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "a.md").write_text("one")
    async with following(Folder(folder), publisher):
        with caplog.at_level(logging.WARNING, "workers.folder"):
            os.rename(folder, folder.with_name("away"))  # noqa: PTH104 # blocking for a moment, on purpose
            await until(lambda: "folder_gone" in caplog.text, "noticed", 15)
        assert await texts(publisher) == {"docs://a.md": "one"}
        os.rename(folder.with_name("away"), folder)  # noqa: PTH104 # as above
        (folder / "a.md").write_text("back")
        await becomes(publisher, {"docs://a.md": "back"})
