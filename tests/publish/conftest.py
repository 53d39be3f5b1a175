"""A publisher of each kind, and the HTTP API in process, under this test's prefix."""

from collections.abc import AsyncIterator, Iterator, Mapping

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis

from broker.core.errors import BrokerError, Forbidden
from broker.core.identity import Principal, TenantId, check_tenant
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


class HeaderGate:
    """Stands in for credentials: the headers say who calls and what that one may do."""

    async def admit(
        self,
        headers: Mapping[str, str],
        scope: str,
        tenant: TenantId | None = None,  # noqa: ARG002 # the protocol's
    ) -> Principal:
        granted = headers.get("test-scopes")
        if granted is not None and scope not in granted.split():
            raise Forbidden(f'This needs a credential with the scope "{scope}".', scope)
        return Principal(check_tenant(headers.get("test-tenant", "acme")), "someone")

    def challenge(
        self,
        error: BrokerError,
        tenant: TenantId | None = None,  # noqa: ARG002 # the protocol's
    ) -> bytes | None:
        return b'Bearer scope="of the test"' if isinstance(error, Forbidden) else None


@pytest.fixture
async def api(redis: Redis, keys: Keys) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(router(redis, keys, HeaderGate(), Limits(content_bytes=LIMIT, resources=5, page=3)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield client
