"""Callback resources and templates are read through any replica, in both eras."""

import httpx
import pytest

from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.replica import Fleet
from workers.serving import serving
from workers.worker import Worker


async def test_a_function_is_read_through_every_replica_in_both_eras(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("greeter", tenant=tenant)

    @worker.resource("hello://world")
    def hello() -> str:
        return "Hello"

    async with serving(worker, url=fleet.redis_url, prefix=fleet.prefix):
        for replica in fleet.replicas:
            modern = Modern(replica.url, tenant, http)
            assert await modern.list() == ["hello://world"]
            assert [each["text"] for each in await modern.read("hello://world")] == ["Hello"]
            async with Handshake(replica.url, tenant, http) as handshake:
                assert [each["text"] for each in await handshake.read("hello://world")] == ["Hello"]


async def test_a_template_is_read_with_its_values_and_listed_as_a_template(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    worker = Worker("profiles", tenant=tenant)

    @worker.resource("users://{user_id}/profile", mime_type="application/json")
    def profile(user_id: int) -> dict[str, int]:
        return {"id": user_id}

    async with serving(worker, url=fleet.redis_url, prefix=fleet.prefix):
        for replica in fleet.replicas:
            client = Modern(replica.url, tenant, http)
            assert await client.list() == []
            listed = (await client.ask("resources/templates/list"))["resourceTemplates"]
            assert [each["uriTemplate"] for each in listed] == ["users://{user_id}/profile"]
            read = await client.read("users://7/profile")
            assert read == [{"uri": "users://7/profile", "mimeType": "application/json", "text": '{"id":7}'}]
            with pytest.raises(RpcError) as refused:
                await client.read("users://7/elsewhere")
            assert refused.value.code == -32602
