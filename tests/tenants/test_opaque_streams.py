"""Streams of opaque tokens: what can be known of a revocation ends them, and an outage does not."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from broker.core.errors import Unavailable
from broker.core.identity import Principal, TenantId
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from broker.streams.recheck import Recheck
from tests.support.mcp import Modern, RpcError
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.support.wait import until
from tests.tenants.issuer import RESOURCE, Issuer
from tests.tenants.yard import Caller, yard_of

U, SECRET = "docs://readme", "docs://secret"
KEPT_SECONDS = 1


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def opaque_fleet(redis_server: RedisServer, issuer: Issuer) -> Iterator[Fleet]:
    prefix = f"t{secrets.token_hex(4)}"
    asked = {
        "issuer": issuer.name,
        "tenant_claim": "org",
        "introspection_url": f"{issuer.name}/introspect",
        "client_id": "broker",
        "client_secret": "s/ecret",
    }
    settings = {
        "BROKER_AUTH__MODE": "keys+oauth",
        "BROKER_OAUTH__RESOURCE": RESOURCE,
        "BROKER_OAUTH__ISSUERS": json.dumps([asked]),
        "BROKER_OAUTH__INTROSPECTION_SECONDS": str(KEPT_SECONDS),
    }
    with Fleet(redis_server.url, prefix, **settings) as fleet:
        fleet.add(1)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


class Town:
    """A tenant, a publisher with a key, and a caller with an opaque token."""

    def __init__(self, issuer: Issuer, tenant: str, publisher: Caller, caller: Caller, token: str) -> None:
        self.issuer = issuer
        self.tenant = tenant
        self.publisher = publisher
        self.caller = caller
        self.token = token

    def say(self, **claims: Any) -> None:
        """Let the issuer say this of the token."""
        self.issuer.opaque[self.token] = self.issuer.claims(active=True, org=self.tenant, **claims)


@pytest.fixture
async def town(opaque_fleet: Fleet, issuer: Issuer, tenant: str) -> AsyncIterator[Town]:
    redis = commands(Connect(opaque_fleet.redis_url, Keys(opaque_fleet.prefix)))
    async with yard_of(opaque_fleet, redis) as yard:
        await yard.tenant(tenant)
        token = secrets.token_hex(16)
        town = Town(issuer, tenant, yard.caller(await yard.key(tenant)), yard.caller(token), token)
        town.say()
        issuer.is_down = False
        yield town
    await redis.aclose()


async def test_streams_of_an_opaque_token_end_as_soon_as_its_revocation_can_be_known(town: Town) -> None:
    """They went on for up to five minutes: nobody asked about a token again but for a request."""
    async with town.caller.handshake() as session:
        await session.subscribe(U)
        stream = await session.get_stream()
        async with await town.caller.modern().listen([U]) as listening:
            town.issuer.opaque.pop(town.token)
            began = time.monotonic()
            assert (await stream.end(), await listening.end()) == ("clean", "clean")
            assert time.monotonic() - began <= KEPT_SECONDS * 1.1 + 2
            assert listening.result is not None
        with pytest.raises(RpcError) as refused:
            await session.list()
        assert refused.value.status == 401
        town.say()
        # A refusal is believed for a moment, too.
        await until(_may_list(town.caller.modern()), "the token to hold again", 8)


def _may_list(client: Modern) -> Any:
    async def may() -> bool:
        try:
            await client.list()
        except RpcError:
            return False
        return True

    return may


async def test_a_stream_outlives_an_outage_of_introspection_and_every_question_that_is_answered_well(
    town: Town,
) -> None:
    async with await town.caller.modern().listen([U]) as listening:
        asked = town.issuer.asked["/introspect"]
        await until(lambda: town.issuer.asked["/introspect"] >= asked + 2, "two more questions", 8)
        town.issuer.is_down = True
        asked = town.issuer.asked["/introspect"]
        await until(lambda: town.issuer.asked["/introspect"] >= asked + 2, "two vain questions", 8)
        assert listening.ended is None
        await town.publisher.publish(U, "x")
        await listening.cue(U)
        town.issuer.is_down = False
        town.issuer.opaque.pop(town.token)
        assert await listening.end() == "clean"


async def test_a_scope_that_was_taken_back_counts_for_the_streams_that_are_open(town: Town) -> None:
    scopes = "resources:read resources:publish"
    town.say(scope=f"{scopes} board")
    await town.publisher.publish(SECRET, "1", scopes="board")
    async with await town.caller.modern().listen([SECRET, U]) as listening:
        await town.publisher.publish(SECRET, "2", scopes="board")
        await listening.cue(SECRET)
        town.say(scope=scopes)
        asked = town.issuer.asked["/introspect"]
        # The second question is asked when the answer to the first has been taken in.
        await until(lambda: town.issuer.asked["/introspect"] >= asked + 2, "two more questions", 8)
        await town.publisher.publish(SECRET, "3", scopes="board")
        await town.publisher.publish(U, "x")
        await listening.cue(U)
        assert listening.cues == [SECRET, U]


async def test_a_token_that_became_another_subjects_ends_its_streams(town: Town) -> None:
    async with await town.caller.modern().listen([U]) as listening:
        town.say(sub="mallory")
        assert await listening.end() == "clean"


async def test_each_token_is_asked_about_once_however_many_streams_it_has_and_a_failure_ends_nothing() -> (
    None
):
    who = Principal(TenantId("acme"), "issuer#alice", frozenset(), None, token="abc")
    asked: list[Principal] = []
    told: list[Principal | None] = []

    class Streams:
        def tokens(self) -> dict[str, Principal]:
            return {"abc": who}

        def refreshed(self, token: str, current: Principal | None) -> None:
            assert token == "abc"
            told.append(current)

    answers: list[Any] = [Unavailable("away"), ValueError("a bug"), None]

    async def ask(principal: Principal) -> Principal | None:
        asked.append(principal)
        answer = answers.pop(0) if answers else who
        if isinstance(answer, Exception):
            raise answer
        return answer

    running = asyncio.create_task(Recheck(ask, 0).run(Streams()))
    await until(lambda: len(told) >= 1, "an answer", 8)
    running.cancel()
    assert told == [None]
    assert asked == [who] * 3
