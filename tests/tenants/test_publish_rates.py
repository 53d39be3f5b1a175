"""Rates of publishing over HTTP: each caller's own, and refusals that cost Redis nothing."""

import asyncio
from typing import Any, cast

from broker.core.identity import TenantId
from tests.support.wait import until
from tests.tenants.yard import Caller, Yard

U = "docs://readme"


async def scripts_run(yard: Yard) -> int:
    """Return how many scripts were run that only publishing runs here."""
    stats = await cast("Any", yard.redis).info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


async def test_one_caller_publishes_no_faster_than_it_may_and_its_colleague_goes_on(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await yard.control.limit("test", TenantId(acme), {"principal_publishes": 5})
    colleague = yard.caller(await yard.key(acme, "colleague"), 1)
    answers = [await caller.publish(f"docs://{n}", "x") for n in range(12)]
    refused = [one for one in answers if one.status_code == 429]
    assert {one.status_code for one in answers} == {200, 429}
    assert "This credential's holder publishes more changes" in refused[0].json()["error"]["message"]
    assert 1 <= int(refused[0].headers["retry-after"]) <= 2
    assert (await colleague.publish(U, "x")).status_code == 200

    async def is_admitted() -> bool:
        return (await caller.publish(U, "again")).status_code == 200

    await until(is_admitted, "the rate to allow another", 5)


async def test_a_callers_big_publish_is_paid_for_before_its_next(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await yard.control.limit("test", TenantId(acme), {"principal_publish_bytes": 1000})
    assert (await caller.publish(U, "x" * 3000)).status_code == 200
    refused = await caller.publish(U, "y" * 3000)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (429, "limit")
    assert "more bytes" in refused.json()["error"]["message"]
    assert 2 <= int(refused.headers["retry-after"]) <= 4


async def test_the_resources_of_one_request_are_counted_one_by_one(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await yard.control.limit("test", TenantId(acme), {"principal_publishes": 5})
    several = [{"uri": f"docs://{n}", "text": "x"} for n in range(20)]
    assert (await caller.http.post(f"{caller.api}/publish", json={"resources": several})).status_code == 200
    for method, path in (("POST", "publish"), ("POST", "touch")):
        body: Any = {"resources": several[:1]} if path == "publish" else {"uri": U}
        answer = await caller.http.request(method, f"{caller.api}/{path}", json=body)
        assert (answer.status_code, int(answer.headers["retry-after"])) >= (429, 3)


async def test_who_hammers_a_closed_rate_costs_redis_nothing(yard: Yard, acme: str, caller: Caller) -> None:
    """Each refused publish was routed, decoded and sent to Redis, at its neighbours' expense."""
    await yard.control.limit("test", TenantId(acme), {"publish_bytes": 100})
    assert (await caller.publish(U, "x" * 2000)).status_code == 200
    assert (await caller.publish(U, "y")).status_code == 429
    before = await scripts_run(yard)
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(caller.publish(f"docs://{n}", "y") for n in range(100)))
    beats = 4 * (asyncio.get_running_loop().time() - began + 1)
    assert {one.status_code for one in answers} == {429}
    assert {one.json()["error"]["reason"] for one in answers} == {"limit"}
    assert all(1 <= int(one.headers["retry-after"]) <= 30 for one in answers)
    assert all(one.headers["x-request-id"] for one in answers)
    # Heartbeats of two replicas, and the like.
    assert await scripts_run(yard) - before <= 10 + 2 * beats


async def test_a_closed_rate_tells_a_stranger_and_a_neighbour_nothing(
    yard: Yard, acme: str, caller: Caller
) -> None:
    await yard.control.limit("test", TenantId(acme), {"publish_bytes": 100})
    assert (await caller.publish(U, "x" * 2000)).status_code == 200
    assert (await caller.publish(U, "y")).status_code == 429
    neighbour = yard.caller(await yard.key(await yard.tenant(f"{acme}-quiet")))
    reader = yard.caller(await yard.key(acme, "reader", ["resources:read"]))
    for who, status in ((neighbour, 200), (yard.caller(None), 401), (reader, 403)):
        assert (await who.publish(U, "z")).status_code == status
    misled = await caller.http.put(
        f"{caller.api}/resources", params={"uri": U}, content="y", headers={"host": "elsewhere.example"}
    )
    assert misled.status_code == 421
    # What is not limited goes on.
    assert (await caller.http.delete(f"{caller.api}/resources", params={"uri": U})).status_code == 200
