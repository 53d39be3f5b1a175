"""The administrators' API on the internal port."""

import secrets
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from broker.core.identity import TenantId
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer, clear, keys_of
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.tenants.yard import Yard, http_with, yard_of

TOKEN = "t" * 40


@pytest.fixture(scope="module")
def fleet(redis_server: RedisServer) -> Iterator[Fleet]:
    prefix = f"t{secrets.token_hex(4)}"
    settings = {"BROKER_AUTH__MODE": "keys", "BROKER_ADMIN__TOKEN": TOKEN}
    with Fleet(redis_server.url, prefix, **settings) as fleet:
        fleet.add(1)
        yield fleet
        assert TOKEN not in "".join(text for _, text in fleet.logs(1000))
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture
async def here(fleet: Fleet) -> AsyncIterator[Yard]:
    redis = commands(Connect(fleet.redis_url, Keys(fleet.prefix)))
    async with yard_of(fleet, redis) as yard:
        yield yard
    await redis.aclose()


@pytest.fixture
def root(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet[0].internal_port}/admin/v1"


@pytest.fixture
async def operator() -> AsyncIterator[httpx.AsyncClient]:
    async with http_with(TOKEN) as client:
        yield client


async def test_a_tenant_lives_and_dies_by_the_api(
    redis_server: RedisServer, here: Yard, root: str, tenant: str, operator: httpx.AsyncClient
) -> None:
    url = f"{root}/tenants/{tenant}"
    made = await operator.put(url, json={"limits": {"reads": 5}})
    assert (made.status_code, made.json()["limits"]) == (201, {"reads": 5})
    assert (await operator.put(url, json={})).status_code == 409
    changed = await operator.patch(f"{url}/limits", json={"reads": None, "uris": 7})
    assert changed.json()["limits"] == {"uris": 7}
    key = (await operator.post(f"{url}/keys", json={"name": "ci", "scopes": ["resources:publish"]})).json()
    caller = here.caller(key["key"])
    assert (await caller.publish("docs://1", "x")).status_code == 200
    listed = (await operator.get(f"{url}/keys")).json()["keys"]
    assert [one["id"] for one in listed] == [key["id"]]
    assert key["key"] not in (await operator.get(f"{url}/keys")).text
    rotated = (await operator.post(f"{url}/keys/ci/rotate", json={"overlap": 0})).json()
    assert (await caller.publish("docs://1", "y")).status_code == 401
    assert (await here.caller(rotated["key"]).publish("docs://1", "y")).status_code == 200
    assert rotated["id"] in (await operator.delete(f"{url}/keys/ci")).json()["revoked"]
    assert (await operator.post(f"{url}/suspend")).status_code == 200
    assert (await operator.get(url)).json()["state"] == "suspended"
    assert (await operator.delete(url)).status_code == 202

    async def is_gone() -> bool:
        return (await operator.get(url)).status_code == 404

    await until(is_gone, "the tenant to be erased")
    with redis_server.client() as client:
        owners = [here.keys.tenant_of(key) for key, _ in keys_of(client, here.fleet.prefix)]
    assert TenantId(tenant) not in owners
    acts = [act["action"] for act in (await operator.get(f"{root}/audit")).json()["acts"]]
    assert acts[0] == "tenant.deleted"


@pytest.mark.parametrize("token", [None, "x" * 40, TOKEN[:-1], "mrb_nonsense"])
async def test_without_the_operators_token_nothing_is_there(root: str, token: str | None) -> None:
    async with http_with(token) as client:
        answer = await client.get(f"{root}/tenants")
    assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True)


async def test_a_tenants_own_administrator_sees_the_keys_of_its_tenant_and_nothing_else(
    here: Yard, root: str, tenant: str
) -> None:
    mine, theirs = await here.tenant(tenant), await here.tenant(f"{tenant}-other")
    await here.key(theirs, "theirs")
    async with http_with(await here.key(mine, "boss", ["admin"])) as client:
        made = await client.post(
            f"{root}/tenants/{mine}/keys", json={"name": "ci", "scopes": ["resources:read"]}
        )
        assert made.status_code == 201
        refused = [
            await client.request(method, f"{root}/{path}")
            for method, path in (
                ("GET", "tenants"),
                ("GET", "audit"),
                ("GET", f"tenants/{mine}"),
                ("POST", f"tenants/{mine}/resume"),
                ("GET", f"tenants/{theirs}/keys"),
                ("GET", "tenants/never-made/keys"),
                ("DELETE", f"tenants/{theirs}/keys/theirs"),
                ("DELETE", f"tenants/{theirs}"),
            )
        ]
        assert {(one.status_code, one.content) for one in refused} == {(404, refused[0].content)}
    assert len(await here.control.keys(theirs)) == 1
    async with http_with(await here.key(mine, "reader", ["resources:read"])) as client:
        assert (await client.get(f"{root}/tenants/{mine}/keys")).status_code == 403


async def test_the_api_is_not_there_where_no_token_is_set(yard: Yard) -> None:
    async with http_with(TOKEN) as client:
        answer = await client.get(f"http://127.0.0.1:{yard.fleet[0].internal_port}/admin/v1/tenants")
    assert answer.status_code == 404


async def test_the_public_port_knows_no_administration(here: Yard) -> None:
    caller = here.caller(TOKEN)
    assert (await caller.http.get(caller.url.replace("/mcp", "/admin/v1/tenants"))).status_code == 404


@pytest.mark.parametrize("body", [b"[", b"[]", b'{"limits": 5}', b'{"limits": {"reads": -1}}', b"x" * 70_000])
async def test_what_is_no_request_is_400(root: str, operator: httpx.AsyncClient, body: bytes) -> None:
    answer = await operator.put(f"{root}/tenants/bad", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
