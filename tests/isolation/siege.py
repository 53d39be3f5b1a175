"""Two tenants on one fleet, one of them hostile with a valid credential, and everything it got to see."""

import asyncio
import base64
import json
from typing import Any, Self, cast

import httpx

from broker.core.declaration import Declaration
from broker.core.identity import TenantId
from broker.store import registry
from broker.store.scripts import run
from broker.wire.extension import REVISIONS, TOKEN
from tests.support.mcp import BOTH, HANDSHAKE, MODERN, Handshake, Listening, RpcError
from tests.tenants.yard import Caller, Yard

SHARED = "vault://shared"
"""A URI that the attacker knows, too."""
HIDDEN = "vault://hidden-9f27c1"
"""A URI that it does not know, and must never see."""
MARK = "VICTIM-CONTENTS-4be1"
TEMPLATE = "vault://{box}"
LAST = "mine://last"
"""What the attacker publishes for itself at the end: whatever was to come before it has come."""


class Siege:
    """One attack: the victim with a session, streams and contents, and the attacker."""

    def __init__(self, yard: Yard, victim: Caller, attacker: Caller, tenant: TenantId, own: TenantId) -> None:
        self.yard = yard
        self.victim = victim
        self.attacker = attacker
        self.tenant = tenant
        self.own = own
        self.loot = bytearray()
        """Every byte that the attacker got."""
        self.session: Handshake = victim.handshake()
        self.last_event_id = ""
        self.cursor = ""
        self.token: Any = None
        self.revisions: dict[str, str] = {}
        self._listening: Listening | None = None
        self._stream: Any = None
        self._before: Any = None
        attacker.http.event_hooks["response"] = [self._take]

    async def _take(self, response: httpx.Response) -> None:
        self.loot += f"{response.status_code} {response.headers}".encode()
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            self.loot += await response.aread()

    async def __aenter__(self) -> Self:
        for uri in (SHARED, HIDDEN):
            key = {"idempotency-key": "order-1"} if uri == SHARED else {}
            await self.victim.http.put(
                f"{self.victim.api}/resources",
                params={"uri": uri, "name": f"{MARK}-name"},
                content=f"{MARK} {uri}",
                headers={"content-type": "text/plain", **key},
            )
        meta = json.dumps({"uriTemplate": TEMPLATE, "name": f"{MARK}-template"}).encode()
        declared = Declaration(TEMPLATE, is_template=True, meta=meta, completes=("box",))
        await run(self.yard.redis, registry.register_template(self.yard.keys, self.tenant, "boxes", declared))
        await self.session.initialize()
        await self.session.subscribe(SHARED)
        self._stream = await self.session.get_stream()
        self._listening = await self.victim.modern().listen([SHARED, HIDDEN], wants_list=True)
        meta = self._listening.acknowledgement["_meta"]
        self.token, self.revisions = meta.get(TOKEN), meta[REVISIONS]
        await self.publish()
        await self._stream.cue(SHARED)
        await self._listening.cue(SHARED)
        self.last_event_id = self._stream.last_id or ""
        self._before = await self._state()
        return self

    async def publish(self) -> None:
        """Change what the victim watches."""
        count = len(self._listening.cues) if self._listening else 0
        await self.victim.publish(SHARED, f"{MARK} {count}", name=f"{MARK}-name")

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                await self._check()
        finally:
            await self.victim.http.delete(self.session.url, headers=self.session.headers())
            for each in (self._stream, self._listening):
                if each is not None:
                    await each.close()

    async def _check(self) -> None:
        """Fail if the attacker saw or changed anything."""
        for secret in (MARK, HIDDEN, "hidden-9f27c1", TEMPLATE):
            assert secret.encode() not in self.loot, bytes(self.loot)[-2000:]
        assert await self._state() == self._before
        assert self._listening is not None
        cued = (len(self._listening.cues), len(self._stream.cues))
        await self.publish()
        await self._listening.cue(SHARED, cued[0] + 1)
        await self._stream.cue(SHARED, cued[1] + 1)
        assert (len(self._listening.cues), len(self._stream.cues)) == (cued[0] + 1, cued[1] + 1)
        assert set(self._listening.cues) == {SHARED}

    async def _state(self) -> Any:
        """Return everything of the victim's that could be changed."""
        assert self._listening is not None
        client = self.victim.modern()
        return (
            await client.list(),
            [await client.read(uri) for uri in (SHARED, HIDDEN)],
            await self.session.read(HIDDEN),
            (len(self._listening.cues), self._listening.list_changes, len(self._stream.cues)),
            (self._listening.ended, self._stream.ended),
            len(await self.yard.control.keys(self.tenant)),
        )

    # -- what an attacker does ------------------------------------------------------------------------------

    async def rpc(self, method: str, headers: dict[str, str] | None = None, **params: Any) -> httpx.Response:
        """Send a request of the handshake era, with the victim's session unless said otherwise."""
        sent = {"accept": BOTH, "mcp-protocol-version": HANDSHAKE, "mcp-session-id": self.session.session}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.attacker.http.post(
            self.attacker.url, json=message, headers={**sent, **(headers or {})}
        )

    def request(self, method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a request of the modern era and its headers."""
        return self.attacker.modern()._request(method, params, 1)  # pyright: ignore[reportPrivateUsage] # to bend it

    async def modern(
        self, method: str, headers: dict[str, str] | None = None, meta: Any = None, **params: Any
    ) -> httpx.Response:
        """Send a request of the modern era."""
        message, sent = self.request(method, **params)
        message["params"]["_meta"] |= meta or {}
        if "mcp-name" in {name.lower() for name in sent} and not str(params.get("uri", "")).isprintable():
            encoded = base64.b64encode(params["uri"].encode()).decode()
            sent = {**sent, "mcp-name": f"=?base64?{encoded}?="}
        assert sent["mcp-protocol-version"] == MODERN
        return await self.attacker.http.post(
            self.attacker.url, json=message, headers={**sent, **(headers or {})}
        )

    async def read(self, uri: str, **headers: str) -> httpx.Response:
        """Read a URI in the modern era, and see that it is refused."""
        answer = await self.modern("resources/read", headers, uri=uri)
        assert "error" in answer.json(), answer.text
        return answer

    async def v1(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.attacker.http.request(method, f"{self.attacker.api}/{path}", **more)

    async def own_session(self) -> Handshake:
        session = self.attacker.handshake()
        await session.initialize()
        return session

    async def listens(self, uris: list[str], meta: Any = None, **more: Any) -> None:
        """Listen, let the victim publish, and see that nothing comes."""
        try:
            stream = await self.attacker.modern().listen([*uris, LAST], meta=meta, **more)
        except RpcError:
            return
        await self.publish()
        await self.attacker.publish(LAST, "x")
        await stream.cue(LAST)
        self.loot += bytes(stream.stream.raw)
        assert set(stream.cues) == {LAST}
        await stream.close()
        await self.settle()

    async def remember(self) -> None:
        """Take how the victim stands now for what must stay."""
        self._before = await self._state()

    async def settle(self) -> None:
        """Take what the victim was told of its own publish for granted."""
        assert self._listening is not None
        await self._listening.cue(SHARED, len(self._before[3:4]) and self._before[3][0] + 1)
        await self._stream.cue(SHARED, self._before[3][2] + 1)
        await self.remember()


async def commands_of(yard: Yard, work: Any) -> int:
    """Return how many commands Redis executed for one request, besides heartbeats and the like.

    Of several tries the least: others use this server, too.
    """
    redis = cast("Any", yard.redis)
    least = 10**9
    for _ in range(6):
        before = await _calls(redis)
        await work()
        least = min(least, await _calls(redis) - before)
        await asyncio.sleep(0)
    return least


async def _calls(redis: Any) -> int:
    stats = await redis.info("commandstats")
    return sum(one["calls"] for name, one in stats.items() if name in COUNTED)


COUNTED = {
    "cmdstat_hget",
    "cmdstat_hmget",
    "cmdstat_evalsha",
    "cmdstat_eval",
    "cmdstat_get",
    "cmdstat_hgetall",
}
