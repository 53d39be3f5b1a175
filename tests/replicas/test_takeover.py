"""Which stream of a session delivers, and what is owed when that changes (design section 3, "Sessions").

Each interleaving here lost a cue when tried in a simpler design.
"""

import asyncio

from broker.store.scripts import script
from tests.replicas.conftest import TENANT, Bench
from tests.support.mcp import Handshake, Modern, Stream
from tests.support.replica import Fleet
from tests.support.wait import until, within

URI = "docs://guide"
SILENT = 6.0
"""Seconds: the 4 s that promise 2 allows after a silent loss, and some for a busy machine."""
LAPSED = 15.0
"""Seconds: a dead replica's heartbeat lapses after 5; then an older stream is taken up."""


async def session_of(bench: Bench, fleet: Fleet, *uris: str) -> Handshake:
    client = Handshake(fleet[0].url, TENANT, bench.http)
    await client.initialize()
    for uri in uris:
        await client.subscribe(uri)
    return client


async def warm(bench: Bench, fleet: Fleet) -> None:
    """Let Redis know all scripts, so that the next call of one is the one that a test holds back."""
    client = await session_of(bench, fleet, "docs://warm")
    stream = await client.get_stream()
    await client.read("docs://warm") if await client.list() else None
    await stream.close()


async def test_a_change_between_a_takeover_and_its_late_reply_is_told(bench: Bench) -> None:
    """The take runs in Redis, its reply is late, and the reader has meanwhile passed a change of the URI."""
    fleet = bench.fleet()
    await warm(bench, fleet)
    client = await session_of(bench, fleet, URI)
    barrier = await Modern(fleet.url, TENANT, bench.http).listen(["docs://barrier"])
    bench.proxy.hold(script("session_take").sha.encode())
    opening = asyncio.create_task(client.get_stream())
    await until(lambda: bench.proxy.held, "the reply held back")
    await bench.publisher.publish(URI, "one")
    await bench.publisher.publish("docs://barrier", "one")
    await barrier.cue("docs://barrier")
    bench.proxy.release()
    stream: Stream = await within(opening, "a stream")
    await stream.cue(URI, seconds=SILENT)


async def test_an_unsubscribe_during_a_late_takeover_is_kept(bench: Bench) -> None:
    fleet = bench.fleet()
    await warm(bench, fleet)
    client = await session_of(bench, fleet, URI, "docs://kept")
    bench.proxy.hold(script("session_take").sha.encode())
    opening = asyncio.create_task(client.get_stream())
    await until(lambda: bench.proxy.held, "the reply held back")
    await client.unsubscribe(URI)
    await client.subscribe("docs://new")
    bench.proxy.release()
    stream: Stream = await within(opening, "a stream")
    await bench.publisher.publish(URI, "one")
    for uri in ("docs://kept", "docs://new"):
        await bench.publisher.publish(uri, "one")
        await stream.cue(uri, seconds=SILENT)
    assert URI not in stream.cues


async def test_a_cut_in_the_middle_of_a_catch_up_loses_nothing(bench: Bench) -> None:
    """While the catch-up is unfinished no id may claim more than was told before the cut."""
    fleet = bench.fleet()
    await warm(bench, fleet)
    uris = [f"docs://{name}" for name in "abcd"]
    client = await session_of(bench, fleet, *uris)
    stream = await client.get_stream()
    await bench.publisher.publish("docs://a", "1")
    await stream.cue("docs://a")
    last = stream.last_id
    await stream.close()
    for uri in ("docs://b", "docs://c"):
        await bench.publisher.publish(uri, "missed")
    bench.proxy.hold(script("revisions").sha.encode())
    stream = await client.get_stream(last)
    await until(lambda: bench.proxy.held, "the catch-up's answer held back")
    await bench.publisher.publish("docs://d", "live")
    await stream.cue("docs://d")
    assert "docs://b" not in stream.cues, "the catch-up was not held back"
    last = _presented(stream, last)
    await stream.close()
    bench.proxy.release()
    again = await client.get_stream(last)
    for uri in ("docs://b", "docs://c"):
        await again.cue(uri, seconds=SILENT)


def _presented(stream: Stream, earlier: str | None) -> str | None:
    """Return the id that a client presents after `stream`: the last one it saw, ever."""
    return stream.last_id or earlier


async def test_a_take_that_arrives_after_its_stream_has_ended_is_given_back(bench: Bench) -> None:
    """The bug: its replica lived, so nobody took the session back, and the open stream stayed silent.

    A client opens its stream on a replica whose way to Redis swallows the take, goes away, and opens another
    one elsewhere. Then the network lets the take through.
    """
    fleet = bench.new_fleet(bench.redis.url, 0)
    fleet.add(1, redis_url=bench.proxy.redis_url)
    fleet.add(1, redis_url=bench.redis.url)
    await warm(bench, fleet)
    client = await session_of(bench, fleet, URI)
    fence = bench.fence(client)
    bench.proxy.black_hole(up=True, down=True)
    swallowed = await client.get_stream(url=fleet[0].url)
    await swallowed.close()
    stream = await client.get_stream(url=fleet[1].url)
    bench.proxy.pass_all()
    await until(lambda: bench.fence(client) > fence + 1, "the late take executed", SILENT)
    await bench.publisher.publish(URI, "after")
    await stream.cue(URI, seconds=SILENT)


async def test_an_owner_that_dies_leaves_the_session_to_the_replica_with_an_older_stream(
    bench: Bench,
) -> None:
    fleet = bench.fleet(2)
    client = await session_of(bench, fleet, URI)
    older = await client.get_stream(url=fleet[0].url)
    newest = await client.get_stream(url=fleet[1].url)
    await bench.publisher.publish(URI, "1")
    await newest.cue(URI)
    assert older.cues == []
    await asyncio.to_thread(fleet[1].kill)
    await bench.publisher.publish(URI, "2")
    await older.cue(URI, seconds=LAPSED)


async def test_an_owner_that_hangs_leaves_the_session_too_and_does_not_take_it_back(bench: Bench) -> None:
    """SIGSTOP: when it wakes it finds the newer fence, and one stream delivers, not both."""
    fleet = bench.fleet(2)
    client = await session_of(bench, fleet, URI)
    older = await client.get_stream(url=fleet[0].url)
    newest = await client.get_stream(url=fleet[1].url)
    fleet[1].process.pause()
    try:
        await bench.publisher.publish(URI, "1")
        await older.cue(URI, seconds=LAPSED)
    finally:
        fleet[1].process.resume()
    count = len(older.cues)
    for number in range(3):
        await bench.publisher.publish(URI, f"after {number}")
        await until(
            lambda n=number: older.cues.count(URI) + newest.cues.count(URI) > count + n, "told", SILENT
        )


async def test_a_cut_after_any_frame_owes_all_that_follow(bench: Bench) -> None:
    """U1, U2, U1 in one batch: U1's cue comes first, and its id must not claim that U2 was told.

    (A cursor of "the newest revision written" would: U1 goes out as 12, cut, U2@11 is never told.)
    """
    fleet = bench.fleet()
    uris = ["docs://1", "docs://2", "docs://3"]
    client = await session_of(bench, fleet, *uris)
    stream = await client.get_stream()
    await _until_proving(bench, client, stream)
    bench.proxy.hold(b"XREAD")
    # The first entry ends the read under way; the second one's reply is held back; the rest is one batch.
    await bench.publisher.publish("docs://ends-a-read", "x")
    await until(lambda: bench.proxy.held, "a read held back")
    await bench.publisher.publish("docs://is-held-back", "x")
    for number, uri in enumerate((*uris, *uris[:2])):
        await bench.publisher.publish(uri, str(number))
    before = len(stream.frames)
    bench.proxy.release()
    for uri in uris:
        await stream.cue(uri)
    told = [(frame.params["uri"], frame.id) for frame in stream.frames[before:] if frame.message]
    assert [uri for uri, _ in told] == uris, "not one batch"
    await stream.close()
    for number, (_, last) in enumerate(told):
        assert last is not None, "the ids of a settled stream prove something"
        again = await client.get_stream(last)
        for uri, _ in told[number + 1 :]:
            await again.cue(uri)
        await again.close()


async def _until_proving(bench: Bench, client: Handshake, stream: Stream) -> str:
    """Publish until the stream's ids prove something (nothing is being compared any more); returns the id."""
    await client.subscribe("docs://proving")
    for number in range(100):
        stamp = (await bench.publisher.publish("docs://proving", str(number))).stamp
        assert stamp is not None
        await stream.cue("docs://proving", number + 1)
        if str(stream.last_id).endswith(f".{stamp.epoch}.{stamp.n}"):
            return str(stream.last_id)
        await asyncio.sleep(0.05)
    raise AssertionError(f"no id of {stream!r} ever proved anything")


async def test_an_id_of_another_session_proves_nothing(bench: Bench) -> None:
    """It neither hides what this session is owed, nor shows what the other was told."""
    fleet = bench.fleet()
    other = await session_of(bench, fleet, "docs://theirs")
    theirs = await other.get_stream()
    client = await session_of(bench, fleet, URI)
    await bench.publisher.publish(URI, "1")
    last = await _until_proving(bench, other, theirs)
    stream = await client.get_stream(last)
    await stream.cue(URI)
    assert set(stream.cues) == {URI}
    tag = last.split(".", 1)[0]
    assert all(frame.id is None or not frame.id.startswith(tag) for frame in stream.frames)
    # The same id in its own session hides what was told before it: it is worth something.
    await theirs.close()
    again = await other.get_stream(last)
    await bench.publisher.publish("docs://theirs", "1")
    await again.cue("docs://theirs")
    assert again.cues == ["docs://theirs"]


async def test_an_id_that_nobody_made_is_taken_like_none(bench: Bench) -> None:
    fleet = bench.fleet()
    client = await session_of(bench, fleet, URI)
    await bench.publisher.publish(URI, "1")
    for nonsense in ("x", "a.b.c", "9" * 400, "%00", "0.0.0", "-1"):
        stream = await client.get_stream(nonsense)
        await stream.cue(URI)
        await stream.close()


async def test_a_proof_from_before_a_new_epoch_proves_nothing(bench: Bench) -> None:
    """Redis lost everything but the session, and its clock is behind: lower numbers are newer changes."""
    fleet = bench.fleet()
    client = await session_of(bench, fleet, URI)
    stream = await client.get_stream()
    await _until_proving(bench, client, stream)
    hour = 3_600_000_000
    bench.run("HINCRBY", "HEAD", "n", str(hour))
    await bench.publisher.publish(URI, "1")
    await stream.cue(URI, seconds=SILENT)
    before = (await bench.publisher.publish(URI, "2")).stamp
    last = await _until_proving(bench, client, stream)
    await stream.close()
    bench.run("DEL", "HEAD", "LOG")
    after = (await bench.publisher.publish(URI, "3")).stamp
    assert before is not None
    assert after is not None
    assert after.n < before.n
    again = await client.get_stream(last)
    await again.cue(URI, seconds=SILENT)


async def test_a_subscription_that_a_rollback_took_is_written_back(bench: Bench) -> None:
    """The delivering replica remembers it; once Redis has it again, any other replica delivers it, too."""
    fleet = bench.fleet(2)
    client = await session_of(bench, fleet, "docs://early")
    stream = await client.get_stream(url=fleet[0].url)
    snapshot = bench.snapshot()
    await client.subscribe(URI)
    await bench.publisher.publish(URI, "lost")
    await stream.cue(URI)
    snapshot.restore()
    # The contents went back as well, which is told: from then on the fork is known.
    await stream.cue(URI, 2, SILENT)
    await bench.publisher.publish(URI, "kept")
    await stream.cue(URI, 3, SILENT)
    await stream.close()
    moved = await client.get_stream(url=fleet[1].url)
    await bench.publisher.publish(URI, "moved")
    await moved.cue(URI, seconds=SILENT)


async def test_a_session_that_a_rollback_took_ends_its_stream_cleanly(bench: Bench) -> None:
    fleet = bench.fleet()
    await bench.publisher.publish(URI, "before")
    snapshot = bench.snapshot()
    client = await session_of(bench, fleet, URI)
    stream = await client.get_stream()
    snapshot.restore()
    assert await stream.end(SILENT) == "clean"
