"""A publisher of each kind, and the HTTP API in process, under this test's prefix."""

from collections.abc import AsyncIterator, Iterator, Mapping

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis

from broker.core.identity import Principal, check_tenant
from broker.http.publish import Limits, router
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.store.shelf import Shelf
from tests.support.redis_server import RedisServer
from workers import Publisher, SyncPublisher

LIMIT = 2000
"""Bytes of contents that the HTTP API under test takes."""


@pytest.fixture
def keys(prefix: str) -> Keys:
    return Keys(prefix)


@pytest.fixture
async def redis(redis_server: RedisServer, keys: Keys) -> AsyncIterator[Redis]:
    client = commands(Connect(redis_server.url, keys))
    yield client
    await client.aclose()


@pytest.fixture
def shelf(redis: Redis, keys: Keys) -> Shelf:
    """Look at what is stored for the tenant that everything here publishes for."""
    return Shelf(redis, keys)


@pytest.fixture
async def publisher(redis_server: RedisServer, prefix: str) -> AsyncIterator[Publisher]:
    async with Publisher(redis_server.url, tenant="acme", prefix=prefix) as made:
        yield made


@pytest.fixture
def sync_publisher(redis_server: RedisServer, prefix: str) -> Iterator[SyncPublisher]:
    with SyncPublisher(redis_server.url, tenant="acme", prefix=prefix) as made:
        yield made


async def authenticate(headers: Mapping[str, str]) -> Principal:
    """Stand in for credentials: the headers say who calls and what that one may do."""
    scopes = headers.get("test-scopes")
    tenant = check_tenant(headers.get("test-tenant", "acme"))
    return Principal(tenant, "someone", None if scopes is None else frozenset(scopes.split()))


@pytest.fixture
async def api(redis: Redis, keys: Keys) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(router(redis, keys, authenticate, Limits(content_bytes=LIMIT, resources=5, page=3)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield client
