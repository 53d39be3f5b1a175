"""Contents and URIs as they travel: byte for byte, in both eras, as JSON and as events."""

import asyncio
import base64
import json
import random

import httpx
import pytest

from tests.http.asking import Asking, modern_headers, modern_request, request, result_of
from tests.support.mcp import Handshake, Modern
from tests.support.replica import Fleet
from tests.support.sse import Reader
from workers import Publisher

TEXTS = [
    "", "plain", "\u2028\u2029\x85\r\n\r", "\x00\x01\x1f\x7f", "\ufeffbom", "\U0001f600", "\ud7ff\ue000",
    'quote " back \\ slash / </script>', "data: x\n\nevent: y\n\nid: 7\n\n", " " * 3, "\t", "e\u0301 \u00e9",
]  # fmt: skip

URIS = [
    "demo://host", "demo://host/", "demo:///", "demo://", "DEMO://host", "demo://HOST", "demo:opaque", "x:y",
    "urn:isbn:1", "file:///p", "file:///docs/caf\u00e9/a", "file:///docs/caf%C3%A9/a",
    "file:///docs/caf%c3%a9/a", "demo://a/%7Ex?q=1&r=a+b#frag", "demo://a/../b", "demo://a/./b", "demo://a//b",
    "demo://u@h:80/", "demo://[::1]/", "demo://\U0001f600", "demo://e\u0301", "demo://\u00e9", "demo://a%2Fb",
    "demo://a%00b", "demo:" + "x" * 635, "demo://a;b,c!d'(e)*", "demo://{id}",
]  # fmt: skip


@pytest.mark.requirement("resource.contents", "sse.frame")
@pytest.mark.parametrize("text", TEXTS)
async def test_a_text_arrives_as_it_was_published(text: str, publisher: Publisher, ask: Asking) -> None:
    await publisher.publish("docs:x", text)
    message = modern_request("resources/read", uri="docs:x")
    headers = modern_headers("resources/read", "docs:x")
    plain = await ask.post(message, headers)
    assert result_of(plain)["contents"][0]["text"] == text
    event = await ask.post(message, {**headers, "accept": "text/event-stream"})
    reader = Reader()
    (frame,) = reader.feed(event.content)
    reader.end()
    assert frame.message is not None
    assert frame.message["result"]["contents"][0]["text"] == text
    session = await ask.session()
    read = await ask.post(request("resources/read", uri="docs:x"), session)
    assert result_of(read)["contents"][0]["text"] == text


@pytest.mark.requirement("resource.contents")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 256, 100_000])
async def test_bytes_arrive_as_base64_of_the_standard_alphabet(
    size: int, publisher: Publisher, ask: Asking
) -> None:
    data = random.Random(size).randbytes(size)
    await publisher.publish("docs:x", data, mime_type="image/png")
    answer = await ask.modern("resources/read", name="docs:x", uri="docs:x")
    (content,) = result_of(answer)["contents"]
    assert set(content) == {"uri", "mimeType", "blob"}
    assert base64.b64decode(content["blob"], validate=True) == data


@pytest.mark.requirement("resource.large", "sse.frame")
async def test_two_megabytes_are_one_frame_and_stop_no_other_stream(
    publisher: Publisher, ask: Asking, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    text = "\u2028x" * 500_000
    await publisher.publish("docs:large", text)
    message = modern_request("resources/read", uri="docs:large")
    headers = modern_headers("resources/read", "docs:large", accept="text/event-stream")
    client = Modern(fleet.url, tenant, http)
    async with await client.listen(["docs:small"]) as listening:
        reads = [asyncio.create_task(ask.post(message, headers)) for _ in range(3)]
        for number in range(10):
            await publisher.publish("docs:small", str(number))
            await listening.cue("docs:small", number + 1)
        for read in reads:
            answer = await read
            reader = Reader()
            (frame,) = reader.feed(answer.content)
            reader.end()
            assert frame.message is not None
            assert frame.message["result"]["contents"][0]["text"] == text


@pytest.mark.requirement("resource.uri")
async def test_every_uri_is_listed_read_and_cued_exactly_as_it_was_published(
    publisher: Publisher, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """Nothing normalises a URI: spellings that some parser would make equal are resources of their own."""
    assert len(set(URIS)) == len(URIS)
    await publisher.publish_many([(uri, uri) for uri in URIS])
    modern = Modern(fleet.url, tenant, http)
    async with Handshake(fleet.url, tenant, http) as session:
        assert sorted(await modern.list()) == sorted(URIS)
        assert sorted(await session.list()) == sorted(URIS)
        for uri in URIS:
            for contents in (
                (await modern.ask("resources/read", uri=uri))["contents"],
                await session.read(uri),
            ):
                assert (contents[0]["uri"], contents[0]["text"]) == (uri, uri)
            await session.subscribe(uri)
        stream = await session.get_stream()
        async with await modern.listen(URIS) as listening:
            assert listening.honoured["resourceSubscriptions"] == URIS
            for number, uri in enumerate(random.Random(1).sample(URIS, len(URIS)), 1):
                await publisher.publish(uri, "changed")
                await listening.cue(uri)
                await stream.cue(uri)
                assert len(listening.cues) == number
            assert len(stream.cues) == len(URIS)


@pytest.mark.requirement("sse.frame")
async def test_a_resource_that_changes_a_thousand_times_is_one_frame_at_a_time(
    publisher: Publisher, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    """Whatever the pieces in which the network hands it on: the strict reader looks at every byte."""
    client = Modern(fleet.url, tenant, http)
    async with await client.listen(["docs:x", "docs:last"]) as listening:
        await publisher.publish_many([("docs:x", str(number)) for number in range(1000)])
        await publisher.publish("docs:last", "1")
        await listening.cue("docs:last")
        assert 1 <= listening.cues.count("docs:x") <= 1000
        read = await client.ask("resources/read", uri="docs:x")
        assert read["contents"][0]["text"] == "999"


@pytest.mark.requirement("resource.contents")
async def test_json_values_are_text_that_is_json(publisher: Publisher, ask: Asking) -> None:
    await publisher.publish("docs:x", {"b": [1, None, "\u2028"], "a": 1.5})
    answer = await ask.modern("resources/read", name="docs:x", uri="docs:x")
    (content,) = result_of(answer)["contents"]
    assert content["mimeType"] == "application/json"
    assert json.loads(content["text"]) == {"b": [1, None, "\u2028"], "a": 1.5}
