"""API keys on a running fleet: who they let in, for what, and for how long."""

import time

import pytest

from broker.core.access import PUBLISH, READ
from broker.core.identity import TenantId
from tests.support.mcp import RpcError
from tests.support.wait import until
from tests.tenants.yard import Caller, Yard

U = "docs://readme"


async def test_a_key_reads_what_its_tenant_publishes_in_both_eras_on_any_replica(
    yard: Yard, acme: str, caller: Caller
) -> None:
    assert (await caller.publish(U, "hello")).status_code == 200
    elsewhere = yard.caller(caller.token, 1)
    assert (await elsewhere.modern().read(U))[0]["text"] == "hello"
    async with elsewhere.handshake() as client:
        assert (await client.read(U))[0]["text"] == "hello"


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_without_a_credential_every_method_is_401_with_a_challenge(yard: Yard, method: str) -> None:
    nobody = yard.caller(None)
    answer = await nobody.http.request(method, nobody.url, headers={"accept": "text/event-stream"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer scope="resources:read"'
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "header",
    [
        "Bearer mrb_0000000000_0000000000000000000000000000000000000000000000000",
        "Bearer nonsense",
        "Basic dXNlcjpwYXNz",
        "Bearer",
        "Bearer first, Bearer second-one",
    ],
)
async def test_a_credential_that_does_not_hold_is_401_and_says_so(yard: Yard, header: str) -> None:
    nobody = yard.caller(None)
    answer = await nobody.http.post(nobody.url, json={}, headers={"authorization": header})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert header.rsplit(maxsplit=1)[-1] not in answer.text or header == "Bearer"


async def test_a_key_in_the_query_is_no_credential(yard: Yard, caller: Caller) -> None:
    nobody = yard.caller(None)
    answer = await nobody.http.post(nobody.url, params={"access_token": caller.token}, json={})
    assert answer.status_code == 401


async def test_a_key_for_reading_does_not_publish(yard: Yard, acme: str) -> None:
    reader = yard.caller(await yard.key(acme, "reader", [READ]))
    answer = await reader.publish(U, "x")
    assert answer.status_code == 403
    assert answer.json()["error"]["reason"] == "forbidden"
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert f'scope="{PUBLISH}"' in answer.headers["www-authenticate"]


async def test_a_key_for_publishing_does_not_read(yard: Yard, acme: str) -> None:
    publisher = yard.caller(await yard.key(acme, "publisher", [PUBLISH]))
    assert (await publisher.publish(U, "x")).status_code == 200
    answer = await publisher.http.post(publisher.url, json={})
    assert answer.status_code == 403
    assert f'scope="{READ}"' in answer.headers["www-authenticate"]


async def test_the_tenant_header_of_open_mode_means_nothing_to_a_key(yard: Yard, acme: str) -> None:
    other = await yard.tenant(f"{acme}-other")
    theirs = yard.caller(await yard.key(other))
    await theirs.publish(U, "theirs")
    mine = yard.caller(await yard.key(acme))
    answer = await mine.http.get(f"{mine.api}/resources", headers={"broker-tenant": other})
    assert answer.json() == {"resources": []}


async def test_a_revoked_key_is_refused_everywhere_at_once_and_its_streams_end(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await caller.publish(U, "1")
    spare = yard.caller(await yard.key(acme, "spare"))
    far = yard.caller(caller.token, 1)
    async with await caller.modern().listen([U]) as here, await far.modern().listen([U]) as there:
        async with far.handshake() as session, await session.get_stream() as stream:
            await session.subscribe(U)
            began = time.monotonic()
            await yard.control.revoke("test", TenantId(acme), "both")
            assert await here.end() == "clean"
            assert await there.end() == "clean"
            assert await stream.end() == "clean"
            assert time.monotonic() - began < 2.0
            await spare.publish(U, "2")
            assert (here.cues, there.cues, stream.cues) == ([], [], [])
            assert here.result is not None
        for one in (caller, far):
            with pytest.raises(RpcError, match="unknown, or has ended"):
                await one.modern().read(U)


async def test_only_the_streams_of_the_revoked_key_end(yard: Yard, acme: str, caller: Caller) -> None:
    spare = yard.caller(await yard.key(acme, "spare"))
    async with await spare.modern().listen([U]) as stays, await caller.modern().listen([U]) as ends:
        await yard.control.revoke("test", TenantId(acme), "both")
        await ends.end()
        await spare.publish(U, "1")
        await stays.cue(U)


async def test_a_rotated_key_goes_on_with_the_session_of_the_one_before(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await caller.publish(U, "1")
    async with caller.handshake() as old:
        await old.subscribe(U)
        key, _ = await yard.control.rotate("test", TenantId(acme), "both", 3600)
        new = yard.caller(key.text, 1).handshake()
        new.session = old.session
        assert (await new.read(U))[0]["text"] == "1"
        assert (await old.read(U))[0]["text"] == "1"


async def test_an_open_stream_of_a_rotated_key_ends_with_the_overlap(
    yard: Yard, acme: str, caller: Caller
) -> None:
    async with await caller.modern().listen([U]) as stream:
        await yard.control.rotate("test", TenantId(acme), "both", 2.5)
        began = time.monotonic()
        assert await stream.end() == "clean"
        assert time.monotonic() - began < 3.5
    await until(lambda: _is_refused(caller), "the old key to be over", 5)


async def test_a_key_with_an_end_is_refused_after_it(yard: Yard, acme: str) -> None:
    brief = yard.caller(await yard.key(acme, "brief", expires_ms=int(time.time() * 1000) + 2000))
    async with await brief.modern().listen([U]) as stream:
        assert await stream.end() == "clean"
    await until(lambda: _is_refused(brief), "the key to be over", 5)


async def test_a_suspended_tenant_is_refused_and_its_streams_end_and_resuming_brings_it_back(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await caller.publish(U, "1")
    async with await caller.modern().listen([U]) as stream:
        began = time.monotonic()
        await yard.control.suspend("test", TenantId(acme))
        assert await stream.end() == "clean"
        assert time.monotonic() - began < 2.0
    answer = await caller.http.post(caller.url, json={})
    assert (answer.status_code, "www-authenticate" in answer.headers) == (403, False)
    assert (await caller.publish(U, "2")).status_code == 403
    await yard.control.resume("test", TenantId(acme))

    async def is_back() -> bool:
        return (await caller.publish(U, "3")).status_code == 200

    await until(is_back, "the tenant to be served again", 5)


async def _is_refused(caller: Caller) -> bool:
    return (await caller.http.post(caller.url, json={})).status_code == 401
