"""Request bodies: their limit, however the length is told, and what does not come.

A hostile megabyte of JSON is tests/wire's; here it is about bytes on a connection.
"""

import asyncio
import json
import secrets
from collections.abc import Iterator

import pytest

from tests.http.asking import Answer, Asking, Line, connected, error_of, head, modern_headers, modern_request
from tests.support.mcp import MODERN
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet

LIMIT = 1_000_000
BODY = json.dumps(modern_request("server/discover")).encode()
MIRROR = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "server/discover"}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.fixture(scope="module")
def impatient(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give a replica that waits for a body for half a second."""
    prefix = f"body{secrets.token_hex(3)}"
    with Fleet(redis_server.url, prefix, BROKER_HTTP__BODY_SECONDS="0.5") as fleet:
        fleet.add(1)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


async def send(fleet: Fleet, *parts: bytes) -> Answer:
    """Write the parts on a connection of their own, and return the answer."""
    async with connected(fleet[0].address) as line:
        answer = asyncio.create_task(line.answer())
        await _write(line, parts)
        return await answer


async def _write(line: Line, parts: tuple[bytes, ...]) -> None:
    for part in parts:
        try:
            await line.write(part)
        except ConnectionError:
            return  # the server has had enough; its answer is what counts


@pytest.mark.requirement("endpoint.body-limit")
async def test_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_413(ask: Asking) -> None:
    headers = modern_headers("server/discover")
    assert (await ask.post(BODY + b" " * (LIMIT - len(BODY)), headers)).status_code == 200
    answer = await ask.post(BODY + b" " * (LIMIT - len(BODY) + 1), headers)
    assert answer.status_code == 413
    assert "BROKER_HTTP__MAX_BODY_BYTES" in error_of(answer)["message"]


@pytest.mark.requirement("endpoint.body-limit")
async def test_a_client_that_is_still_sending_reads_why_its_body_is_refused(fleet: Fleet) -> None:
    """Closing at once would reset the connection, and the answer would be lost with it."""
    start = head(**MIRROR, Content_Length="8000000")
    answer = await send(fleet, start, *[b" " * 100_000] * 80)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"


@pytest.mark.requirement("endpoint.body-limit")
async def test_a_declared_length_is_refused_before_the_body_comes(fleet: Fleet) -> None:
    answer = await send(fleet, head(**MIRROR, Content_Length=str(10**12)))
    assert answer.status == 413


@pytest.mark.requirement("endpoint.body-limit")
async def test_who_asks_first_whether_to_go_on_is_refused_or_told_to(fleet: Fleet) -> None:
    large = head(**MIRROR, Content_Length=str(10**12), Expect="100-continue")
    assert (await send(fleet, large)).status == 413
    async with connected(fleet[0].address) as line:
        await line.write(head(**MIRROR, Content_Length=str(len(BODY)), Expect="100-continue"))
        answer = asyncio.create_task(line.answer())
        await line.write(BODY)
        assert (await answer).status == 200


@pytest.mark.requirement("endpoint.body-framing")
async def test_a_chunked_body_is_read(fleet: Fleet) -> None:
    start = head(**MIRROR, Transfer_Encoding="chunked")
    pieces = [chunk(BODY[at : at + 7]) for at in range(0, len(BODY), 7)]
    answer = await send(fleet, start, b"".join(pieces), chunk(b""))
    assert answer.status == 200


@pytest.mark.requirement("endpoint.body-limit")
async def test_a_chunked_body_without_end_is_413_at_the_limit(fleet: Fleet) -> None:
    start = head(**MIRROR, Transfer_Encoding="chunked")
    answer = await send(fleet, start, *[chunk(b" " * 100_000)] * 400)
    assert answer.status == 413


@pytest.mark.requirement("endpoint.body-framing")
async def test_a_body_shorter_than_it_said_is_waited_for_and_leaves_nothing(fleet: Fleet) -> None:
    """Its client closes; there is nobody to answer, and the replica goes on."""
    async with connected(fleet[0].address) as line:
        await line.write(head(**MIRROR, Content_Length=str(len(BODY) + 10)) + BODY)
    assert (await send(fleet, head(**MIRROR, Content_Length=str(len(BODY))) + BODY)).status == 200


@pytest.mark.requirement("endpoint.body-framing")
@pytest.mark.parametrize("less", [1, 10, len(BODY)])
async def test_a_body_longer_than_it_said_is_400(less: int, fleet: Fleet) -> None:
    answer = await send(fleet, head(**MIRROR, Content_Length=str(len(BODY) - less)) + BODY)
    assert answer.status == 400


@pytest.mark.requirement("endpoint.body-framing")
@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r\n\r\n"])
async def test_a_line_break_behind_a_body_does_not_matter(end: bytes, fleet: Fleet) -> None:
    """Some clients end a body with one."""
    answer = await send(fleet, head(**MIRROR, Content_Length=str(len(BODY))) + BODY + end)
    assert answer.status == 200


@pytest.mark.requirement("endpoint.body-framing")
@pytest.mark.parametrize("length", ["-1", "1e3", "abc", "0x10", "", "1, 2"])
async def test_a_length_that_is_none_is_400(length: str, fleet: Fleet) -> None:
    assert (await send(fleet, head(**MIRROR, Content_Length=length) + BODY)).status == 400


@pytest.mark.requirement("endpoint.body-framing")
async def test_two_ways_of_telling_the_length_are_never_both_believed(fleet: Fleet) -> None:
    """Whoever believes the other one reads another request (request smuggling)."""
    start = head(**MIRROR, Transfer_Encoding="chunked", Content_Length="3")
    assert (await send(fleet, start + chunk(BODY) + chunk(b""))).status == 400


@pytest.mark.requirement("endpoint.body-framing")
async def test_a_body_in_many_packets_is_one_body(fleet: Fleet) -> None:
    start = head(**MIRROR, Content_Length=str(len(BODY)))
    parts = [BODY[at : at + 1] for at in range(len(BODY))]
    assert (await send(fleet, start, *parts)).status == 200


@pytest.mark.requirement("endpoint.body-limit")
@pytest.mark.parametrize("start", [b"", b"{", BODY[:-1]])
async def test_a_body_that_does_not_come_is_408_and_ends_the_connection(
    start: bytes, impatient: Fleet
) -> None:
    async with connected(impatient[0].address) as line:
        await line.write(head(**MIRROR, Content_Length=str(len(BODY))) + start)
        answer = await line.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert "BROKER_HTTP__BODY_SECONDS" in json.loads(answer.body)["error"]["message"]
        await line.closed()


@pytest.mark.requirement("endpoint.body-limit")
async def test_a_body_that_drips_is_408_as_well(impatient: Fleet) -> None:
    """Each byte comes in time, the body does not."""
    async with connected(impatient[0].address) as line:
        await line.write(head(**MIRROR, Content_Length=str(len(BODY))))
        answering = asyncio.create_task(line.answer())
        for at in range(len(BODY)):
            if answering.done():
                break
            await _write(line, (BODY[at : at + 1],))
            await asyncio.wait({answering}, timeout=0.05)
        assert (await answering).status == 408


@pytest.mark.requirement("endpoint.era")
async def test_a_get_with_a_body_is_a_get(ask: Asking) -> None:
    answer = await ask.send("GET", {"content-type": "application/json"}, BODY)
    assert answer.status_code == 400
