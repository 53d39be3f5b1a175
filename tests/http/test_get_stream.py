"""The GET stream of a session: what is on it when it opens, which of several delivers, how it resumes.

A low-water id proves what the client was told; everything else is caught up from revisions, on any replica
(design sections 3 and 5).
"""

import asyncio
import re

import httpx
import pytest

from tests.support.mcp import Handshake, Stream
from tests.support.replica import Fleet
from tests.support.wait import until
from workers import Publisher

A, B, C = "docs:a", "docs:b", "docs:c"
MARK = "docs:mark"
"""Changed last; once it is cued, everything before it has been told or never will be."""


@pytest.fixture
def client(fleet: Fleet, tenant: str, http: httpx.AsyncClient) -> Handshake:
    return Handshake(fleet.url, tenant, http)


async def settled(stream: Stream, publisher: Publisher, client: Handshake) -> list[str]:
    """Return every cue that the stream got before one of a mark, without those of the mark."""
    count = stream.cues.count(MARK)
    await client.subscribe(MARK)
    await publisher.publish(MARK, f"{client.session}{len(stream.frames)}")
    await stream.cue(MARK, count + 1)
    return [uri for uri in stream.cues if uri != MARK]


# --- Opening ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("stream.opening")
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_the_first_byte_is_a_comment_and_only_the_newest_revision_gets_a_priming_event(
    version: str, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Handshake(fleet.url, tenant, http, version) as client:
        stream = await client.get_stream()
        await until(lambda: len(stream.frames) > 1 or b"retry" in stream.raw, "the first frames")
        assert stream.raw.startswith(b":\n")
        if version == "2025-11-25":
            assert re.fullmatch(rb":\nid: \S+\nretry: \d+\ndata:\n\n", bytes(stream.raw))
        else:
            assert re.fullmatch(rb":\nretry: \d+\n", bytes(stream.raw)), "older clients parse empty data"


@pytest.mark.requirement("stream.cues")
async def test_a_stream_holds_cues_only_and_no_answers(client: Handshake, publisher: Publisher) -> None:
    async with client:
        await client.subscribe(A)
        stream = await client.get_stream()
        for number in range(10):
            await client.ask("ping")
            await client.list()
            await publisher.publish(A, str(number))
            await stream.cue(A, number + 1)
        for message in stream.messages:
            assert set(message) <= {"jsonrpc", "method", "params"}


@pytest.mark.requirement("stream.cues", "resource.uri")
async def test_the_cue_names_the_uri_as_the_client_wrote_it(client: Handshake, publisher: Publisher) -> None:
    odd = "demo://h/%7Ex?q=1#f"
    async with client:
        await client.subscribe(odd)
        stream = await client.get_stream()
        await publisher.publish(odd, "1")
        await publisher.publish("demo://h/~x?q=1#f", "1")
        assert await settled(stream, publisher, client) == [odd]


@pytest.mark.requirement("stream.owed")
async def test_what_changed_before_the_first_stream_is_told_when_it_opens(
    client: Handshake, publisher: Publisher
) -> None:
    await publisher.publish(A, "1")
    await publisher.publish(B, "1")
    async with client:
        for uri in (A, B, C):
            await client.subscribe(uri)
        await publisher.publish(A, "2")
        await publisher.publish(C, "1")
        stream = await client.get_stream()
        assert sorted(await settled(stream, publisher, client)) == [A, C]


@pytest.mark.requirement("stream.owed")
async def test_what_changed_while_no_stream_was_open_is_told_when_one_opens(
    client: Handshake, publisher: Publisher
) -> None:
    async with client:
        await client.subscribe(A)
        await client.subscribe(B)
        first = await client.get_stream()
        assert await settled(first, publisher, client) == []
        await first.close()
        await publisher.publish(A, "1")
        second = await client.get_stream()
        assert await settled(second, publisher, client) == [A]


@pytest.mark.requirement("stream.owed", "list.changed")
async def test_a_list_that_changed_while_no_stream_was_open_is_told_when_one_opens(
    client: Handshake, publisher: Publisher
) -> None:
    async with client:
        await client.list()
        await publisher.publish(A, "1")
        stream = await client.get_stream()
        await until(lambda: stream.list_changes, "a list change")


@pytest.mark.requirement("stream.unsubscribe")
async def test_after_unsubscribing_there_is_silence_and_after_subscribing_again_there_is_none(
    client: Handshake, publisher: Publisher
) -> None:
    async with client:
        await client.subscribe(A)
        stream = await client.get_stream()
        await client.unsubscribe(A)
        for number in range(20):
            await publisher.publish(A, str(number))
        assert await settled(stream, publisher, client) == []
        await client.subscribe(A)
        await publisher.publish(A, "again")
        await stream.cue(A)


# --- Several streams --------------------------------------------------------------------------------------


@pytest.mark.requirement("stream.newest")
async def test_the_newest_stream_delivers_and_each_cue_is_on_exactly_one(
    client: Handshake, publisher: Publisher, fleet: Fleet
) -> None:
    async with client:
        await client.subscribe(A)
        older = await client.get_stream(url=fleet[0].url)
        newer = await client.get_stream(url=fleet[1].url)
        for number in range(20):
            await publisher.publish(A, str(number))
            await newer.cue(A, number + 1)
        assert newer.cues == [A] * 20
        assert older.cues == []
        assert older.ended is None


@pytest.mark.requirement("stream.newest")
@pytest.mark.parametrize("older", [0, 1], ids=["same replica", "another replica"])
async def test_when_the_newest_ends_the_older_one_delivers_again(
    older: int, client: Handshake, publisher: Publisher, fleet: Fleet
) -> None:
    async with client:
        await client.subscribe(A)
        first = await client.get_stream(url=fleet[older].url)
        second = await client.get_stream(url=fleet[0].url)
        await publisher.publish(A, "1")
        await second.cue(A)
        await second.close()
        told = len(first.cues)
        await publisher.publish(A, "2")
        await first.cue(A, told + 1)


@pytest.mark.requirement("stream.newest")
async def test_streams_that_are_opened_and_left_at_once_always_leave_one_that_delivers(
    client: Handshake, publisher: Publisher, fleet: Fleet
) -> None:
    """Clients behind a half-dead connection open anew at once, on whichever replica (field report 38)."""
    async with client:
        await client.subscribe(A)
        for turn in range(20):
            stream = await client.get_stream(url=fleet[turn % 2].url)
            assert stream.response.status_code == 200
            await until(lambda stream=stream: stream.raw, "a first byte", 2)
            if turn < 19:
                await stream.close()
        await publisher.publish(A, "last")
        await client.streams[-1].cue(A)
        assert await settled(client.streams[-1], publisher, client) == [A]


@pytest.mark.requirement("stream.newest")
async def test_two_streams_that_both_come_back_do_not_fight(client: Handshake, publisher: Publisher) -> None:
    """An older stream stays open in silence: were it ended, its client would open anew and end the other."""
    async with client:
        await client.subscribe(A)
        streams = [await client.get_stream() for _ in range(3)]
        await publisher.publish(A, "1")
        await streams[-1].cue(A)
        assert [stream.ended for stream in streams] == [None] * 3
        one_more = await client.get_stream()
        await publisher.publish(A, "2")
        await one_more.cue(A)


# --- Resuming ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("stream.resume")
async def test_a_resume_with_the_last_id_tells_what_was_missed_and_nothing_twice(
    client: Handshake, publisher: Publisher, fleet: Fleet
) -> None:
    """The list must not change meanwhile: its cue waits for up to a second, and no id goes beyond it."""
    for uri in (A, B, C):
        await publisher.publish(uri, "0")
    async with client:
        for uri in (A, B, C):
            await client.subscribe(uri)
        first = await client.get_stream(url=fleet[0].url)
        for uri in (A, B):
            await publisher.publish(uri, "1")
            await first.cue(uri)
        await until(lambda: first.last_id, "an id")
        await first.close()
        await publisher.publish(A, "2")
        second = await client.get_stream(first.last_id, url=fleet[1].url)
        assert await settled(second, publisher, client) == [A]


@pytest.mark.requirement("stream.resume")
async def test_a_resume_without_missing_anything_tells_nothing(
    client: Handshake, publisher: Publisher
) -> None:
    async with client:
        await client.subscribe(A)
        first = await client.get_stream()
        await publisher.publish(A, "1")
        await first.cue(A)
        await first.close()
        second = await client.get_stream(first.last_id)
        assert await settled(second, publisher, client) == []


@pytest.mark.requirement("stream.resume")
async def test_without_its_id_a_client_is_told_again_what_it_never_proved_to_have_read(
    client: Handshake, publisher: Publisher
) -> None:
    async with client:
        await client.subscribe(A)
        first = await client.get_stream()
        await publisher.publish(A, "1")
        await first.cue(A)
        await first.close()
        second = await client.get_stream()
        assert await settled(second, publisher, client) == [A]
        await client.read(A)
        await second.close()
        third = await client.get_stream()
        assert await settled(third, publisher, client) == []


@pytest.mark.requirement("stream.strange-id")
@pytest.mark.parametrize(
    "identity",
    [
        "",
        "garbage",
        "0",
        "-1",
        "a.b.c",
        "x" * 5000,
        "{tag}.{epoch}.999999999999999999",
        "{tag}.other.1",
    ],
)
async def test_an_id_that_says_nothing_of_use_opens_a_live_stream_all_the_same(
    identity: str, client: Handshake, publisher: Publisher
) -> None:
    """An end at once would make the client come back with the same id, for ever (field report 41)."""
    async with client:
        await client.subscribe(A)
        first = await client.get_stream()
        await publisher.publish(A, "1")
        await first.cue(A)
        await first.close()
        tag, epoch, _ = (first.last_id or "").split(".")
        stream = await client.get_stream(identity.replace("{tag}", tag).replace("{epoch}", epoch))
        if "9999" not in identity:
            await stream.cue(A)
        await publisher.publish(A, "2")
        await until(lambda: A in stream.cues, "the next change")
        assert stream.ended is None


@pytest.mark.requirement("stream.foreign-id")
async def test_an_id_of_another_session_or_tenant_proves_nothing_and_brings_nothing_of_theirs(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient, publisher: Publisher
) -> None:
    async with (
        Handshake(fleet.url, tenant, http) as one,
        Handshake(fleet.url, tenant, http) as two,
        Handshake(fleet.url, f"{tenant}x", http) as foreign,
    ):
        await one.subscribe(A)
        await two.subscribe(B)
        await foreign.subscribe(A)
        stream = await one.get_stream()
        await publisher.publish(A, "1")
        await stream.cue(A)
        await publisher.publish(B, "1")
        of_two = await two.get_stream(stream.last_id)
        assert await settled(of_two, publisher, two) == [B]
        of_foreign = await foreign.get_stream(stream.last_id)
        async with Publisher(fleet.redis_url, tenant=f"{tenant}x", prefix=fleet.prefix) as theirs:
            assert await settled(of_foreign, theirs, foreign) == []


@pytest.mark.requirement("stream.resume")
async def test_ids_of_one_session_never_go_back(
    client: Handshake, publisher: Publisher, fleet: Fleet
) -> None:
    async with client:
        await client.subscribe(A)
        last = 0
        identity: str | None = None
        for turn in range(6):
            stream = await client.get_stream(identity, url=fleet[turn % 2].url)
            await publisher.publish(A, str(turn))
            await stream.cue(A)
            identity = stream.last_id
            numbers = [int(frame.id.split(".")[2]) for frame in stream.frames if frame.id]
            assert numbers == sorted(numbers)
            assert numbers[0] >= last
            last = numbers[-1]
            await stream.close()


@pytest.mark.requirement("stream.resume")
@pytest.mark.parametrize("resumes", [True, False], ids=["with its id", "without"])
async def test_a_client_that_comes_back_all_the_time_is_told_of_the_last_change(
    resumes: bool,  # noqa: FBT001 - a column of the matrix
    client: Handshake,
    publisher: Publisher,
) -> None:
    """A change between the end of one stream and the start of the next is not lost (field report 58)."""
    async with client:
        await client.subscribe(A)
        is_over = asyncio.Event()
        last = ""

        async def publish() -> None:
            nonlocal last
            for number in range(150):
                last = str(number)
                await publisher.publish(A, last)
                await asyncio.sleep(0.004)
            is_over.set()

        publishing = asyncio.create_task(publish())
        identity: str | None = None
        while not is_over.is_set():
            stream = await client.get_stream(identity if resumes else None)
            await asyncio.sleep(0.03)
            identity = stream.last_id or identity
            await stream.close()
        await publishing
        stream = await client.get_stream(identity if resumes else None)
        seen = await client.read(A)
        told = await settled(stream, publisher, client)
        missed = not told and not any(A in each.cues for each in client.streams)
        assert not missed
        assert seen[0]["text"] == last


@pytest.mark.requirement("stream.resume")
async def test_a_client_that_missed_more_than_the_log_keeps_is_told_of_each_change_it_can_see(
    client: Handshake, publisher: Publisher
) -> None:
    """Not by replay: the revisions say what changed, however long ago (field report 59)."""
    async with client:
        for uri in (A, B, C):
            await client.subscribe(uri)
        first = await client.get_stream()
        await publisher.publish(A, "1")
        await first.cue(A)
        await first.close()
        await publisher.publish(B, "1")
        await publisher.publish_many([(f"docs:other/{number}", "x") for number in range(500)])
        second = await client.get_stream(first.last_id)
        assert await settled(second, publisher, client) == [B]
