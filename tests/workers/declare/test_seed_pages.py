"""What the two SDK pages about resources promise, kept to the official client of both eras."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.support.replica import Fleet
from tests.support.wait import stays, until
from tests.workers.declare import seed_pages
from tests.workers.declare.seed_pages import GIF, PNG, ROOTS, STATUS
from workers import Publisher
from workers.serving import serving

pytestmark = [
    pytest.mark.parametrize("mode", ["auto", "legacy"]),
    # The client says of each verb of the handshake era that it is removed; here that era is the point.
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
]

FIXED = [
    "config://app",
    "covers://placeholder",
    "deploys://status",
    "readme://shop",
    "report://latest",
    "stats://catalog",
]
LISTED = sorted([*FIXED, "teams://core/roster", "teams://growth/roster"])
ATTACKS = [
    "docs://../secret.md",
    "docs://%2e%2e/secret.md",
    "docs://..%2Fsecret.md",
    "docs://sub/..%5C..%5Csecret.md",
    "docs:///etc/passwd",
    "docs://%2Fetc%2Fpasswd",
    "docs://C:%5CWindows",
    "docs://intro.md%00",
    "docs://link.md",
]


@pytest.fixture
async def place(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Fleet]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "intro.md").write_text("# Welcome")
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "docs" / "link.md").symlink_to(tmp_path / "secret.md")
    ROOTS[:] = [tmp_path / "docs"]
    STATUS[:] = ["idle"]
    async with serving(seed_pages.worker, url=fleet.redis_url, prefix=fleet.prefix):
        yield fleet


def _client(place: Fleet, mode: Any, inbox: list[str]) -> Client:
    async def on_message(message: Any) -> None:
        params = getattr(message, "params", None)
        inbox.append(f"{getattr(message, 'method', '')} {getattr(params, 'uri', '')}".strip())

    return Client(place.replicas[0].url, mode=mode, message_handler=on_message, cache=None)


async def _read(client: Client, uri: str) -> list[tuple[str, str | None, str]]:
    entries: list[Any] = list((await client.read_resource(uri)).contents)
    assert {str(each.uri) for each in entries} == {uri}
    return [
        (
            "text" if hasattr(each, "text") else "blob",
            each.mime_type,
            getattr(each, "text", getattr(each, "blob", "")),
        )
        for each in entries
    ]


async def test_everything_on_the_pages_is_listed_and_read_as_they_say(place: Fleet, mode: str) -> None:
    async with _client(place, mode, []) as client:
        listed = {str(each.uri): each for each in (await client.list_resources()).resources}
        assert list(listed) == LISTED
        assert (listed["config://app"].name, listed["config://app"].title) == ("config", "Application Config")
        assert listed["readme://shop"].description == "How to use this shop."
        assert listed["teams://core/roster"].name == "Core team roster"

        templates = (await client.list_resource_templates()).resource_templates
        shown = {each.uri_template: (each.name, each.mime_type) for each in templates}
        assert shown == {
            "docs://{+file}": ("doc", "text/markdown"),
            "teams://{team_id}/roster": ("team_roster", "text/plain"),
            "users://{user_id}/profile": ("user_profile", "application/json"),
        }

        assert await _read(client, "config://app") == [
            ("text", "text/plain", "log_level=info\nregion=eu-west-1")
        ]
        assert await _read(client, "readme://shop") == [("text", "text/markdown", "# Bookshop")]
        assert await _read(client, "stats://catalog") == [
            ("text", "application/json", '{"books":1204,"authors":391}')
        ]
        assert await _read(client, "covers://placeholder") == [("blob", "image/gif", GIF)]
        assert await _read(client, "report://latest") == [
            ("text", "text/markdown", "Installs grew by 12 % this week."),
            ("blob", "image/png", PNG),
        ]
        assert await _read(client, "users://7/profile") == [
            ("text", "application/json", '{"userId":"7","plan":"pro"}')
        ]
        assert await _read(client, "teams://core/roster") == [("text", "text/plain", "Members of team core")]
        assert await _read(client, "docs://intro.md") == [("text", "text/markdown", "# Welcome")]

        unknown = await _refusal(client, "nothing://here")
        for uri in ATTACKS:
            assert await _refusal(client, uri) == unknown.replace("nothing://here", uri)


async def _refusal(client: Client, uri: str) -> str:
    with pytest.raises(MCPError) as caught:
        await client.read_resource(uri)
    return f"{caught.value.error.code} {caught.value.error.message} {caught.value.error.data}"


async def test_only_who_watches_the_deployment_hears_of_it(place: Fleet, mode: str) -> None:
    heard: list[str] = []
    others: list[str] = []
    uri = "deploys://status"
    async with (
        _client(place, mode, heard) as watcher,
        _client(place, mode, others) as other,
        Publisher(place.redis_url, prefix=place.prefix) as publisher,
    ):
        await _watch(other, mode, others, "report://latest")
        await _watch(watcher, mode, heard, uri)
        STATUS[:] = ["rolling out"]
        await publisher.touch(uri)
        await until(lambda: any(uri in each for each in heard), "the watcher has heard")
        assert await _read(watcher, uri) == [("text", "text/plain", "rolling out")]
        await stays(lambda: not any(uri in each for each in others), "the other hears nothing", 0.2)


_FOLLOWING: set[asyncio.Task[None]] = set()


async def _watch(client: Client, mode: str, inbox: list[str], uri: str) -> None:
    """Subscribe as the client's era does; what comes goes to `inbox`."""
    if mode == "legacy":
        session: Any = client  # its methods of the handshake era are marked as deprecated
        await session.subscribe_resource(uri)
        return
    ready = asyncio.Event()

    async def follow() -> None:
        async with client.listen(resource_subscriptions=[uri], resources_list_changed=True) as changes:
            ready.set()
            async for change in changes:
                inbox.append(f"{type(change).__name__} {getattr(change, 'uri', '')}")  # noqa: PERF401 # as it comes

    task = asyncio.create_task(follow())
    _FOLLOWING.add(task)
    task.add_done_callback(_FOLLOWING.discard)
    await until(lambda: ready.is_set() or task.done(), "the stream is open")


async def test_what_is_switched_or_removed_changes_the_list_of_those_who_watch_it(
    place: Fleet, mode: str
) -> None:
    heard: list[str] = []
    async with _client(place, mode, heard) as client:
        await _watch(client, mode, heard, "config://app")
        seed_pages.worker.disable("report://latest")
        try:
            await until(
                lambda: any("list" in each.lower() for each in heard), lambda: f"list change in {heard}"
            )
            listed = [str(each.uri) for each in (await client.list_resources()).resources]
            assert listed == [uri for uri in LISTED if uri != "report://latest"]
            await _refusal(client, "report://latest")
        finally:
            seed_pages.worker.enable("report://latest")

        async def is_back() -> bool:
            return [str(each.uri) for each in (await client.list_resources()).resources] == LISTED

        await until(is_back, "it is listed again")
