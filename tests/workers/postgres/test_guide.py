"""The guide's page about sources, run as it stands against a real PostgreSQL and a real folder."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_server import RedisServer
from tests.support.wait import until, within
from tests.workers.postgres.cluster import Cluster
from workers import Publisher
from workers.ending import end

pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "sources.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


async def test_the_page_about_sources_says_what_is_so(
    cluster: Cluster,
    redis_server: RedisServer,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BROKER_REDIS_URL", redis_server.url)
    monkeypatch.setenv("BROKER_PREFIX", prefix)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handbook" / "guide").mkdir(parents=True)
    (tmp_path / "handbook" / "guide" / "intro.md").write_text("# Welcome")
    await asyncio.to_thread(
        cluster.run,
        "CREATE TABLE orders (id int PRIMARY KEY, state text, total int, card text)",
        "INSERT INTO orders VALUES (17, 'new', 3, 'secret')",
    )
    scope: dict[str, Any] = {"__name__": "sources"}
    for block in BLOCK.finditer(PAGE.read_text()):
        exec(compile(block[1], str(PAGE), "exec"), scope)  # our own page
    running = [
        asyncio.create_task(scope["publish_handbook"]()),
        asyncio.create_task(scope["publish_orders"](cluster.dsn)),
    ]
    async with Publisher() as publisher:

        async def text(uri: str) -> str:
            stored = await publisher.read(uri)
            return "" if stored is None else json.loads(stored.contents)[0]["text"]

        async def is_published() -> bool:
            return await text("docs://guide/intro.md") == "# Welcome" and json.loads(
                await text("row://orders/17") or "null"
            ) == {"state": "new", "total": 3}

        await until(is_published, "the file and the row")
    await within(end(running), "an end")
