"""More tricks of a tenant with a valid credential (test_wall.py), below HTTP and beside it.

Smuggled and doubled headers, pipelines, encodings of names, what is handed out and really was the other's,
workers of the same name, limits and refusals as a window into what the other does.
"""

import asyncio
import base64
import json
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from broker.core import apikey
from broker.core.identity import ResourceKey, TenantId
from tests.isolation.siege import HIDDEN, LAST, SHARED, Siege, commands_of
from tests.support.mcp import RpcError
from tests.support.wait import until, within
from tests.tenants.yard import http_with
from workers import Context, Worker
from workers.serving import serving

Trick = Callable[[Siege], Awaitable[Any]]
TRICKS: dict[str, Trick] = {}


def trick(name: str) -> Callable[[Trick], Trick]:
    def add(function: Trick) -> Trick:
        assert name not in TRICKS
        TRICKS[name] = function
        return function

    return add


async def raw(siege: Siege, data: bytes, answers: int = 1) -> bytes:
    """Send bytes as they are, and return what came until so many answers did, or the end."""
    parts = urlsplit(siege.attacker.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    got = b""
    try:
        writer.write(data)
        while got.count(b"HTTP/1.1 ") < answers or not got.endswith((b"}", b"\r\n\r\n")):
            part = await within(reader.read(65_536), f"an answer to {data[:60]!r}")
            if not part:
                break
            got += part
    finally:
        writer.close()
    siege.loot += got
    return got


def get(siege: Siege, *lines: str, path: str = "/v1/resources") -> bytes:
    """Return a GET with these header lines."""
    host = urlsplit(siege.attacker.url).netloc
    return "\r\n".join([f"GET {path} HTTP/1.1", f"host: {host}", *lines, "", ""]).encode()


def mine(siege: Siege) -> str:
    return f"authorization: Bearer {siege.attacker.token}"


# -- headers and connections -------------------------------------------------------------------------------

for about, lines in {
    "a second one that does not hold": (f"authorization: Bearer {apikey.new().text}",),
    "a second one of another kind": ("authorization: Basic YTpi",),
    "a proxy's": ("proxy-authorization: Bearer x", "authorization: x"),
}.items():

    @trick(f"two Authorization headers: {about}")
    async def _(siege: Siege, lines: tuple[str, ...] = lines) -> None:
        for order in ((mine(siege), *lines), (*lines, mine(siege))):
            assert b" 401 " in (await raw(siege, get(siege, *order))).split(b"\r\n")[0]


@trick("two Authorization headers at the administrators' API")
async def _(siege: Siege) -> None:
    root = f"http://127.0.0.1:{siege.yard.fleet[1].internal_port}/admin/v1/tenants"
    boss = await siege.yard.key(siege.own, "boss", ["admin"])
    for second in (f"Bearer {'x' * 40}", f"Bearer {boss}"):
        both = [("authorization", f"Bearer {boss}"), ("authorization", second)]
        async with http_with(None) as client:
            assert (await client.get(f"{root}/{siege.own}/keys", headers=both)).status_code == 401


for name, bent in {
    "a blank before the colon": "authorization : Bearer {}",
    "a folded line": "x: y\r\n authorization: Bearer {}",
    "a NUL in it": "authorization: Bearer {}\0",
    "a bare line feed": "x: y\nauthorization: Bearer {}",
}.items():

    @trick(f"an Authorization header with {name}")
    async def _(siege: Siege, bent: str = bent) -> None:
        answer = await raw(siege, get(siege, bent.format(apikey.new().text), "connection: close"))
        assert b" 200 " not in answer.split(b"\r\n")[0]


@trick("a request after one's own on the same connection, without a credential")
async def _(siege: Siege) -> None:
    both = get(siege, mine(siege)) + get(siege)
    answers = await raw(siege, both, 2)
    assert (answers.count(b"HTTP/1.1 200"), answers.count(b"HTTP/1.1 401")) == (1, 1)


@trick("a request smuggled in the body of one's own")
async def _(siege: Siege) -> None:
    inner = get(siege, f"broker-tenant: {siege.tenant}", path=f"/t/{siege.tenant}/mcp")
    host = urlsplit(siege.attacker.url).netloc
    for framing in (
        f"content-length: {len(inner)}\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: xchunked",
        f"content-length: {len(inner)}\r\ncontent-length: 0",
        "content-length: +0",
    ):
        lines = ["POST /v1/touch HTTP/1.1", f"host: {host}", mine(siege), framing, "connection: close"]
        head = "\r\n".join([*lines, "", ""]).encode()
        answer = await raw(siege, head + b"0\r\n\r\n" + inner, 2)
        assert b"HTTP/1.1 200" not in answer


@trick("an address in absolute form, and headers that rewrite addresses")
async def _(siege: Siege) -> None:
    host = urlsplit(siege.attacker.url).netloc
    await raw(siege, get(siege, mine(siege), path=f"http://{host}/t/{siege.tenant}/mcp"))
    for name in ("x-original-url", "x-rewrite-url", "x-forwarded-prefix", "x-forwarded-uri", "forwarded"):
        answer = await siege.v1("GET", "resources", headers={name: f"/t/{siege.tenant}/mcp"})
        assert answer.json() == {"resources": []}
    for method in ("X-HTTP-Method-Override", "X-Method-Override"):
        await siege.v1("GET", "resources", params={"uri": SHARED}, headers={method: "DELETE"})


@trick("a Host that names the other")
async def _(siege: Siege) -> None:
    for host in (f"{siege.tenant}.example.org", f"{siege.tenant}@127.0.0.1", f"127.0.0.1/{siege.tenant}"):
        answer = await siege.v1("GET", "resources", headers={"host": host})
        assert answer.status_code in (400, 421)


@trick("a session's id beside one's own, in one header and in two")
async def _(siege: Siege) -> None:
    own = await siege.own_session()
    for value in (
        f"{own.session}, {siege.session.session}",
        f"{siege.session.session},{own.session}",
        f"{own.session};{siege.session.session}",
    ):
        answer = await siege.rpc("resources/list", {"mcp-session-id": value})
        assert answer.status_code == 404


@trick("headers that say another thing than the body")
async def _(siege: Siege) -> None:
    for headers in ({"mcp-name": SHARED}, {"mcp-method": "resources/list"}, {"mcp-name": HIDDEN}):
        answer = await siege.modern("resources/read", headers, uri="mine://x")
        assert "error" in answer.json()
        siege.loot[:] = siege.loot.replace(HIDDEN.encode(), b"-")


# -- names -------------------------------------------------------------------------------------------------


@trick("addresses that spell the other's name in other ways")
async def _(siege: Siege) -> None:
    message, headers = siege.request("resources/read", uri=SHARED)
    root = siege.attacker.url.removesuffix("/mcp")
    hexed = "".join(f"%{ord(char):02X}" for char in siege.tenant)
    seen: set[tuple[int, str]] = set()
    for name in (
        siege.tenant,
        hexed,
        hexed.lower(),
        f"{siege.own}%c0%af..%c0%af{siege.tenant}",
        f"%ef%bb%bf{siege.tenant}",
        f"{siege.tenant}%20",
        f"{siege.tenant}.",
        f"{siege.tenant};x=y",
        siege.tenant.upper(),
        f"{siege.tenant}%E2%80%8B",
        "nobody-at-all",
    ):
        answer = await siege.attacker.http.post(f"{root}/t/{name}/mcp", json=message, headers=headers)
        told = json.dumps(answer.json()).replace(name, "")
        seen.add((answer.status_code, told if name in (siege.tenant, hexed, "nobody-at-all") else ""))
    assert {status for status, _ in seen} == {404}
    assert len({told for _, told in seen if told}) == 1, "the other's address and nobody's differ"


@trick("a tenant whose name looks the same")
async def _(siege: Siege) -> None:
    base = f"{siege.own}-\u00e9\u212b\ufb01"
    forms = {unicodedata.normalize(form, base) for form in ("NFC", "NFD", "NFKC")} | {base.upper()}
    assert len(forms) > 2
    for name in sorted(forms):
        tenant = await siege.yard.tenant(name)
        caller = siege.yard.caller(await siege.yard.key(tenant))
        assert await caller.modern().list() == []
        await caller.publish(SHARED, f"of {name}")
        assert (await caller.modern().read(SHARED))[0]["text"] == f"of {name}"


@trick("a tenant whose name is the other's key in Redis")
async def _(siege: Siege) -> None:
    keys = siege.yard.keys
    for name in (
        f"{siege.tenant}:{SHARED}",
        f"{siege.tenant}%3A",
        keys.resource(ResourceKey(siege.tenant, SHARED))[:200],
        f"{siege.tenant}*",
        f"{siege.tenant}?",
    ):
        tenant = await siege.yard.tenant(name)
        caller = siege.yard.caller(await siege.yard.key(tenant))
        await caller.publish(SHARED, "mine")
        await caller.http.delete(f"{caller.api}/resources", params={"uri": SHARED})
        await siege.yard.control.condemn("test", TenantId(name))


# -- credentials -------------------------------------------------------------------------------------------


@trick("keys that look like keys")
async def _(siege: Siege) -> None:
    text = siege.attacker.token or ""
    (victim,) = (await siege.yard.control.keys(siege.tenant)).values()
    forged = f"mrb_{victim.id}_{text.split('_')[2][:-6]}"
    number = __import__("zlib").crc32(forged.encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[digit] + digits
    assert apikey.is_well_formed(forged + digits)
    said: set[str] = set()
    for guess in (
        forged + digits,
        text.upper(),
        f"{text}=",
        f"{text}==",
        f"mrb_{text}",
        text.replace("mrb_", "mrb-"),
        text[:-1],
        f"{text}~",
        apikey.new().text,
    ):
        answer = await siege.v1("GET", "resources", headers={"authorization": f"Bearer {guess}"})
        assert answer.status_code == 401
        if guess.startswith("mrb_"):
            said.add(answer.text)
    assert len(said) == 1, "one unknown key is told from another"


@trick("a key of one's own for the other's tenant, by the body of a request")
async def _(siege: Siege) -> None:
    boss = await siege.yard.key(siege.own, "boss", ["admin"])
    root = f"http://127.0.0.1:{siege.yard.fleet[1].internal_port}/admin/v1/tenants"
    headers = {"authorization": f"Bearer {boss}"}
    body = {"name": "new", "scopes": ["resources:read"], "tenant": siege.tenant}
    await siege.attacker.http.post(
        f"{root}/{siege.own}/keys?tenant={siege.tenant}", json=body, headers=headers
    )
    for path in (f"/{siege.own};/{siege.tenant}/keys", f"//{siege.tenant}/keys", f"/{siege.tenant}/keys/"):
        answer = await siege.attacker.http.post(root + path, json=body, headers=headers)
        assert answer.status_code in (400, 404)
    # The key that may administer may do nothing else.
    answer = await siege.v1("GET", "resources", headers=headers)
    assert answer.status_code == 403


# -- what really was the other's ---------------------------------------------------------------------------


async def first_page(siege: Siege, caller: Any, method: str = "resources/list") -> str:
    """Return the cursor behind a caller's first page."""
    message, headers = caller.modern()._request(method, {}, 1)
    return (await caller.http.post(caller.url, json=message, headers=headers)).json()["result"]["nextCursor"]


@trick("a real list cursor of the other's")
async def _(siege: Siege) -> None:
    cursor = await first_page(siege, siege.victim)
    for number in range(3):
        await siege.attacker.publish(f"mine://{number}", "x")
    own = await first_page(siege, siege.attacker)
    made_up = cursor[:-4] + "AAAA"
    session = await siege.own_session()
    answers: list[tuple[int, str]] = []
    for given in (cursor, made_up, cursor[: len(own) // 2] + own[len(own) // 2 :]):
        for method in ("resources/list", "resources/templates/list"):
            answer = await siege.modern(method, cursor=given)
            answers.append((answer.status_code, answer.json()["error"]["message"]))
            told = (await siege.rpc(method, session.headers(), cursor=given)).json()
            assert told["error"]["message"] == answer.json()["error"]["message"]
    assert len(set(answers)) == 1, "the other's cursor is told from nobody's"
    assert "result" in (await siege.modern("resources/list", cursor=own)).json()


@trick("the other's cursor of the publishing API")
async def _(siege: Siege) -> None:
    page = await siege.victim.http.get(f"{siege.victim.api}/resources", params={"limit": "1"})
    await siege.attacker.publish("wault://mine", "x")
    cursor = page.json()["nextCursor"]
    listed = (await siege.v1("GET", "resources", params={"cursor": cursor})).json()["resources"]
    assert [one["uri"] for one in listed] == ["wault://mine"]
    siege.loot[:] = siege.loot.replace(HIDDEN.encode(), b"-") if HIDDEN in cursor else siege.loot


@trick("an event id of one's own session that claims everything")
async def _(siege: Siege) -> None:
    session = await siege.own_session()
    await session.subscribe(LAST)
    stream = await session.get_stream()
    await siege.attacker.publish(LAST, "x")
    await stream.cue(LAST)
    tag, epoch, number = (
        (stream.last_id or "").split(".") if (stream.last_id or "").count(".") == 2 else ("", "", "0")
    )
    await stream.close()
    victim_parts = siege.last_event_id.split(".")
    for bent in (
        f"{tag}.{epoch}.{int(number or 0) + 10**12}",
        f"{tag}.{epoch}.{10**30}",
        ".".join([tag, *victim_parts[1:]]),
        "\u0661.\u0662.\u0663",
    ):
        again = await session.get_stream(
            base64.b64encode(bent.encode()).decode() if not bent.isascii() else bent
        )
        siege.loot += bytes(again.raw)
        assert set(again.cues) <= {LAST}
        await again.close()


# -- workers -----------------------------------------------------------------------------------------------


@trick("a worker of the same group and template as the other's, asked at the same moment")
async def _(siege: Siege) -> None:
    gate = asyncio.Event()
    asked: list[str] = []

    def worker_of(tenant: str) -> Worker:
        worker = Worker("twins", tenant=tenant)

        @worker.resource("twin://{name}", personal=False)
        async def _twin(name: str, ctx: Context) -> str:
            asked.append(ctx.tenant)
            await gate.wait()
            return f"{tenant} says {name} to {ctx.tenant}"

        @worker.complete("twin://{name}", "name")
        def _names(typed: str) -> list[str]:
            return [f"{typed}{tenant}"]

        return worker

    fleet = siege.yard.fleet
    workers = [worker_of(tenant) for tenant in (siege.tenant, siege.own)]
    async with serving(*workers, url=fleet.redis_url, prefix=fleet.prefix):
        reads = [
            asyncio.create_task(who.modern().read("twin://x"))
            for who in (siege.victim, siege.attacker)
            for _ in range(3)
        ]
        await until(lambda: len(set(asked)) == 2, "both to be asked")
        gate.set()
        texts = [(await read)[0]["text"] for read in reads]
        for tenant, own in ((siege.tenant, texts[:3]), (siege.own, texts[3:])):
            assert set(own) == {f"{tenant} says x to {tenant}"}
        ref = {"type": "ref/resource", "uri": "twin://{name}"}
        answer = await siege.modern(
            "completion/complete",
            ref=ref,
            argument={"name": "name", "value": "a"},
            context={"arguments": {"tenant": siege.tenant, "name": siege.tenant}},
        )
        assert answer.json()["result"]["completion"]["values"] == [f"a{siege.own}"]
    await siege.remember()


@trick("watching what the other's worker wants to know of")
async def _(siege: Siege) -> None:
    watched: list[str] = []
    worker = Worker("demand", tenant=siege.tenant)

    @worker.resource("far://{name}")
    def _far(name: str) -> str:
        return name

    @worker.on_watched("far://{name}")
    def _on(uri: str) -> None:
        watched.append(uri)

    fleet = siege.yard.fleet
    async with serving(worker, url=fleet.redis_url, prefix=fleet.prefix):
        async with await siege.attacker.modern().listen(["far://evil", LAST]):
            session = await siege.own_session()
            await session.subscribe("far://evil")
            async with await siege.victim.modern().listen(["far://good"]):
                await until(lambda: "far://good" in watched, "the victim's interest to be told")
        assert set(watched) == {"far://good"}
    await siege.remember()


# -- windows -----------------------------------------------------------------------------------------------


@trick("refusals of one's own limits while the other uses much and little")
async def _(siege: Siege) -> None:
    await siege.yard.control.limit("test", siege.own, {"streams": 1, "resources": 1, "sessions": 1})
    await siege.attacker.publish("mine://1", "x")
    held = await siege.attacker.modern().listen([LAST])
    await siege.own_session()

    async def refusals() -> list[str]:
        told: list[str] = []
        for work in (siege.attacker.modern().listen([LAST]), siege.own_session()):
            with pytest.raises(RpcError) as refused:
                await work
            told.append(refused.value.message)
        told.append((await siege.attacker.publish("mine://2", "x")).json()["error"]["message"])
        return told

    before = await refusals()
    others = [await siege.victim.modern().listen([SHARED]) for _ in range(5)]
    assert await refusals() == before
    for stream in (*others, held):
        await stream.close()


@trick("JSON that is deep, huge, doubled or strange")
async def _(siege: Siege) -> None:
    _, headers = siege.request("resources/read", uri=SHARED)
    deep = '{"a":' * 50_000 + "1" + "}" * 50_000
    two = '"params":{"uri":"mine://x","uri":"vault://shared"}'
    for body in (
        "[" * 100_000,
        f'{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{deep}}}',
        f'{{"jsonrpc":"2.0","id":1,"method":"resources/read",{two}}}',
        f'{{"jsonrpc":"2.0","id":{"9" * 5000},"method":"resources/read","params":{{}}}}',
        '{"jsonrpc":"2.0","id":1e999,"method":"resources/read","params":{}}',
        '{"jsonrpc":"2.0","id":{"a":1},"method":"resources/read"}',
        f'{{"jsonrpc":"2.0","id":"\\ud800{siege.session.session[:4]}","method":"x"}}',
    ):
        answer = await siege.attacker.http.post(siege.attacker.url, content=body, headers=headers)
        assert answer.status_code != 500
        assert "error" in answer.json()
        told = await siege.v1("POST", "publish", content=body)
        assert 400 <= told.status_code < 500


@trick("an id of a request that would be another header")
async def _(siege: Siege) -> None:
    for value in ("a\tb", "x" * 5000, "é", "a, b", siege.session.session):
        answer = await siege.v1("GET", "nothing", headers={"x-request-id": value.encode()})
        assert len(answer.headers.get("x-request-id", "")) < 200


@trick("a rule that nobody fulfils, and subjects that are patterns")
async def _(siege: Siege) -> None:
    for subjects in ([], ["*"], ["key:*"], [f"{siege.tenant}"], ['"'], ["key:both key:x"]):
        resource = {"uri": "mine://ruled", "text": "x", "subjects": subjects}
        await siege.v1("POST", "publish", json={"resources": [resource]})
        answer = await siege.modern("resources/read", uri="mine://ruled")
        assert "error" in answer.json(), subjects


@pytest.mark.parametrize("name", TRICKS)
async def test_the_wall_holds_against(siege: Siege, name: str) -> None:
    await TRICKS[name](siege)


def test_there_are_twenty_more() -> None:
    assert len(TRICKS) >= 20


async def test_theirs_and_nobodys_cost_redis_the_same_at_the_other_ways_in(siege: Siege) -> None:
    root = siege.attacker.url.removesuffix("/mcp")
    message, headers = siege.request("resources/list")

    def at(tenant: str) -> Callable[[], Awaitable[Any]]:
        return lambda: siege.attacker.http.post(f"{root}/t/{tenant}/mcp", json=message, headers=headers)

    def completing(template: str) -> Callable[[], Awaitable[Any]]:
        ref = {"type": "ref/resource", "uri": template}
        return lambda: siege.modern("completion/complete", ref=ref, argument={"name": "box", "value": "x"})

    def v1(method: str, uri: str) -> Callable[[], Awaitable[Any]]:
        return lambda: siege.v1(method, "resources", params={"uri": uri})

    async def listening(uri: str) -> None:
        await (await siege.attacker.modern().listen([uri])).close()

    (victim,) = (await siege.yard.control.keys(siege.tenant)).values()
    cursor = await first_page(siege, siege.victim)
    pairs: dict[str, tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]]]] = {
        "an address": (at(siege.tenant), at("nobody-at-all")),
        "a completion": (completing("vault://{box}"), completing("nobody://{box}")),
        "a look over HTTP": (v1("GET", SHARED), v1("GET", "vault://nobody")),
        "a removal": (v1("DELETE", SHARED), v1("DELETE", "vault://nobody")),
        "a listen": (lambda: listening(SHARED), lambda: listening("vault://nobody")),
        "a cursor": (
            lambda: siege.modern("resources/list", cursor=cursor),
            lambda: siege.modern("resources/list", cursor=cursor[:-4] + "AAAA"),
        ),
    }
    assert victim.tenant == siege.tenant
    for name, (theirs, nobodys) in pairs.items():
        counts = await commands_of(siege.yard, theirs), await commands_of(siege.yard, nobodys)
        assert counts[0] == counts[1], name
