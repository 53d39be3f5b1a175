"""The raw checks of both eras: what real clients depend on and no suite asks, each one a step.

A step needs nothing from the one before, so that replicas may be restarted between any two. They are asked at
whatever URL they are given; `change` lets the watched resource change.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.http.asking import (
    Asking,
    error_of,
    initialize,
    modern_headers,
    modern_meta,
    modern_request,
    request,
    result_of,
)
from tests.support.mcp import BOTH, MODERN, Handshake, Modern
from tests.support.wait import until

TEXT, WATCHED, MISSING = "test://static-text", "test://watched-resource", "test://no-such-resource"
VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


@dataclass(frozen=True)
class Checks:
    """What every step gets."""

    ask: Asking
    change: Callable[[], Awaitable[object]]

    def handshake(self) -> Handshake:
        return Handshake(self.ask.url, self.ask.tenant, self.ask.http)

    def modern(self) -> Modern:
        return Modern(self.ask.url, self.ask.tenant, self.ask.http)


Step = Callable[[Checks], Awaitable[None]]


# --- The handshake era ------------------------------------------------------------------------------------


async def versions(checks: Checks) -> None:
    for asked in VERSIONS:
        assert result_of(await checks.ask.post(initialize(asked)))["protocolVersion"] == asked
    assert result_of(await checks.ask.post(initialize("2099-01-01")))["protocolVersion"] in VERSIONS


async def session_id(checks: Checks) -> None:
    begun = await checks.ask.post(initialize())
    assert all(0x21 <= ord(character) <= 0x7E for character in begun.headers["mcp-session-id"])
    assert "resources" in result_of(begun)["capabilities"]


async def ids(checks: Checks) -> None:
    session = await checks.ask.session()
    for identity in (0, "abc", 2**53 - 1, "0"):
        answer = (await checks.ask.post(request("ping", identity), session)).json()
        assert (answer["id"], type(answer["id"]), answer["result"]) == (identity, type(identity), {})


async def session_errors(checks: Checks) -> None:
    ask = checks.ask
    assert (await ask.post(request("resources/list"))).status_code == 400
    gone = {"mcp-session-id": "not-a-session", "accept": BOTH}
    assert (await ask.post(request("resources/list"), gone)).status_code == 404
    assert (await ask.send("GET", gone)).status_code == 404


async def errors_at_200(checks: Checks) -> None:
    session = await checks.ask.session()
    for method, params in (("no/such", {}), ("resources/read", {"uri": MISSING})):
        answer = await checks.ask.post(request(method, **params), session)
        assert answer.status_code == 200
        error_of(answer)


async def bad_bodies(checks: Checks) -> None:
    session = await checks.ask.session()
    wrong = {**session, "mcp-protocol-version": "1999-01-01"}
    sent: list[tuple[Any, dict[str, str]]] = [
        (b"{not json", session), ([], session), (request("ping"), wrong),
    ]  # fmt: skip
    for body, headers in sent:
        assert (await checks.ask.post(body, headers)).status_code == 400


async def origin_and_host(checks: Checks) -> None:
    ask = checks.ask
    assert (await ask.post(initialize(), {"origin": "http://evil.example.com"})).status_code == 403
    assert 400 <= (await ask.post(initialize(), {"host": "evil.example.com"})).status_code < 500
    assert (await ask.post(initialize(), {"origin": ask.url.removesuffix("/mcp")})).status_code == 200


async def concurrent_posts(checks: Checks) -> None:
    session = await checks.ask.session()
    answers = await asyncio.gather(
        *[checks.ask.post(request("resources/list", number), session) for number in range(8)]
    )
    assert [answer.json()["id"] for answer in answers] == list(range(8))


async def update_and_replay(checks: Checks) -> None:
    async with checks.handshake() as client:
        await client.read(WATCHED)
        await client.subscribe(WATCHED)
        stream = await client.get_stream()
        await checks.change()
        await stream.cue(WATCHED)
        await stream.close()
        await checks.change()
        again = await client.get_stream(stream.last_id)
        await again.cue(WATCHED)
        await checks.change()
        await again.cue(WATCHED, 2)
        assert again.cues == [WATCHED] * 2


async def replay_is_per_session(checks: Checks) -> None:
    async with checks.handshake() as one, checks.handshake() as other:
        await one.subscribe(WATCHED)
        stream = await one.get_stream()
        await checks.change()
        await stream.cue(WATCHED)
        foreign = await other.get_stream(stream.last_id)
        await checks.change()
        await stream.cue(WATCHED, 2)
        assert foreign.messages == []


async def one_stream_per_message(checks: Checks) -> None:
    async with checks.handshake() as client:
        await client.read(WATCHED)
        await client.subscribe(WATCHED)
        older = await client.get_stream()
        newer = await client.get_stream()
        told = len(newer.cues)
        await checks.change()
        await newer.cue(WATCHED, told + 1)
        assert older.cues == []


async def delete(checks: Checks) -> None:
    async with checks.handshake() as client:
        stream = await client.get_stream()
        assert await client.delete() == 204
        assert await stream.end() == "clean"
        session = {"mcp-session-id": client.session, "accept": BOTH}
    assert (await checks.ask.post(request("ping"), session)).status_code == 404
    assert (await checks.ask.send("GET", session)).status_code == 404


async def priming(checks: Checks) -> None:
    async with checks.handshake() as client:
        stream = await client.get_stream()
        await until(lambda: stream.last_id, "a priming event")
        primed = next(frame for frame in stream.frames if frame.id)
        assert primed.message is None
        assert primed.retry


async def no_session_id_on_refusals(checks: Checks) -> None:
    assert "mcp-session-id" not in (await checks.ask.post(request("resources/list"))).headers


HANDSHAKE_STEPS: list[Step] = [
    versions, session_id, ids, session_errors, errors_at_200, bad_bodies, origin_and_host, concurrent_posts,
    update_and_replay, replay_is_per_session, one_stream_per_message, delete, priming,
    no_session_id_on_refusals,
]  # fmt: skip


# --- The modern era ---------------------------------------------------------------------------------------


async def discover(checks: Checks) -> None:
    found = result_of(await checks.ask.modern("server/discover"))
    assert MODERN in found["supportedVersions"]
    assert "resources" in found["capabilities"]
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"]


async def cache_hints(checks: Checks) -> None:
    asked: list[tuple[str, dict[str, str]]] = [
        ("resources/list", {}), ("resources/templates/list", {}), ("resources/read", {"uri": TEXT}),
    ]  # fmt: skip
    for method, params in asked:
        found = result_of(await checks.ask.modern(method, name=params.get("uri"), **params))
        assert found["resultType"] == "complete"
        assert found["ttlMs"] >= 0
        assert found["cacheScope"] in {"public", "private"}


async def mirrored_headers(checks: Checks) -> None:
    read = modern_request("resources/read", uri=TEXT)
    encoded = "=?base64?dGVzdDovL3N0YXRpYy10ZXh0?="
    for name in (TEXT, encoded):
        result_of(await checks.ask.post(read, modern_headers("resources/read", name)))
    for name in ("test://other", None, "=?base64?!!!?=", TEXT.upper()):
        answer = await checks.ask.post(read, modern_headers("resources/read", name))
        assert (answer.status_code, error_of(answer)["code"]) == (400, -32020)
    for method in ("resources/read", "RESOURCES/LIST"):
        answer = await checks.ask.post(modern_request("resources/list"), modern_headers(method))
        assert (answer.status_code, error_of(answer)["code"]) == (400, -32020)


async def version_errors(checks: Checks) -> None:
    message = request("server/discover", _meta=modern_meta("v999"))
    unknown = modern_headers("server/discover", **{"mcp-protocol-version": "v999"})
    error = error_of(await checks.ask.post(message, unknown))
    assert (error["code"], error["data"]["requested"]) == (-32022, "v999")
    assert error_of(await checks.ask.post(message, modern_headers("server/discover")))["code"] == -32020


async def meta_required(checks: Checks) -> None:
    for missing in ("protocolVersion", "clientCapabilities"):
        meta = modern_meta()
        del meta[f"io.modelcontextprotocol/{missing}"]
        answer = await checks.ask.post(
            request("server/discover", 7, _meta=meta), modern_headers("server/discover")
        )
        assert (answer.status_code, error_of(answer)["code"], answer.json()["id"]) == (400, -32602, 7)


async def removed_methods(checks: Checks) -> None:
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"):
        answer = await checks.ask.modern(method, uri=WATCHED)
        assert (answer.status_code, error_of(answer)["code"]) == (404, -32601)


async def verbs(checks: Checks) -> None:
    version = {"mcp-protocol-version": MODERN, "accept": BOTH}
    for method in ("GET", "DELETE"):
        assert (await checks.ask.send(method, version)).status_code == 405
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}
    answer = await checks.ask.post(note, version)
    assert (answer.status_code, answer.content) == (202, b"")


async def concurrent_modern_posts(checks: Checks) -> None:
    answers = await asyncio.gather(*[checks.ask.modern("resources/list", number) for number in range(8)])
    assert [answer.json()["id"] for answer in answers] == list(range(8))


async def missing(checks: Checks) -> None:
    error = error_of(await checks.ask.modern("resources/read", name=MISSING, uri=MISSING))
    assert (error["code"], error["data"]["uri"]) == (-32602, MISSING)


async def listen(checks: Checks) -> None:
    async with await checks.modern().listen([WATCHED]) as listening:
        assert listening.honoured == {"resourceSubscriptions": [WATCHED]}
        await checks.change()
        await listening.cue(WATCHED)


async def listen_filters(checks: Checks) -> None:
    async with (
        await checks.modern().listen([TEXT]) as deaf,
        await checks.modern().listen([WATCHED]) as listening,
    ):
        await checks.change()
        await listening.cue(WATCHED)
        assert deaf.cues == []


async def listen_to_unsupported_kinds(checks: Checks) -> None:
    wanted: dict[str, Any] = {"notifications": {"toolsListChanged": True}}
    answer = await checks.ask.modern("subscriptions/listen", "none", **wanted)
    assert answer.headers["x-accel-buffering"] == "no"
    first = json.loads(answer.text.split("data: ")[1].split("\n")[0])
    assert first["params"]["notifications"] == {}


MODERN_STEPS: list[Step] = [
    discover, cache_hints, mirrored_headers, version_errors, meta_required, removed_methods, verbs,
    concurrent_modern_posts, missing, listen, listen_filters, listen_to_unsupported_kinds,
]  # fmt: skip
