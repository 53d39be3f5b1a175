"""The guide's pages about publishing, demand and following, run as they stand against a real fleet."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.mcp import Modern
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.workers.serving.conftest import serve
from workers import Publisher

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page(name: str) -> dict[str, Any]:
    """Return what the program of a page defines."""
    scope: dict[str, Any] = {"__name__": name}
    for block in BLOCK.finditer((GUIDE / f"{name}.md").read_text()):
        exec(compile(block[1], f"{name}.md", "exec"), scope)  # our own page
    return scope


async def test_the_page_about_demand_says_what_is_so(
    hasty_fleet: Fleet,
    tenant: str,
    http: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BROKER_TENANT", tenant)
    monkeypatch.setenv("BROKER_REDIS_URL", hasty_fleet.redis_url)
    monkeypatch.setenv("BROKER_PREFIX", hasty_fleet.prefix)
    scope = page("demand")
    client = Modern(hasty_fleet[0].url, tenant, http)
    async with serve(hasty_fleet, scope["worker"], linger=1.5):
        assert (await client.read("price://acme"))[0]["text"] == "17"
        async with await client.listen(["price://acme"]) as listening:
            await listening.cue("price://acme", 2)
            assert int((await client.read("price://acme"))[0]["text"]) > 18

        def said() -> bool:
            told.append(capsys.readouterr().out)
            return "nobody watches price://acme any more" in "".join(told)

        told: list[str] = []
        await until(said, "the end of it", 15)


async def test_the_page_about_following_says_what_is_so(fleet: Fleet, tenant: str) -> None:
    scope = page("following")
    index: dict[str, bytes] = scope["index"]
    async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
        await publisher.publish("doc://old", "old")
        following = asyncio.create_task(scope["follow"](publisher))
        await until(lambda: "doc://old" in index, "what was there")
        await publisher.publish("doc://new", "new")
        await until(lambda: b"new" in index.get("doc://new", b""), "what is new")
        await publisher.remove("doc://old")
        await until(lambda: "doc://old" not in index, "what is gone")
        following.cancel()
        await asyncio.wait({following})


async def test_the_page_about_publishing_says_what_is_so(fleet: Fleet, tenant: str) -> None:
    scope = page("publishing")
    said = re.search(r"^It returns `(\[.*?\])`", (GUIDE / "publishing.md").read_text(), re.MULTILINE)
    assert said is not None
    async with Publisher(fleet.redis_url, tenant=tenant, prefix=fleet.prefix) as publisher:
        assert await scope["publish"](publisher) == json.loads(said[1])
