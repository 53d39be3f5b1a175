"""Tenants, keys and clients of a fleet that asks for credentials, in short words."""

import contextlib
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import httpx

from broker.core.access import PUBLISH, READ
from broker.core.identity import TenantId
from broker.store.client import Client, keys_at
from broker.store.control import Control
from tests.support.mcp import Handshake, Modern
from tests.support.replica import Fleet


def http_with(token: str | None, **headers: str) -> httpx.AsyncClient:
    """Return an HTTP client that sends `token` with everything."""
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(20, read=60),
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
        verify=False,
    )


class Caller:
    """Somebody with a credential (or none), at one address."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self.token = token
        self.http = http_with(token)

    @property
    def api(self) -> str:
        return self.url.removesuffix("/mcp") + "/v1"

    def modern(self, url: str | None = None) -> Modern:
        return Modern(url or self.url, "ignored", self.http)

    def handshake(self, url: str | None = None, **more: Any) -> Handshake:
        return Handshake(url or self.url, "ignored", self.http, **more)

    async def publish(self, uri: str, text: str, **query: Any) -> httpx.Response:
        return await self.http.put(
            f"{self.api}/resources",
            params={"uri": uri, **query},
            content=text,
            headers={"content-type": "text/plain"},
        )


class Yard:
    """One fleet's administration and callers."""

    def __init__(self, fleet: Fleet, redis: Client) -> None:
        self.fleet = fleet
        self.redis = redis
        self.keys = keys_at(fleet.redis_url, fleet.prefix)
        self.control = Control(redis, self.keys)
        self._callers: list[Caller] = []

    async def tenant(self, name: str) -> TenantId:
        return (await self.control.create("test", name)).id

    async def key(
        self, tenant: str, name: str = "both", scopes: Iterable[str] = (READ, PUBLISH), **more: Any
    ) -> str:
        key, _ = await self.control.new_key("test", TenantId(tenant), name, scopes, **more)
        return key.text

    def caller(self, token: str | None, replica: int = 0) -> Caller:
        caller = Caller(self.fleet[replica].url, token)
        self._callers.append(caller)
        return caller

    async def close(self) -> None:
        for caller in self._callers:
            await caller.http.aclose()


@contextlib.asynccontextmanager
async def yard_of(fleet: Fleet, redis: Client) -> AsyncGenerator[Yard]:
    yard = Yard(fleet, redis)
    yield yard
    await yard.close()
