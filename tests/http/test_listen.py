"""subscriptions/listen over HTTP: acknowledgement first, exactly the filter, how it is refused and ends."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.http.asking import Asking, error_of, modern_headers, modern_request
from tests.support.mcp import ACKNOWLEDGED, BOTH, SUBSCRIPTION, UPDATED, Modern, Stream
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.sse import Frame, Reader
from tests.support.wait import until
from workers import Publisher

A, B, V = "docs:a", "docs:b", "docs:v"
LISTEN = modern_headers("subscriptions/listen")


@pytest.fixture
def client(fleet: Fleet, tenant: str, http: httpx.AsyncClient) -> Modern:
    return Modern(fleet.url, tenant, http)


async def open_listen(ask: Asking, identity: Any, wanted: Any) -> Stream:
    """Open a listen whose id and filter the test writes itself."""
    message = modern_request("subscriptions/listen", identity, notifications=wanted)
    headers = {"accept": BOTH, "content-type": "application/json", "broker-tenant": ask.tenant, **LISTEN}
    request = ask.http.build_request("POST", ask.url, content=json.dumps(message), headers=headers)
    answer = await ask.http.send(request, stream=True)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    return Stream(answer, f"listen {identity!r}")


@pytest.mark.requirement("listen.tag")
@pytest.mark.parametrize("identity", [0, 1, -7, 1.5, 2**53 - 1, "", "0", "listen:0", "\u00e9\u2028"])
async def test_every_frame_is_tagged_with_the_listens_id_of_the_same_type(
    identity: Any, ask: Asking, publisher: Publisher
) -> None:
    async with await open_listen(ask, identity, {"resourceSubscriptions": [A]}) as stream:
        await until(lambda: stream.messages, "the acknowledgement")
        await publisher.publish(A, "1")
        await stream.cue(A)
        tags = [frame.params["_meta"][SUBSCRIPTION] for frame in stream.frames if frame.message]
        assert tags == [identity] * 2
        assert {type(tag) for tag in tags} == {type(identity)}
        assert stream.last_id is None, "an id would make TypeScript clients try to resume"


@pytest.mark.requirement("listen.acknowledgement")
async def test_the_acknowledgement_comes_first_and_well_under_a_tenth_of_a_second(
    ask: Asking, publisher: Publisher
) -> None:
    took: list[float] = []
    for turn in range(10):
        await publisher.publish(A, str(turn))
        began = time.perf_counter()
        async with await open_listen(ask, turn, {"resourceSubscriptions": [A]}) as stream:
            await until(lambda stream=stream: stream.messages, "the acknowledgement")
            took.append(time.perf_counter() - began)
            assert stream.messages[0]["method"] == ACKNOWLEDGED
    assert sorted(took)[5] < 0.1, took


@pytest.mark.requirement("listen.opening")
async def test_a_change_during_the_opening_is_told_after_the_acknowledgement(
    client: Modern, publisher: Publisher
) -> None:
    """The watcher is in place before the revision is read (field report 16)."""
    is_over = asyncio.Event()
    count = 0

    async def publish() -> None:
        nonlocal count
        while not is_over.is_set():
            count += 1
            await publisher.publish(A, str(count))

    publishing = asyncio.create_task(publish())
    for _ in range(40):
        async with await client.listen([A]) as listening:
            await listening.cue(A)
    is_over.set()
    await publishing
    assert count > 40


@pytest.mark.requirement("listen.acknowledgement")
@pytest.mark.parametrize(
    ("wanted", "honoured"),
    [
        ({"resourceSubscriptions": [A, B, A]}, {"resourceSubscriptions": [A, B]}),
        ({"resourcesListChanged": True}, {"resourcesListChanged": True}),
        (
            {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
            {"resourcesListChanged": True},
        ),
        ({"resourceSubscriptions": [A], "made/up": {"x": 1}}, {"resourceSubscriptions": [A]}),
        ({"resourceSubscriptions": [A], "resourcesListChanged": False}, {"resourceSubscriptions": [A]}),
    ],
)
async def test_the_acknowledgement_names_what_of_the_filter_is_honoured(
    wanted: dict[str, Any], honoured: dict[str, Any], ask: Asking
) -> None:
    async with await open_listen(ask, 1, wanted) as stream:
        await until(lambda: stream.messages, "the acknowledgement")
        assert stream.messages[0]["params"]["notifications"] == honoured
        assert stream.ended is None


@pytest.mark.requirement("listen.nothing")
@pytest.mark.parametrize(
    "wanted", [{}, {"toolsListChanged": True}, {"promptsListChanged": True}, {"resourceSubscriptions": []}]
)
async def test_a_filter_of_which_nothing_can_be_honoured_is_acknowledged_and_ended(
    wanted: dict[str, Any], ask: Asking
) -> None:
    """Else a socket and a keep-alive would be kept for nothing (decision 8)."""
    async with await open_listen(ask, "none", wanted) as stream:
        assert await stream.end(2) == "clean"
        acknowledged, result = stream.messages
        assert acknowledged["params"]["notifications"] == {}
        assert result["id"] == "none"
        assert result["result"]["resultType"] == "complete"
        assert result["result"]["_meta"][SUBSCRIPTION] == "none"


@pytest.mark.requirement("listen.filter")
async def test_nothing_outside_the_filter_is_ever_on_the_stream(client: Modern, publisher: Publisher) -> None:
    async with await client.listen([A]) as listening:
        for number in range(30):
            await publisher.publish(V, str(number))
        await publisher.publish(A, "1")
        await listening.cue(A)
        assert listening.cues == [A]
        assert listening.list_changes == 0
        assert V.encode() not in bytes(listening.stream.raw)


@pytest.mark.requirement("listen.filter")
async def test_the_same_uri_twice_is_told_once(ask: Asking, publisher: Publisher) -> None:
    async with await open_listen(ask, 1, {"resourceSubscriptions": [A, A]}) as stream:
        await until(lambda: stream.messages, "the acknowledgement")
        for number in range(5):
            await publisher.publish(A, str(number))
            await stream.cue(A, number + 1)
        assert stream.cues == [A] * 5


@pytest.mark.requirement("listen.refusal")
@pytest.mark.parametrize(
    "wanted",
    [
        None, [], "all", {"resourceSubscriptions": "docs:a"}, {"resourceSubscriptions": [5]},
        {"resourceSubscriptions": ["no uri"]}, {"resourceSubscriptions": [A, ""]},
        {"resourcesListChanged": "yes"}, {"resourceSubscriptions": ["docs:" + "x" * 640]},
    ],
)  # fmt: skip
async def test_a_filter_of_another_form_is_refused_before_the_acknowledgement(
    wanted: Any, ask: Asking
) -> None:
    answer = await ask.post(modern_request("subscriptions/listen", "L", notifications=wanted), LISTEN)
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["id"]) == (400, -32602, "L")


@pytest.mark.requirement("listen.refusal")
async def test_more_uris_than_allowed_are_refused_with_a_status_that_asks_to_wait(
    new_fleet: Callable[..., Fleet], redis_server: RedisServer, http: httpx.AsyncClient
) -> None:
    """Never method-not-found: clients would believe that there is no listening (field report 22)."""
    fleet = await asyncio.to_thread(new_fleet, redis_server.url, 1, BROKER_LISTEN__MAX_URIS="3")
    ask = Asking(http, fleet.url, "default")
    uris = [f"docs:{number}" for number in range(4)]
    message = modern_request("subscriptions/listen", 9, notifications={"resourceSubscriptions": uris})
    answer = await ask.post(message, LISTEN)
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["id"]) == (429, -31429, 9)
    assert answer.headers["retry-after"] == "1"
    async with await open_listen(ask, 1, {"resourceSubscriptions": uris[:3]}) as stream:
        await until(lambda: stream.messages, "the acknowledgement")


@pytest.mark.requirement("listen.end")
async def test_a_replica_that_leaves_tells_everything_then_the_result_and_ends(
    new_fleet: Callable[..., Fleet], redis_server: RedisServer, http: httpx.AsyncClient, prefix: str
) -> None:
    """A client that sees the result listens again, on another replica (field reports 14, 17, 20)."""
    fleet = await asyncio.to_thread(new_fleet, redis_server.url, 2)
    client = Modern(fleet[0].url, "default", http)
    listening = await client.listen([A])
    leaving = asyncio.to_thread(fleet[0].leave)
    async with Publisher(redis_server.url, prefix=prefix) as publisher:
        for number in range(20):
            await publisher.publish(V, str(number))
        await publisher.publish(A, "1")
        await listening.cue(A)
        left = asyncio.create_task(leaving)
        assert await listening.end() == "clean"
        assert listening.cues == [A]
        assert listening.result is not None
        assert listening.stream.messages[-1]["id"] == listening.id
        assert listening.result["_meta"][SUBSCRIPTION] == listening.id
        assert V.encode() not in bytes(listening.stream.raw)
        elsewhere = await client.listen([A], url=fleet[1].url)
        await elsewhere.close()
        assert await left == 0


# --- Slow readers -----------------------------------------------------------------------------------------


@pytest.mark.requirement("listen.slow")
@pytest.mark.parametrize("replica", [0, 1], ids=["fast", "portable"])
async def test_a_reader_that_pauses_is_told_of_the_last_change_of_everything(
    replica: int, fleet: Fleet, tenant: str, publisher: Publisher
) -> None:
    """Its cues coalesce meanwhile: never more than one a URI waits, and none is dropped (field report 23).

    Ten URIs with long names fill the connection's buffers within some thousand cues; from then on the
    replica has to keep what it cannot write.
    """
    uris = [f"docs:{'x' * 600}{number}" for number in range(10)]
    message = modern_request("subscriptions/listen", 1, notifications={"resourceSubscriptions": uris})
    body = json.dumps(message).encode()
    heads = {"Host": "localhost", "Accept": BOTH, "Content-Type": "application/json",
             "Broker-Tenant": tenant, "Content-Length": str(len(body)), **LISTEN}  # fmt: skip
    start = "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    reader, writer = await asyncio.open_connection(*fleet[replica].address, limit=1 << 14)
    writer.write(start.encode() + b"\r\n" + body)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    rounds = 800
    for number in range(rounds):
        await publisher.publish_many([(uri, f"{number}") for uri in uris])
    frames: list[Frame] = []
    parser = Reader()
    last = [f"{uri}" for uri in uris]

    async def read() -> None:
        while True:
            size = int((await reader.readline()).strip(), 16)
            frames.extend(parser.feed(await reader.readexactly(size)))
            await reader.readexactly(2)

    reading = asyncio.create_task(read())

    def cued() -> list[str]:
        return [str(frame.params["uri"]) for frame in frames if frame.method == UPDATED]

    await until(lambda: set(cued()) == set(uris), "each URI once", 20)
    told = len(cued())
    await publisher.publish_many([(uri, "last") for uri in uris])
    await until(lambda: set(cued()[told:]) >= set(last), "the last change of each", 20)
    assert len(cued()) < rounds * len(uris), "nothing was coalesced: the reader was never slow"
    reading.cancel()
    writer.transport.abort()
