"""Any replica, any request: no sticky routing in either era (promises 1, 3 and 4)."""

import asyncio

import httpx
import pytest

from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.replica import Fleet
from tests.support.wait import stays, until
from workers import Publisher

URI = "docs://guide"


async def test_a_cue_reaches_listeners_on_every_replica_and_nobody_else(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    client = Modern(fleet.url, tenant, http)
    watching = [await client.listen([URI], url=replica.url) for replica in fleet.replicas]
    elsewhere = [await client.listen([URI + "/other"], url=replica.url) for replica in fleet.replicas]
    await publisher.publish(URI, "one")
    for listening in watching:
        await listening.cue(URI)
    # A cue for the others, behind the first in the same log: what it brings with it is all there is.
    await publisher.publish(URI + "/other", "two")
    for listening in elsewhere:
        await listening.cue(URI + "/other")
        assert listening.cues == [URI + "/other"]
    assert [listening.cues for listening in watching] == [[URI]] * 3
    await client.close()


async def test_a_read_after_a_cue_returns_the_new_contents_on_every_replica(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    client = Modern(fleet.url, tenant, http)
    listening = await client.listen([URI], url=fleet[0].url)
    for number in range(1, 21):
        await publisher.publish(URI, str(number))
        await listening.cue(URI, number)
        for replica in fleet.replicas:
            reader = Modern(replica.url, tenant, http)
            assert (await reader.read(URI))[0]["text"] == str(number)
    await client.close()


async def test_a_subscribe_on_one_replica_is_told_on_the_stream_of_another(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    a, b, c = (replica.url for replica in fleet.replicas)
    async with Handshake(a, tenant, http) as client:
        stream = await client.get_stream(url=b)
        client.url = c
        await client.subscribe(URI)
        await publisher.publish(URI, "one")
        await stream.cue(URI)
        await client.unsubscribe(URI)
        await publisher.publish(URI, "two")
        await client.subscribe(URI + "/barrier")
        await publisher.publish(URI + "/barrier", "three")
        await stream.cue(URI + "/barrier")
        assert stream.cues == [URI, URI + "/barrier"]


async def test_a_subscribe_before_the_stream_is_told_once_the_stream_opens(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Handshake(fleet.url, tenant, http) as client:
        await client.subscribe(URI)
        await publisher.publish(URI, "one")
        stream = await client.get_stream()
        await stream.cue(URI)


async def test_a_stream_may_move_and_what_came_between_is_told(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Handshake(fleet.url, tenant, http) as client:
        await client.subscribe(URI)
        last: str | None = None
        for number in range(6):
            stream = await client.get_stream(last, url=fleet[number % 3].url)
            await stream.cue(URI) if number else None
            await publisher.publish(URI, f"told {number}")
            await stream.cue(URI, 2 if number else 1)
            last = stream.last_id
            await stream.close()
            await publisher.publish(URI, f"missed {number}")


async def test_what_was_told_before_the_cut_is_not_told_again(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Handshake(fleet.url, tenant, http) as client:
        for name in ("a", "b"):
            await client.subscribe(f"docs://{name}")
        stream = await client.get_stream(url=fleet[0].url)
        await publisher.publish("docs://a", "1")
        await stream.cue("docs://a")
        last = stream.last_id
        assert last is not None
        await stream.close()
        await publisher.publish("docs://b", "1")
        again = await client.get_stream(last, url=fleet[1].url)
        await again.cue("docs://b")
        assert again.cues == ["docs://b"]


async def test_the_newest_stream_of_a_session_delivers_and_the_older_one_stays_open(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Handshake(fleet.url, tenant, http) as client:
        await client.subscribe(URI)
        older = await client.get_stream(url=fleet[0].url)
        newest = await client.get_stream(url=fleet[1].url)
        for number in range(1, 6):
            await publisher.publish(URI, str(number))
            await newest.cue(URI, number)
        assert older.cues == []
        assert older.ended is None


async def test_when_the_newest_stream_ends_the_older_one_takes_over(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Handshake(fleet.url, tenant, http) as client:
        await client.subscribe(URI)
        older = await client.get_stream(url=fleet[0].url)
        newest = await client.get_stream(url=fleet[1].url)
        await publisher.publish(URI, "1")
        await newest.cue(URI)
        await newest.close()
        await publisher.publish(URI, "2")
        await older.cue(URI)


async def test_deleting_a_session_ends_its_stream_everywhere_and_it_is_gone(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    a, b, c = (replica.url for replica in fleet.replicas)
    async with Handshake(a, tenant, http) as client:
        await client.subscribe(URI)
        stream = await client.get_stream(url=a)
        client.url = b
        assert await client.delete() in {200, 204}
        assert await stream.end() == "clean"
        client.url = c
        with pytest.raises(RpcError) as caught:
            await client.ask("ping")
        assert caught.value.status == 404


async def test_listing_pages_through_everything_on_alternating_replicas(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    uris = [f"docs://{i:04}" for i in range(250)]
    for start in range(0, len(uris), 50):
        await asyncio.gather(*(publisher.publish(uri, "x", name=uri) for uri in uris[start : start + 50]))
    async with Handshake(fleet.url, tenant, http) as session:
        for client in (session, Modern(fleet.url, tenant, http)):
            assert await client.list() == uris


async def test_a_burst_of_new_resources_is_told_as_few_list_changes(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    modern = Modern(fleet.url, tenant, http)
    listening = await modern.listen(wants_list=True)
    async with Handshake(fleet.url, tenant, http) as session:
        stream = await session.get_stream()
        for number in range(100):
            await publisher.publish(f"docs://{number}", "x", name="x")
        await publisher.publish("docs://last", "x", name="x")

        async def is_told(told: object) -> bool:
            return "docs://last" in await modern.list() and bool(told)

        await until(lambda: is_told(listening.list_changes), "a list change on the listen stream")
        await until(lambda: is_told(stream.list_changes), "a list change on the session's stream")
        await stays(
            lambda: listening.list_changes <= 4 and stream.list_changes <= 4, "at most one a second", 1.5
        )
        assert listening.list_changes >= 2, "the change after the first was never told"
        await modern.close()


async def test_a_thousand_changes_of_one_resource_are_few_cues_and_the_last_is_read(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    client = Modern(fleet.url, tenant, http)
    listening = await client.listen([URI])
    for number in range(300):
        await publisher.publish(URI, str(number))
    await listening.cue(URI)
    assert len(listening.cues) <= 300
    assert (await client.read(URI))[0]["text"] == "299"
    await client.close()


async def test_a_removed_resource_is_cued_and_then_not_found_in_the_words_of_each_era(
    fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient
) -> None:
    await publisher.publish(URI, "x", name="x")
    modern = Modern(fleet.url, tenant, http)
    listening = await modern.listen([URI])
    async with Handshake(fleet.url, tenant, http) as session:
        await session.subscribe(URI)
        stream = await session.get_stream()
        await publisher.remove(URI)
        await listening.cue(URI)
        await stream.cue(URI)
        for client, code in ((modern, -32602), (session, -32002)):
            with pytest.raises(RpcError) as caught:
                await client.read(URI)
            assert caught.value.code == code
            assert caught.value.data == {"uri": URI}
        await modern.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("PUT", "/v1/resource", 404), ("PATCH", "/v1/resources", 405)],
)
async def test_a_path_or_method_that_is_not_there_says_what_is(
    fleet: Fleet, http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    """A newcomer got {"detail": "Not Found"}, in another shape than every other refusal, and no hint."""
    answer = await http.request(method, fleet.url.removesuffix("/mcp") + path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["reason"] == "no_such_route"
    assert "/mcp" in error["message"]
    assert "/openapi.json" in error["message"]
