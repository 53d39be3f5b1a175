"""Tenants are walls: what is another's answers exactly like what does not exist (promise 7)."""

import secrets
from dataclasses import dataclass

import httpx
import pytest

from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.replica import Fleet
from workers import Publisher

URI = "docs://plan"


@dataclass
class Two:
    """Two tenants of one fleet. The first publishes, the second looks."""

    fleet: Fleet
    publisher: Publisher
    http: httpx.AsyncClient
    theirs: str
    ours: str

    def modern(self, tenant: str) -> Modern:
        return Modern(self.fleet.url, tenant, self.http)

    async def session(self, tenant: str) -> Handshake:
        client = Handshake(self.fleet.url, tenant, self.http)
        await client.initialize()
        return client


@pytest.fixture
async def two(fleet: Fleet, publisher: Publisher, tenant: str, http: httpx.AsyncClient) -> Two:
    await publisher.publish(URI, "their plan", name="plan")
    return Two(fleet, publisher, http, tenant, f"other-{secrets.token_hex(4)}")


def _as_unknown(error: RpcError, uri: str) -> tuple[int, int, str, object]:
    """Return what an error tells, without the URI that was asked for."""
    return error.status, error.code, error.message.replace(uri, "…"), error.data == {"uri": uri}


async def test_what_is_theirs_reads_like_what_is_not_there(two: Two) -> None:
    for client in (two.modern(two.ours), await two.session(two.ours)):
        told: list[object] = []
        for uri in (URI, "docs://gone"):
            with pytest.raises(RpcError) as caught:
                await client.read(uri)
            told.append(_as_unknown(caught.value, uri))
        assert told[0] == told[1]
        assert await client.list() == []


async def test_subscribing_to_what_is_theirs_is_accepted_like_anything_and_stays_silent(two: Two) -> None:
    modern, session = two.modern(two.ours), await two.session(two.ours)
    listening = await modern.listen([URI, "docs://gone", "docs://barrier"], wants_list=True)
    for uri in (URI, "docs://gone", "docs://barrier"):
        await session.subscribe(uri)
    stream = await session.get_stream()
    await two.publisher.publish(URI, "their next plan", name="plan")
    await two.publisher.publish("docs://new", "x", name="new")
    await two.publisher.remove(URI)
    async with Publisher(two.fleet.redis_url, tenant=two.ours, prefix=two.fleet.prefix) as publisher:
        await publisher.publish("docs://barrier", "ours", name="barrier")
    # Behind theirs in the same log: what did not come before it will not come.
    await listening.cue("docs://barrier")
    await stream.cue("docs://barrier")
    assert listening.cues == stream.cues == ["docs://barrier"]


async def test_their_session_is_unknown_to_everybody_else(two: Two) -> None:
    """Each method of HTTP, on each replica, tells of it what it tells of a session that never was."""
    theirs = await two.session(two.theirs)
    answers: list[set[tuple[int, str]]] = []
    for session in (theirs.session, "A" * 43):
        told: set[tuple[int, str]] = set()
        for _ in two.fleet.replicas:
            client = Handshake(two.fleet.url, two.ours, two.http)
            client.session = session
            with pytest.raises(RpcError) as posted:
                await client.ask("ping")
            with pytest.raises(RpcError) as got:
                await client.get_stream()
            told |= {(posted.value.status, posted.value.message), (got.value.status, got.value.message)}
            told.add((await client.delete(), "DELETE"))
        answers.append(told)
    assert answers[0] == answers[1]
    assert {status for status, _ in answers[0]} == {404}
    assert await theirs.ask("ping") == {}


async def test_an_event_id_of_theirs_opens_nothing_of_theirs(two: Two) -> None:
    theirs, ours = await two.session(two.theirs), await two.session(two.ours)
    await theirs.subscribe(URI)
    await ours.subscribe("docs://ours")
    their_stream = await theirs.get_stream()
    await two.publisher.publish(URI, "told", name="plan")
    await their_stream.cue(URI)
    await two.publisher.publish(URI, "missed", name="plan")
    async with Publisher(two.fleet.redis_url, tenant=two.ours, prefix=two.fleet.prefix) as publisher:
        await publisher.publish("docs://ours", "ours")
    stream = await ours.get_stream(their_stream.last_id)
    await stream.cue("docs://ours")
    assert stream.cues == ["docs://ours"]
    assert URI.encode() not in bytes(stream.raw)


async def test_a_list_cursor_of_theirs_is_no_cursor_of_ours(two: Two) -> None:
    for number in range(110):
        await two.publisher.publish(f"docs://{number:03}", "x", name="x")
    page = await two.modern(two.theirs).ask("resources/list")
    cursor = page["nextCursor"]
    for client in (two.modern(two.ours), await two.session(two.ours)):
        with pytest.raises(RpcError) as caught:
            await client.ask("resources/list", cursor=cursor)
        assert caught.value.code == -32602


async def test_a_tenants_name_that_looks_like_a_key_or_a_pattern_is_only_a_name(two: Two) -> None:
    names = [f"{two.theirs}:x", f"{two.theirs}%3Ax", "*", "{0.0}", f"{two.theirs} ", two.theirs.upper()]
    for number, name in enumerate(names):
        async with Publisher(two.fleet.redis_url, tenant=name, prefix=two.fleet.prefix) as publisher:
            assert [listed async for listed in publisher.list()] == []
            await publisher.publish(URI, f"of {number}", name="plan")
    for number, name in enumerate(names):
        async with Publisher(two.fleet.redis_url, tenant=name, prefix=two.fleet.prefix) as publisher:
            stored = await publisher.read(URI)
            assert stored is not None
            assert f"of {number}".encode() in stored.contents
    assert (await two.modern(two.theirs).read(URI))[0]["text"] == "their plan"
