"""Sessions of the handshake era over HTTP: what a wrong one is answered, when one ends, refusals inside one.

Each request of a test may be answered by another replica than the one before.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.http.asking import Asking, Headers, error_of, initialize, request, result_of
from tests.support.fault_proxy import FaultProxy
from tests.support.mcp import BOTH, Handshake
from tests.support.redis_server import RedisServer, keys_of
from tests.support.replica import Fleet
from tests.support.wait import until
from workers import Publisher

Send = Callable[[Asking, Headers], Awaitable[httpx.Response]]

NOTE = {"jsonrpc": "2.0", "method": "notifications/made/up"}
RESPONSE: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {}}

SENDS: dict[str, Send] = {
    "request": lambda ask, session: ask.post(request("resources/list", 1), session),
    "unknown method": lambda ask, session: ask.post(request("no/such", 1), session),
    "bad params": lambda ask, session: ask.post(request("resources/read", 1), session),
    "notification": lambda ask, session: ask.post(NOTE, session),
    "response": lambda ask, session: ask.post(RESPONSE, session),
    "batch": lambda ask, session: ask.post([NOTE], session),
    "GET": lambda ask, session: ask.send("GET", {**session, "accept": BOTH}),
    "GET that resumes": lambda ask, session: ask.send(
        "GET", {**session, "accept": BOTH, "last-event-id": "a.b.1"}
    ),
    "DELETE": lambda ask, session: ask.send("DELETE", session),
}

STRANGE_IDS = [
    "A" * 43, "A" * 42, "A" * 10_000, "*", "{}", "a:b", "../x", "a b", "%0d%0aX: y", "", "0", "null",
    "A" * 43 + "\u00e9",
]  # fmt: skip


@pytest.mark.requirement("session.gone")
@pytest.mark.parametrize("identity", STRANGE_IDS)
async def test_an_unknown_session_is_404_for_everything_and_never_a_stream(
    identity: str, ask: Asking
) -> None:
    """Clients begin anew on 404 and on nothing else."""
    for send in SENDS.values():
        answer = await send(ask, {"mcp-session-id": identity})
        assert answer.status_code == 404
        error = error_of(answer)
        assert "initialize" in error["message"]
        assert error["code"] == -32600


@pytest.mark.requirement("session.gone")
@pytest.mark.parametrize("kind", SENDS)
async def test_an_ended_session_is_404_for_everything(kind: str, ask: Asking) -> None:
    session = await ask.session()
    assert (await ask.send("DELETE", session)).status_code == 204
    answer = await SENDS[kind](ask, session)
    assert answer.status_code == 404
    error_of(answer)


@pytest.mark.requirement("session.foreign")
@pytest.mark.parametrize("kind", SENDS)
async def test_another_tenants_session_looks_like_one_that_never_was(
    kind: str, ask: Asking, fleet: Fleet, http: httpx.AsyncClient
) -> None:
    session = await ask.session("2025-03-26")
    other = Asking(http, fleet.url, f"{ask.tenant}x")
    answer = await SENDS[kind](other, session)
    unknown = await SENDS[kind](other, {**session, "mcp-session-id": "B" * 43})
    assert (answer.status_code, answer.content) == (404, unknown.content)
    assert result_of(await ask.post(request("ping"), session)) == {}


@pytest.mark.requirement("session.delete")
async def test_delete_answers_once_and_then_404(ask: Asking) -> None:
    session = await ask.session()
    statuses = [(await ask.send("DELETE", session)).status_code for _ in range(3)]
    assert statuses == [204, 404, 404]


@pytest.mark.requirement("session.gone")
async def test_many_streams_asked_for_at_once_on_an_ended_session_are_no_failure_of_ours(
    ask: Asking, fleet: Fleet
) -> None:
    """More than are kept per session: some of them have been given up when Redis says that it is gone."""
    session = await ask.session()
    assert (await ask.send("DELETE", session)).status_code == 204
    get = {**session, "accept": BOTH}
    answers = await asyncio.gather(*(ask.send("GET", get, url=fleet[0].url) for _ in range(12)))
    # A stream that was given up has ended, cleanly.
    assert {answer.status_code for answer in answers} <= {200, 404}


@pytest.mark.requirement("session.delete")
async def test_delete_ends_the_sessions_streams_on_every_replica_and_leaves_nothing(
    fleet: Fleet, redis_server: RedisServer, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Handshake(fleet.url, tenant, http) as client:
        await client.subscribe("docs:x")
        streams = [await client.get_stream(url=replica.url) for replica in fleet.replicas]
        assert await client.delete() == 204
        assert [await stream.end() for stream in streams] == ["clean", "clean"]
    with redis_server.client() as redis:
        left = [key for key, _ in keys_of(redis, fleet.prefix) if tenant in key]
    assert left == []


@pytest.mark.requirement("session.id")
async def test_session_ids_are_long_random_and_visible_ascii(ask: Asking) -> None:
    ids = {(await ask.session())["mcp-session-id"] for _ in range(20)}
    assert len(ids) == 20
    assert all(re.fullmatch(r"[\x21-\x7e]{43}", identity) for identity in ids)


@pytest.mark.requirement("session.refused")
@pytest.mark.parametrize(
    "message",
    [
        request("initialize", 0),
        request("initialize", 0, protocolVersion=5),
        request("initialize", 0, protocolVersion="2025-11-25", capabilities=[]),
        {"jsonrpc": "2.0", "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
    ],
)
async def test_a_refused_initialize_leaves_no_session(
    message: dict[str, Any], ask: Asking, fleet: Fleet, redis_server: RedisServer
) -> None:
    answer = await ask.post(message)
    assert "mcp-session-id" not in answer.headers
    error_of(answer)
    with redis_server.client() as redis:
        assert [key for key, _ in keys_of(redis, fleet.prefix) if ask.tenant in key] == []


@pytest.mark.requirement("session.id")
async def test_only_initialize_answers_with_a_session_id(ask: Asking) -> None:
    """TypeScript 1.x adopts it from any answer."""
    session = await ask.session()
    for answer in (
        await ask.post(request("ping"), session),
        await ask.post(NOTE, session),
        await ask.post(request("ping"), {"mcp-session-id": "A" * 43}),
        await ask.send("DELETE", session),
    ):
        assert "mcp-session-id" not in answer.headers


@pytest.mark.requirement("session.id")
async def test_initialize_inside_a_session_begins_another_one(ask: Asking) -> None:
    session = await ask.session()
    again = await ask.post(initialize(), session)
    assert again.headers["mcp-session-id"] != session["mcp-session-id"]
    assert result_of(await ask.post(request("ping"), session)) == {}


# --- Its own refusals (design section 5, decision 12) -----------------------------------------------------


@pytest.mark.requirement("session.refusal", "error.sentence")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        (request("no/such"), -32601),
        (request("server/discover"), -32601),
        (request("subscriptions/listen"), -32601),
        (request("resources/read"), -32602),
        (request("resources/read", uri=5), -32602),
        (request("resources/read", uri="no uri"), -32002),
        (request("resources/read", uri="docs:missing"), -32002),
        (request("resources/subscribe", uri="no uri"), -32602),
        (request("resources/subscribe", uri="docs:" + "x" * 640), -32602),
        (request("resources/list", cursor="eA"), -32602),
        (request("resources/list", cursor=None), -32602),
        (request("logging/setLevel", level="loud"), -32602),
        (request("completion/complete"), -32602),
    ],
)
async def test_a_refusal_inside_a_session_is_http_200_and_the_session_lives(
    message: dict[str, Any], code: int, ask: Asking
) -> None:
    """Python 1.x clients lose the whole session on any other status."""
    session = await ask.session()
    answer = await ask.post(message, session)
    assert (answer.status_code, error_of(answer)["code"]) == (200, code)
    assert result_of(await ask.post(request("ping"), session)) == {}


@pytest.mark.requirement("session.limit", "session.refusal")
async def test_more_subscriptions_than_allowed_are_refused_at_200_and_the_others_stay(
    new_fleet: Callable[..., Fleet], redis_server: RedisServer, http: httpx.AsyncClient
) -> None:
    fleet = await asyncio.to_thread(new_fleet, redis_server.url, 1, BROKER_SESSION__MAX_URIS="2")
    ask = Asking(http, fleet.url, "default")
    session = await ask.session()
    answers = [await ask.post(request("resources/subscribe", uri=f"docs:{n}"), session) for n in (1, 2, 2, 3)]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert ["error" in answer.json() for answer in answers] == [False, False, False, True]
    assert "2" in error_of(answers[3])["message"]
    await ask.post(request("resources/unsubscribe", uri="docs:1"), session)
    assert result_of(await ask.post(request("resources/subscribe", uri="docs:3"), session)) == {}


@pytest.mark.requirement("session.refusal")
async def test_what_is_not_subscribed_can_be_unsubscribed(ask: Asking) -> None:
    session = await ask.session()
    assert result_of(await ask.post(request("resources/unsubscribe", uri="docs:x"), session)) == {}


@pytest.mark.requirement("session.unknown-uri")
async def test_a_resource_that_is_unknown_is_subscribed_alike(ask: Asking) -> None:
    """Nothing is confirmed by it, and subscribing before the first publish works (promise 8)."""
    session = await ask.session()
    assert result_of(await ask.post(request("resources/subscribe", uri="docs:missing"), session)) == {}


# --- Life and Redis ---------------------------------------------------------------------------------------


def keys_with(redis: Any, session: str) -> list[bytes]:
    """Return the keys of a session; the client is untyped, since its replies have no types."""
    return list(redis.scan_iter(f"*{session}*"))


def shorten(redis_server: RedisServer, session: str, milliseconds: int) -> None:
    """Let a session's time to live be nearly over."""
    with redis_server.client() as redis:
        for key in keys_with(redis, session):
            assert redis.pexpire(key, milliseconds)


def time_left(redis_server: RedisServer, session: str) -> int:
    """Return the shortest time to live of a session's keys, in ms; -2 where they are gone."""
    with redis_server.client() as redis:
        untyped: Any = redis
        return min([int(untyped.pttl(key)) for key in keys_with(redis, session)], default=-2)


@pytest.mark.requirement("session.life", "session.gone")
async def test_a_session_that_is_idle_too_long_is_404(ask: Asking, redis_server: RedisServer) -> None:
    session = await ask.session()
    identity = session["mcp-session-id"]
    assert 0 < time_left(redis_server, identity) <= 3_600_000
    shorten(redis_server, identity, 50)
    await until(lambda: time_left(redis_server, identity) == -2, "its keys have expired")
    for send in SENDS.values():
        assert (await send(ask, session)).status_code == 404


@pytest.mark.requirement("session.life")
@pytest.mark.parametrize("kind", ["request", "unknown method", "notification", "response"])
async def test_whatever_a_client_posts_keeps_its_session_alive(
    kind: str, ask: Asking, redis_server: RedisServer
) -> None:
    session = await ask.session()
    shorten(redis_server, session["mcp-session-id"], 60_000)
    await SENDS[kind](ask, session)
    assert time_left(redis_server, session["mcp-session-id"]) > 3_000_000


@pytest.mark.requirement("session.life")
async def test_an_open_stream_keeps_its_session_alive_and_ends_cleanly_when_that_is_lost(
    new_fleet: Callable[..., Fleet], redis_server: RedisServer, http: httpx.AsyncClient
) -> None:
    fleet = await asyncio.to_thread(new_fleet, redis_server.url, 1, BROKER_SESSION__IDLE_SECONDS="10")
    async with Handshake(fleet.url, "default", http) as client:
        stream = await client.get_stream()
        shorten(redis_server, client.session, 5000)
        await until(lambda: time_left(redis_server, client.session) > 5000, "the stream has renewed it")
        assert stream.ended is None
        with redis_server.client() as redis:
            redis.delete(*keys_with(redis, client.session))
        assert await stream.end() == "clean"
        assert (await http.get(fleet.url, headers=client.headers())).status_code == 404


@pytest.mark.requirement("session.redis", "modern.discover")
async def test_while_redis_is_silent_a_session_gets_a_retryable_error_at_200_and_its_stream_stays(
    new_fleet: Callable[..., Fleet], own_redis: RedisServer, http: httpx.AsyncClient
) -> None:
    fleet = await asyncio.to_thread(new_fleet, own_redis.url, 1)
    ask = Asking(http, fleet.url, "default")
    async with Handshake(fleet.url, "default", http) as client:
        stream = await client.get_stream()
        session = {"mcp-session-id": client.session}
        own_redis.pause()
        try:
            began = time.monotonic()
            answer = await ask.post(request("resources/list", 4), session)
            assert answer.status_code == 200
            assert time.monotonic() - began < 3
            error = error_of(answer)
            assert (error["code"], error["id"], error["data"]["retryable"]) == (-31503, 4, True)
            # What needs no Redis is answered as ever.
            assert result_of(await ask.modern("server/discover"))
            refused = await ask.post(initialize())
            assert (refused.status_code, error_of(refused)["code"]) == (503, -31503)
            assert refused.headers["retry-after"] == "1"
            modern = await ask.modern("resources/list")
            assert (modern.status_code, error_of(modern)["data"]["retryable"]) == (200, True)
            noted = await ask.post(NOTE, session)
            assert noted.status_code == 202
        finally:
            own_redis.resume()
        assert stream.ended is None

        async def is_answered() -> bool:
            return "result" in (await ask.post(request("ping"), session)).json()

        await until(is_answered, "the session is answered again")


@pytest.mark.requirement("session.redis")
async def test_a_stream_is_open_before_a_slow_redis_has_said_whether_its_session_lives(
    new_fleet: Callable[..., Fleet], redis_server: RedisServer, http: httpx.AsyncClient, prefix: str
) -> None:
    """It ends cleanly once Redis says that there is no such session; a known one goes on (decision 12)."""
    with FaultProxy(redis_server.address) as proxy:
        fleet = await asyncio.to_thread(new_fleet, proxy.redis_url, 1)
        async with (
            Handshake(fleet.url, "default", http) as client,
            Publisher(redis_server.url, prefix=prefix) as publisher,
        ):
            await client.subscribe("docs:x")
            unknown = Handshake(fleet.url, "default", http)
            unknown.session = "C" * 43
            proxy.delay(0.7)
            began = time.monotonic()
            streams = await asyncio.gather(client.get_stream(), unknown.get_stream())
            assert time.monotonic() - began < 2
            assert await streams[1].end() == "clean"
            proxy.delay(0.0)
            for counter in itertools.count():
                await publisher.publish("docs:x", str(counter))
                if streams[0].cues:
                    break
                await asyncio.sleep(0.05)
            assert streams[0].ended is None
            await unknown.close()
