"""OAuth on a running fleet: challenge and metadata, sessions over refreshed tokens, ends of streams."""

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from broker.core.errors import Misconfigured
from broker.http.auth.challenge import Challenge, canonical
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.support.mcp import RpcError
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.tenants.issuer import RESOURCE, Issuer
from tests.tenants.yard import Caller, Yard, yard_of

U = "docs://readme"


@dataclass
class Town:
    """A fleet with an authorization server."""

    issuer: Issuer
    yard: Yard
    tenant: str

    def caller(self, replica: int = 0, **claims: Any) -> Caller:
        return self.yard.caller(self.issuer.token(None, None, **{"org": self.tenant, **claims}), replica)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def oauth_fleet(redis_server: RedisServer, issuer: Issuer) -> Iterator[Fleet]:
    prefix = f"t{secrets.token_hex(4)}"
    settings = {
        "BROKER_AUTH__MODE": "keys+oauth",
        "BROKER_OAUTH__RESOURCE": RESOURCE,
        "BROKER_OAUTH__ISSUERS": json.dumps([issuer.settings(tenant_claim="org")]),
        "BROKER_OAUTH__LEEWAY_SECONDS": "1",
    }
    with Fleet(redis_server.url, prefix, **settings) as fleet:
        fleet.add(2)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture
async def town(oauth_fleet: Fleet, issuer: Issuer, tenant: str) -> AsyncIterator[Town]:
    redis = commands(Connect(oauth_fleet.redis_url, Keys(oauth_fleet.prefix)))
    async with yard_of(oauth_fleet, redis) as yard:
        await yard.tenant(tenant)
        yield Town(issuer, yard, tenant)
    await redis.aclose()


# -- challenge and metadata --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://h/mcp", "https://h/mcp"),
        ("https://h", "https://h"),
        ("https://H/mcp", "https://h/mcp"),
        ("HTTPS://H:8443/A/mcp/", "https://h:8443/A/mcp/"),
    ],
)
def test_the_resource_is_the_string_that_was_set_but_for_the_case_of_the_host(given: str, shown: str) -> None:
    document = json.loads(
        Challenge(canonical(given)).metadata("/.well-known/oauth-protected-resource") or b""
    )
    assert document["resource"] == shown


@pytest.mark.parametrize(
    "given", ["", "h/mcp", "ftp://h/mcp", "https://h/mcp?a=1", "https://h/#x", "https://u@h/"]
)
def test_a_resource_that_is_no_address_of_ours_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(Misconfigured, match="BROKER_OAUTH__RESOURCE"):
        canonical(given)


def test_behind_a_prefix_the_metadata_is_where_the_challenge_says() -> None:
    challenge = Challenge("https://h/team1/mcp", ["https://as"])
    assert challenge.metadata_url() == "https://h/.well-known/oauth-protected-resource/team1/mcp"
    assert challenge.metadata("/.well-known/oauth-protected-resource/team1/mcp") is not None
    assert challenge.metadata("/.well-known/oauth-protected-resource/team2/mcp") is None


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("token", [None, "a.b.c"])
async def test_the_challenge_names_metadata_that_is_there(town: Town, method: str, token: str | None) -> None:
    caller = town.yard.caller(token)
    answer = await caller.http.request(method, caller.url)
    assert answer.status_code == 401
    challenge = answer.headers["www-authenticate"]
    where = 'resource_metadata="https://mcp.example.org/.well-known/oauth-protected-resource/mcp"'
    assert where in challenge
    assert 'scope="resources:read"' in challenge
    assert ('error="invalid_token"' in challenge) == (token is not None)
    path = "/.well-known/oauth-protected-resource/mcp"
    document = await town.yard.caller(None).http.get(caller.url.removesuffix("/mcp") + path)
    assert document.json() == {
        "resource": RESOURCE,
        "authorization_servers": [town.issuer.name],
        "scopes_supported": ["resources:read", "resources:publish"],
        "bearer_methods_supported": ["header"],
        "resource_name": "MCP resource broker",
    }
    assert document.headers["access-control-allow-origin"] == "*"


async def test_a_tenants_own_address_has_metadata_of_its_own_whether_or_not_it_exists(town: Town) -> None:
    nobody = town.yard.caller(None)
    origin = nobody.url.removesuffix("/mcp")
    for name, segment in ((town.tenant, town.tenant), ("never-made", "never-made"), ("a/b", "a%2Fb")):
        answer = await nobody.http.post(f"{origin}/t/{segment}/mcp")
        path = f"/.well-known/oauth-protected-resource/t/{segment}/mcp"
        assert f'resource_metadata="https://mcp.example.org{path}"' in answer.headers["www-authenticate"], (
            name
        )
        document = await nobody.http.get(origin + path)
        assert document.json()["resource"] == f"https://mcp.example.org/t/{segment}/mcp"


async def test_a_missing_scope_is_403_and_is_named(town: Town) -> None:
    caller = town.caller(scope="resources:publish")
    answer = await caller.http.post(caller.url, json={})
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert 'scope="resources:read"' in answer.headers["www-authenticate"]


async def test_a_tenant_that_was_not_made_is_403_without_a_challenge(town: Town) -> None:
    caller = town.caller(org="never-made")
    answer = await caller.http.post(caller.url, json={})
    assert (answer.status_code, "www-authenticate" in answer.headers) == (403, False)


# -- addresses ---------------------------------------------------------------------------------------------


async def test_the_tenants_own_address_serves_its_credential(town: Town) -> None:
    caller = town.caller()
    await caller.publish(U, "hello")
    own = caller.url.removesuffix("/mcp") + f"/t/{town.tenant}/mcp"
    assert (await caller.modern(own).read(U))[0]["text"] == "hello"
    async with caller.handshake(own + "/") as session:
        assert (await session.read(U))[0]["text"] == "hello"


async def test_another_tenants_address_is_answered_like_one_that_is_nobodys(town: Town) -> None:
    other = await town.yard.tenant(f"{town.tenant}-other")
    caller = town.caller()
    origin = caller.url.removesuffix("/mcp")
    answers = [await caller.http.post(f"{origin}/t/{name}/mcp", json={}) for name in (other, "never-made")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content
    assert answers[0].headers.keys() == answers[1].headers.keys()


# -- sessions and streams ----------------------------------------------------------------------------------


async def test_a_refreshed_token_goes_on_with_the_session_and_another_subject_does_not(town: Town) -> None:
    first = town.caller()
    await first.publish(U, "1")
    async with first.handshake() as session:
        await session.subscribe(U)
        later = town.caller(1, exp=int(time.time()) + 1200).handshake()
        later.session = session.session
        assert (await later.read(U))[0]["text"] == "1"
        stream = await later.get_stream()
        await first.publish(U, "2")
        await stream.cue(U)
        stranger = town.caller(sub="mallory").handshake()
        stranger.session = session.session
        with pytest.raises(RpcError) as refused:
            await stranger.read(U)
        assert refused.value.status == 404
        await later.close()


async def test_streams_end_cleanly_just_before_their_token_does(town: Town) -> None:
    expires = int(time.time()) + 3
    caller = town.caller(exp=expires)
    async with caller.handshake() as session:
        await session.subscribe(U)
        stream = await session.get_stream()
        async with await caller.modern().listen([U]) as listening:
            assert (await stream.end(), await listening.end()) == ("clean", "clean")
            assert listening.result is not None
            assert expires - 2 <= time.time() <= expires + 1
        assert any(frame.retry is not None for frame in stream.frames)


async def test_a_token_that_expires_while_a_stream_opens_leaves_nothing(town: Town) -> None:
    caller = town.caller(exp=int(time.time()))
    async with await caller.modern().listen([U]) as listening:
        assert await listening.end(5) == "clean"
