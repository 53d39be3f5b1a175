"""Twenty tenants, the same URIs, a storm of publishes: whose is what never blurs (promises 1, 2, 3, 7)."""

import asyncio
import random
from collections.abc import Callable

import httpx
import pytest

from tests.support.follower import Follower, close_all
from tests.support.mcp import Handshake, Modern
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from workers import Publisher

TENANTS = [f"tenant-{i:02}" for i in range(20)]
URIS = [f"docs://shared/{i}" for i in range(5)]
PUBLISHES = 2000


def body(tenant: str, uri: str, number: int) -> str:
    return f"{tenant}|{uri}|{number}"


@pytest.mark.timeout(240)
async def test_every_cue_and_every_body_belongs_to_its_tenant(
    redis_server: RedisServer, prefix: str, new_fleet: Callable[..., Fleet], http: httpx.AsyncClient
) -> None:
    fleet = new_fleet(redis_server.url, 3)
    rng = random.Random(2026)
    followers: list[Follower] = []
    for tenant in TENANTS:
        # Each replica carries a stream of each tenant, the eras taking turns.
        for i, replica in enumerate(fleet.replicas):
            era = (Modern, Handshake)[(i + len(followers)) % 2]
            uris = rng.sample(URIS, rng.randint(1, 4))
            followers.append(
                Follower(
                    era, lambda r=replica: [r.url], tenant, uris, http=http, rng=random.Random(rng.random())
                )
            )
    try:
        await until(lambda: all(f.is_idle for f in followers), lambda: _busy(followers), 60)
        last = await _storm(redis_server.url, prefix, rng)
        await until(lambda: all(_is_told(f, last) for f in followers), lambda: _behind(followers, last), 30)
    finally:
        await close_all(followers)
    for follower in followers:
        assert follower.starts == 1, f"{follower!r} lost its stream"
        assert follower.list_changes <= len(URIS) + 1


async def _storm(url: str, prefix: str, rng: random.Random) -> dict[tuple[str, str], str]:
    """Publish from all tenants at once; returns the last body of each."""
    last: dict[tuple[str, str], str] = {}
    schedule = [(rng.choice(TENANTS), rng.choice(URIS), number) for number in range(PUBLISHES)]

    async def publish(tenant: str) -> None:
        async with Publisher(url, tenant=tenant, prefix=prefix) as publisher:
            for whose, uri, number in schedule:
                if whose == tenant:
                    await publisher.publish(uri, body(tenant, uri, number), name=uri)
                    last[tenant, uri] = body(tenant, uri, number)

    await asyncio.gather(*(publish(tenant) for tenant in TENANTS))
    return last


def _is_told(follower: Follower, last: dict[tuple[str, str], str]) -> bool:
    follower.check()
    for uri, text in follower.known.items():
        assert text is None or text.startswith(f"{follower.tenant}|{uri}|"), f"{follower!r} read {text!r}"
    return all(follower.known.get(uri) == last.get((follower.tenant, uri)) for uri in follower.uris)


def _busy(followers: list[Follower]) -> str:
    return f"idle: {[f for f in followers if not f.is_idle]}"


def _behind(followers: list[Follower], last: dict[tuple[str, str], str]) -> str:
    return f"the last change known to {[f for f in followers if not _is_told(f, last)]}"
