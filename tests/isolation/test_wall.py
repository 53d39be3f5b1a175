"""The wall between tenants (promises 7 and 8): each trick of a tenant with a valid credential is a test.

Whatever it does, not a byte of the other tenant's contents, names or hidden URIs comes back (`Siege.loot`),
and afterwards the other one has everything it had: its list, contents, session, subscriptions, streams and
keys, and hears of its next change exactly once.
"""

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.core import apikey
from broker.core.identity import ResourceKey
from broker.wire.extension import KNOWN, TOKEN
from tests.isolation.siege import HIDDEN, LAST, MARK, SHARED, Siege, commands_of

Trick = Callable[[Siege], Awaitable[Any]]
TRICKS: dict[str, Trick] = {}


def trick(name: str) -> Callable[[Trick], Trick]:
    def add(function: Trick) -> Trick:
        assert name not in TRICKS
        TRICKS[name] = function
        return function

    return add


# -- sessions ----------------------------------------------------------------------------------------------

for method, params in {
    "resources/read": {"uri": SHARED},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/subscribe": {"uri": SHARED},
    "resources/unsubscribe": {"uri": SHARED},
    "completion/complete": {
        "ref": {"type": "ref/resource", "uri": "vault://{box}"},
        "argument": {"name": "box", "value": ""},
    },
    "ping": {},
    "logging/setLevel": {"level": "debug"},
}.items():

    @trick(f"a foreign session asks for {method}")
    async def _(siege: Siege, method: str = method, params: Any = params) -> None:
        answer = await siege.rpc(method, **params)
        unknown = await siege.rpc(method, {"mcp-session-id": "A" * 43}, **params)
        assert (answer.status_code, answer.content) == (unknown.status_code, unknown.content)
        assert answer.status_code == 404


@trick("a foreign session gets a notification")
async def _(siege: Siege) -> None:
    headers = siege.session.headers()
    answer = await siege.attacker.http.post(
        siege.attacker.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers
    )
    assert answer.status_code == 404


@trick("a foreign session gets a batch")
async def _(siege: Siege) -> None:
    message = [{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}]
    answer = await siege.attacker.http.post(siege.attacker.url, json=message, headers=siege.session.headers())
    assert answer.status_code == 404


@trick("a foreign session is ended")
async def _(siege: Siege) -> None:
    answer = await siege.attacker.http.delete(siege.attacker.url, headers=siege.session.headers())
    assert answer.status_code == 404


@trick("a foreign session's stream is taken")
async def _(siege: Siege) -> None:
    headers = siege.session.headers(accept="text/event-stream")
    answer = await siege.attacker.http.get(siege.attacker.url, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")


@trick("a foreign session's stream is resumed by its last event id")
async def _(siege: Siege) -> None:
    headers = siege.session.headers(accept="text/event-stream") | {"last-event-id": siege.last_event_id}
    assert (await siege.attacker.http.get(siege.attacker.url, headers=headers)).status_code == 404


@trick("a foreign last event id is presented in one's own session")
async def _(siege: Siege) -> None:
    session = await siege.own_session()
    await session.subscribe(LAST)
    stream = await session.get_stream(siege.last_event_id)
    await siege.attacker.publish(LAST, "x")
    await stream.cue(LAST)
    siege.loot += bytes(stream.raw)
    assert set(stream.cues) == {LAST}
    await stream.close()


@trick("a subscription in one's own session to the same URI")
async def _(siege: Siege) -> None:
    session = await siege.own_session()
    await session.subscribe(SHARED)
    await session.subscribe(LAST)
    stream = await session.get_stream()
    await siege.publish()
    await siege.attacker.publish(LAST, "x")
    await stream.cue(LAST)
    siege.loot += bytes(stream.raw)
    assert set(stream.cues) == {LAST}
    await stream.close()
    await siege.settle()


@trick("initialize with a foreign session id")
async def _(siege: Siege) -> None:
    client = {"name": "x", "version": "1"}
    answer = await siege.rpc("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
    assert answer.headers["mcp-session-id"] != siege.session.session


@trick("a modern request with a foreign session id")
async def _(siege: Siege) -> None:
    await siege.read(SHARED, **{"mcp-session-id": siege.session.session})


for bent in ("*", "?" * 43, "{x}", ":", "..", "a" * 10_000, "%2e" * 14):

    @trick(f"a session id that acts as a pattern or path: {bent[:6]}")
    async def _(siege: Siege, bent: str = bent) -> None:
        assert (await siege.rpc("resources/list", {"mcp-session-id": bent})).status_code == 404


# -- URIs --------------------------------------------------------------------------------------------------

URIS: dict[str, Callable[[Siege], str]] = {
    "itself": lambda _: SHARED,
    "behind the tenant and a colon": lambda s: f"{s.tenant}:{SHARED}",
    "behind the tenant and a slash": lambda s: f"{s.tenant}/{SHARED}",
    "with the tenant as its authority": lambda s: f"vault://{s.tenant}@shared",
    "percent-encoded": lambda _: "vault:%2F%2Fshared",
    "percent-encoded twice": lambda _: "vault:%252F%252Fshared",
    "behind dots": lambda s: f"vault://x/../../{s.tenant}/vault://shared",
    "as a key of Redis": lambda s: s.yard.keys.resource(ResourceKey(s.tenant, SHARED)),
    "as the rest of a key": lambda s: f"x:res:{s.tenant}:{SHARED}",
    "as a pattern": lambda _: "vault://*",
    "as another pattern": lambda _: "vault://[a-z]*",
    "in upper case": lambda _: SHARED.upper(),
    "with a NUL behind it": lambda _: f"{SHARED}\0",
    "with a line break behind it": lambda _: f"{SHARED}\r\nX: y",
    "with a blank in front": lambda _: f" {SHARED}",
    "as the list itself": lambda _: "@list",
    "as the list of access": lambda _: "@access",
    "with a fragment": lambda _: f"{SHARED}#x",
    "with an empty query": lambda _: f"{SHARED}?",
    "with a hash tag": lambda s: (
        f"{{{s.yard.keys.tags[s.yard.keys.shard(s.tenant)]}}}:res:{s.tenant}:{SHARED}"
    ),
    "that a template of the other would match": lambda _: "vault://anything",
}
for name, uri_of in URIS.items():

    @trick(f"a read of the URI {name}")
    async def _(siege: Siege, uri_of: Callable[[Siege], str] = uri_of) -> None:
        uri = uri_of(siege)
        await siege.read(uri)
        session = await siege.own_session()
        answer = await siege.rpc("resources/read", session.headers(), uri=uri)
        assert "error" in answer.json()
        # What is asked for over HTTP need not be an error: it must be nobody else's.
        await siege.v1("GET", "resources", params={"uri": uri})


LISTENED = (
    "itself",
    "as a key of Redis",
    "as a pattern",
    "behind the tenant and a colon",
    "as the list itself",
)
for name in LISTENED:

    @trick(f"a listen on the URI {name}")
    async def _(siege: Siege, uri_of: Callable[[Siege], str] = URIS[name]) -> None:
        await siege.listens([uri_of(siege)])


@trick("a listen on the list")
async def _(siege: Siege) -> None:
    stream = await siege.attacker.modern().listen([LAST], wants_list=True)
    await siege.victim.publish("vault://new", "x")
    await siege.victim.http.delete(f"{siege.victim.api}/resources", params={"uri": "vault://new"})
    await siege.attacker.publish(LAST, "x")
    await stream.cue(LAST)
    assert stream.list_changes <= 1
    siege.loot += bytes(stream.stream.raw)
    await stream.close()
    await siege.remember()


# -- writing -----------------------------------------------------------------------------------------------


@trick("publishing under the same URI")
async def _(siege: Siege) -> None:
    assert (await siege.attacker.publish(SHARED, "mine")).json()["status"] == "published"


@trick("removing the same URI")
async def _(siege: Siege) -> None:
    answer = await siege.v1("DELETE", "resources", params={"uri": SHARED})
    assert answer.json()["status"] == "absent"


@trick("touching the same URI")
async def _(siege: Siege) -> None:
    assert (await siege.v1("POST", "touch", json={"uri": SHARED})).status_code == 200


@trick("a version that would make the other's publishes too old")
async def _(siege: Siege) -> None:
    await siege.attacker.publish(SHARED, "mine", version=2**52)
    assert (await siege.victim.publish(HIDDEN, f"{MARK} {HIDDEN}", name=f"{MARK}-name")).status_code == 200


@trick("a revision of the other's as a condition")
async def _(siege: Siege) -> None:
    answer = await siege.v1(
        "PUT",
        "resources",
        params={"uri": SHARED},
        content="x",
        headers={"if-match": f'"{siege.revisions[SHARED]}"', "content-type": "text/plain"},
    )
    nothing = await siege.v1(
        "PUT",
        "resources",
        params={"uri": SHARED},
        content="x",
        headers={"if-match": '"e.1.m"', "content-type": "text/plain"},
    )
    assert (answer.status_code, answer.content) == (nothing.status_code, nothing.content)


for verb in ("PUT", "DELETE", "POST"):

    @trick(f"the other's idempotency key with {verb}")
    async def _(siege: Siege, verb: str = verb) -> None:
        headers = {"idempotency-key": "order-1", "content-type": "text/plain"}
        if verb == "POST":
            answer = await siege.v1("POST", "touch", json={"uri": SHARED}, headers=headers)
        else:
            content = "mine" if verb == "PUT" else None
            answer = await siege.v1(
                verb, "resources", params={"uri": SHARED}, content=content, headers=headers
            )
        assert answer.json()["status"] in {"published", "absent", "touched"}


for member in ("tenant", "tenantId", "principal", "subject"):

    @trick(f"a publish whose body says {member}")
    async def _(siege: Siege, member: str = member) -> None:
        resource = {"uri": SHARED, "text": "x", member: siege.tenant}
        answer = await siege.v1("POST", "publish", json={"resources": [resource], member: siege.tenant})
        assert "error" in answer.json()["results"][0]


@trick("a publish whose query names a tenant")
async def _(siege: Siege) -> None:
    answer = await siege.v1("PUT", "resources", params={"uri": SHARED, "tenant": siege.tenant}, content="x")
    assert answer.status_code == 400


@trick("an allow-list with the other's subject")
async def _(siege: Siege) -> None:
    resource = {"uri": SHARED, "text": "x", "subjects": ["key:both", f"{siege.tenant}:key:both"]}
    await siege.v1("POST", "publish", json={"resources": [resource]})


# -- naming the other tenant -------------------------------------------------------------------------------

for header in ("broker-tenant", "x-tenant", "x-tenant-id", "x-forwarded-user", "tenant"):

    @trick(f"the header {header} names the other")
    async def _(siege: Siege, header: str = header) -> None:
        await siege.read(SHARED, **{header: siege.tenant})
        assert (await siege.v1("GET", "resources", headers={header: siege.tenant})).json() == {
            "resources": []
        }


@trick("the _meta of a request names the other")
async def _(siege: Siege) -> None:
    await siege.modern("resources/read", meta={"tenant": siege.tenant}, uri=SHARED)
    await siege.modern("resources/list", meta={"org.resource-broker/tenant": siege.tenant})


for path in (
    "/t/{}/mcp",
    "/t/{}/mcp/",
    "/t/{}/../{}/mcp",
    "/t/x%2F..%2F{}/mcp",
    "/t//{}/mcp",
    "//t/{}/mcp",
    "/T/{}/mcp",
    "/t/{}%00/mcp",
    "/mcp/t/{}",
    "/mcp?tenant={}",
    "/mcp;tenant={}",
    "/t/{}/v1/resources",
):

    @trick(f"the address {path}")
    async def _(siege: Siege, path: str = path) -> None:
        for uri in (SHARED, HIDDEN[:5]):
            message, headers = siege.request("resources/read", uri=uri)
            answer = await siege.attacker.http.post(
                siege.attacker.url.removesuffix("/mcp") + path.replace("{}", siege.tenant),
                json=message,
                headers=headers,
            )
            assert answer.status_code != 200 or "error" in answer.json()


@trick("two credentials in one header")
async def _(siege: Siege) -> None:
    headers = {"authorization": f"Bearer {siege.attacker.token}, Bearer {apikey.new().text}"}
    assert (await siege.v1("GET", "resources", headers=headers)).status_code == 401


@trick("the digest of the other's key as a key")
async def _(siege: Siege) -> None:
    for digest, key in (await siege.yard.control.keys(siege.tenant)).items():
        for guess in (digest, f"mrb_{key.id}_{digest[:49]}", f"mrb_{key.id}", key.name, key.subject):
            answer = await siege.v1("GET", "resources", headers={"authorization": f"Bearer {guess}"})
            assert answer.status_code == 401


@trick("one's own secret behind the id of the other's key")
async def _(siege: Siege) -> None:
    (key,) = (await siege.yard.control.keys(siege.tenant)).values()
    _, _, secret = (siege.attacker.token or "").split("_")
    answer = await siege.v1("GET", "resources", headers={"authorization": f"Bearer mrb_{key.id}_{secret}"})
    assert answer.status_code == 401


# -- what is handed out and comes back ---------------------------------------------------------------------


@trick("a list cursor of the other's")
async def _(siege: Siege) -> None:
    for number in range(3):
        await siege.attacker.publish(f"mine://{number}", "x")
    raw = base64.urlsafe_b64encode(b"\0" * 16 + SHARED.encode()).rstrip(b"=").decode()
    for cursor in (raw, base64.urlsafe_b64encode(SHARED.encode()).decode(), SHARED, ""):
        assert "error" in (await siege.modern("resources/list", cursor=cursor)).json()
        await siege.v1("GET", "resources", params={"cursor": cursor})


@trick("an acknowledgement's token of the other's")
async def _(siege: Siege) -> None:
    await siege.listens([SHARED, HIDDEN[:5] + "//x"], {TOKEN: siege.token})


@trick("the other's revisions to catch up from")
async def _(siege: Siege) -> None:
    stream = await siege.attacker.modern().listen(
        [SHARED, LAST], meta={KNOWN: {SHARED: siege.revisions[SHARED]}}
    )
    await siege.attacker.publish(LAST, "x")
    await stream.cue(LAST)
    siege.loot += bytes(stream.stream.raw)
    # Whoever claims to have seen something is told that it is no more, whatever it was.
    assert set(stream.cues) <= {SHARED, LAST}
    await stream.close()


@trick("a completion of the other's template")
async def _(siege: Siege) -> None:
    ref = {"type": "ref/resource", "uri": "vault://{box}"}
    for prefix in ("", "h", "hidden"):
        argument = {"name": "box", "value": prefix}
        answer = await siege.modern("completion/complete", ref=ref, argument=argument)
        assert answer.json()["result"]["completion"]["values"] == []


@trick("the list of templates")
async def _(siege: Siege) -> None:
    answer = await siege.modern("resources/templates/list")
    assert answer.json()["result"]["resourceTemplates"] == []


@trick("a template capture that names the other")
async def _(siege: Siege) -> None:
    for capture in (siege.tenant, f"..%2F{siege.tenant}", f"x:{siege.tenant}:y"):
        await siege.read(f"vault://{capture}")


# -- around it ---------------------------------------------------------------------------------------------


@trick("error texts")
async def _(siege: Siege) -> None:
    for uri in (SHARED, HIDDEN[:9], "vault://nobody"):
        answer = (await siege.read(uri)).json()["error"]
        assert answer["message"] == f"There is no resource {uri!r}."


@trick("the metrics")
async def _(siege: Siege) -> None:
    for replica in siege.yard.fleet.replicas:
        status, page = replica.health("metrics")
        assert status == 200
        for word in (siege.tenant, "vault", MARK, siege.session.session):
            assert word not in page


@trick("the administrators' API with a key of one's own tenant")
async def _(siege: Siege) -> None:
    key = await siege.yard.key(siege.own, "boss", ["admin"])
    root = f"http://127.0.0.1:{siege.yard.fleet[1].internal_port}/admin/v1/tenants"
    for method, path in (
        ("GET", f"/{siege.tenant}/keys"),
        ("POST", f"/{siege.tenant}/keys"),
        ("DELETE", f"/{siege.tenant}/keys/both"),
        ("POST", f"/{siege.tenant}/keys/both/rotate"),
        ("GET", f"/{siege.own}/../{siege.tenant}/keys"),
        ("GET", f"/{siege.own}%2F..%2F{siege.tenant}/keys"),
        ("DELETE", f"/{siege.tenant}"),
        ("POST", f"/{siege.tenant}/suspend"),
    ):
        answer = await siege.attacker.http.request(
            method, root + path, headers={"authorization": f"Bearer {key}"}
        )
        assert answer.status_code == 404, (method, path)


@trick("the pages for operators")
async def _(siege: Siege) -> None:
    for path in ("/docs", "/openapi.json", "/metrics", "/streams", "/admin/v1/tenants", "/readyz"):
        await siege.attacker.http.get(siege.attacker.url.removesuffix("/mcp") + path)


@trick("using up one's own limits")
async def _(siege: Siege) -> None:
    await siege.yard.control.limit("test", siege.own, {"publishes": 1, "reads": 1, "streams": 1})
    for number in range(20):
        await siege.attacker.publish(f"mine://{number}", "x")
        await siege.modern("resources/list")
    for _ in range(5):
        answer = await siege.victim.publish(HIDDEN, f"{MARK} {HIDDEN}", name=f"{MARK}-name")
        assert (answer.status_code, answer.json()["status"]) == (200, "unchanged")
        await siege.victim.modern().read(HIDDEN)


@trick("ending one's own tenant")
async def _(siege: Siege) -> None:
    await siege.yard.control.condemn("test", siege.own)
    assert (await siege.v1("GET", "resources")).status_code == 401


@trick("entries of one's own making in the log")
async def _(siege: Siege) -> None:
    """As somebody would who got at Redis with a worker's credentials: what is no entry of ours is skipped."""
    redis: Any = siege.yard.redis
    log = siege.yard.keys.log(siege.yard.keys.log_number(siege.tenant))
    last = int((await redis.xinfo_stream(log))["last-generated-id"].partition(b"-")[0])
    await redis.xadd(log, {"t": siege.tenant, "k": "?", "u": SHARED, "session": "x"}, id=f"{last + 1}-0")
    await redis.hincrby(siege.yard.keys.head(siege.yard.keys.log_number(siege.tenant)), "n", 1)


@pytest.mark.parametrize("name", TRICKS)
async def test_the_wall_holds_against(siege: Siege, name: str) -> None:
    await TRICKS[name](siege)


def test_there_are_enough_tricks() -> None:
    assert len(TRICKS) >= 60


# -- what it costs -----------------------------------------------------------------------------------------


async def test_not_yours_and_does_not_exist_cost_redis_the_same(siege: Siege) -> None:
    session = await siege.own_session()
    await siege.victim.publish("vault://scoped", "x", scopes="board")
    reader = siege.victim.modern()
    mine = siege.attacker.modern()

    async def refused(work: Awaitable[Any]) -> None:
        with pytest.raises(Exception, match="no resource"):
            await work

    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "a read of another tenant's resource": (
            lambda: refused(mine.read(SHARED)),
            lambda: refused(mine.read("vault://nobody")),
        ),
        "a read of a forbidden resource": (
            lambda: refused(reader.read("vault://scoped")),
            lambda: refused(reader.read("other://nobody")),
        ),
        "a read in a session": (
            lambda: refused(session.read(SHARED)),
            lambda: refused(session.read("vault://nobody")),
        ),
        "another tenant's session": (
            lambda: siege.rpc("ping"),
            lambda: siege.rpc("ping", {"mcp-session-id": "A" * 43}),
        ),
        "another tenant's session's end": (
            lambda: siege.attacker.http.delete(siege.attacker.url, headers=siege.session.headers()),
            lambda: siege.attacker.http.delete(
                siege.attacker.url, headers=siege.session.headers() | {"mcp-session-id": "A" * 43}
            ),
        ),
        "a subscription": (lambda: session.subscribe(SHARED), lambda: session.subscribe("vault://nobody")),
    }
    for name, (not_yours, nobodys) in pairs.items():
        counts = await commands_of(siege.yard, not_yours), await commands_of(siege.yard, nobodys)
        assert counts[0] == counts[1], name
    await siege.victim.http.delete(f"{siege.victim.api}/resources", params={"uri": "vault://scoped"})
    await siege.remember()
