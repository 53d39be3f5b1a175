"""The list over HTTP: its pages while resources come and go, and its changes, told in both eras."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.support.wait import until
from workers import Publisher


@pytest.fixture
def client(fleet: Fleet, tenant: str, http: httpx.AsyncClient) -> Modern:
    return Modern(fleet.url, tenant, http)


async def pages(client: Modern | Handshake) -> AsyncIterator[list[str]]:
    """Yield the URIs of page after page."""
    cursor: dict[str, str] = {}
    while True:
        page = await client.ask("resources/list", **cursor)
        yield [str(each["uri"]) for each in page["resources"]]
        if "nextCursor" not in page:
            return
        cursor = {"cursor": page["nextCursor"]}


@pytest.mark.requirement("list.pages")
async def test_pages_are_whole_in_order_and_have_no_cursor_at_the_end(
    client: Modern, publisher: Publisher
) -> None:
    uris = [f"docs:{number:03}" for number in range(250)]
    await publisher.publish_many([(uri, "x") for uri in uris])
    found = [page async for page in pages(client)]
    assert [len(page) for page in found] == [100, 100, 50]
    assert list(itertools.chain(*found)) == uris


@pytest.mark.requirement("list.pages")
async def test_pages_stay_right_while_resources_come_and_go(client: Modern, publisher: Publisher) -> None:
    """What was there all the time is listed exactly once, even where the cursor's own resource is gone."""
    uris = [f"docs:{number:03}" for number in range(220)]
    await publisher.publish_many([(uri, "x") for uri in uris])
    found: list[str] = []
    gone: set[str] = set()
    async for page in pages(client):
        found += page
        gone |= {page[-1], uris[150]}
        await publisher.remove(page[-1])
        await publisher.remove(uris[150])
        await publisher.publish(f"docs:{page[0][5:]}-new", "x")
    stayed = [uri for uri in uris if uri not in gone]
    assert [uri for uri in found if uri in stayed] == stayed


@pytest.mark.requirement("list.cursor")
async def test_a_cursor_of_another_tenant_or_of_nobody_is_refused(
    client: Modern, publisher: Publisher, fleet: Fleet, http: httpx.AsyncClient
) -> None:
    await publisher.publish_many([(f"docs:{number}", "x") for number in range(101)])
    cursor = (await client.ask("resources/list"))["nextCursor"]
    other = Modern(fleet.url, f"{client.tenant}x", http)
    for asking, text in ((other, cursor), (client, cursor[:-1]), (client, ""), (client, "x")):
        with pytest.raises(RpcError, match="first page"):
            await asking.ask("resources/list", cursor=text)


@pytest.mark.requirement("list.cursor")
async def test_every_replica_reads_the_others_cursors(
    client: Modern, publisher: Publisher, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    await publisher.publish_many([(f"docs:{number}", "x") for number in range(101)])
    for here, there in ((0, 1), (1, 0)):
        cursor = (await Modern(fleet[here].url, tenant, http).ask("resources/list"))["nextCursor"]
        rest = await Modern(fleet[there].url, tenant, http).ask("resources/list", cursor=cursor)
        assert len(rest["resources"]) == 1


@pytest.mark.requirement("list.changed")
async def test_only_what_shows_in_the_list_changes_it(
    client: Modern, publisher: Publisher, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """A new resource, a new name or type and a removal do; new contents do not (field report 62)."""
    async with (
        Handshake(fleet.url, tenant, http) as session,
        await client.listen(wants_list=True) as listening,
        await client.listen(["docs:a"]) as other,
    ):
        stream = await session.get_stream()
        told = 0

        async def is_told() -> None:
            nonlocal told
            told += 1
            await until(lambda: listening.list_changes >= told, f"list change {told} of the listen")
            await until(lambda: stream.list_changes >= told, f"list change {told} of the session")

        await publisher.publish("docs:a", "1")
        await is_told()
        await publisher.publish("docs:a", "2")
        await publisher.publish("docs:a", "2", mime_type="text/markdown")
        await is_told()
        await publisher.publish("docs:a", "3", mime_type="text/markdown", title="A")
        await is_told()
        await publisher.remove("docs:a")
        await is_told()
        await publisher.publish("docs:b", "1")
        await is_told()
        assert (listening.list_changes, stream.list_changes) == (5, 5)
        assert other.list_changes == 0


@pytest.mark.requirement("list.burst")
async def test_a_burst_is_told_at_once_then_together_and_the_last_of_it_never_lost(
    client: Modern, publisher: Publisher
) -> None:
    """And whoever lists at a cue sees at least what the cue was about, on any replica (field report 64)."""
    count = 600
    async with await client.listen(wants_list=True) as listening:
        seen: list[int] = []

        async def list_at_each_cue() -> None:
            told = 0
            while not seen or seen[-1] < count:
                await until(lambda told=told: listening.list_changes > told, "a list change")
                told = listening.list_changes
                seen.append(len(await client.list()))

        listing = asyncio.create_task(list_at_each_cue())
        for start in range(0, count, 20):
            items = [(f"docs:{number:04}", "x") for number in range(start, start + 20)]
            await publisher.publish_many(items)
        await asyncio.wait_for(listing, 20)
        assert seen == sorted(seen)
        assert listening.list_changes < count / 10


@pytest.mark.requirement("list.tenant")
async def test_the_list_of_another_tenant_changes_nothing_here(
    client: Modern, fleet: Fleet, publisher: Publisher
) -> None:
    async with (
        await client.listen(wants_list=True) as listening,
        Publisher(fleet.redis_url, tenant=f"{client.tenant}x", prefix=fleet.prefix) as other,
    ):
        await other.publish("docs:a", "1")
        await publisher.publish("docs:b", "1")
        await until(lambda: listening.list_changes, "our own list change")
        assert listening.list_changes == 1
        assert await client.list() == ["docs:b"]


@pytest.mark.requirement("capability.offers")
@pytest.mark.parametrize("is_on", [True, False])
async def test_empty_tools_and_prompts_are_advertised_and_answered_or_neither(
    is_on: bool,  # noqa: FBT001 - the setting
    new_fleet: Callable[..., Fleet],
    redis_server: RedisServer,
    http: httpx.AsyncClient,
    prefix: str,
) -> None:
    settings = {} if is_on else {"BROKER_LIST__EMPTY_TOOLS_AND_PROMPTS": "false"}
    fleet = await asyncio.to_thread(new_fleet, redis_server.url, 1, **settings)
    modern = Modern(fleet.url, "default", http)
    async with Handshake(fleet.url, "default", http) as handshake:
        offered = [
            (await modern.ask("server/discover"))["capabilities"],
            handshake.initialized["capabilities"],
        ]
        for capabilities in offered:
            assert capabilities["resources"] == {"subscribe": True, "listChanged": True}
            assert capabilities.get("tools") == ({} if is_on else None)
            assert capabilities.get("prompts") == ({} if is_on else None)
        for client, kind in itertools.product((modern, handshake), ("tools", "prompts")):
            if is_on:
                assert (await client.ask(f"{kind}/list"))[kind] == []
            else:
                with pytest.raises(RpcError) as refused:
                    await client.ask(f"{kind}/list")
                assert refused.value.code == -32601
    with redis_server.client() as redis:
        clear(redis, prefix)
