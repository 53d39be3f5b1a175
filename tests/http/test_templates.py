"""Templates and completions over HTTP: listed, read and completed by a worker, in both eras."""

import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.support.mcp import Handshake, Modern, RpcError
from tests.support.process import Process
from tests.support.replica import Fleet
from tests.support.wait import until

CITY = "city://{country}/{city}"
REF = {"type": "ref/resource", "uri": CITY}

Client = Modern | Handshake


@pytest.fixture(scope="module")
def served(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the tenant that a worker serves."""
    tenant = f"templates-{secrets.token_hex(3)}"
    argv = [sys.executable, "-m", "workers", "run", "tests.http.serving:worker"]
    argv += ["--redis-url", fleet.redis_url, "--prefix", fleet.prefix]
    log = tmp_path_factory.mktemp("worker") / "log"
    worker = Process("worker", argv, log, os.environ | {"BROKER_TENANT": tenant})
    worker.start()
    yield tenant
    worker.kill()


@pytest.fixture(params=["modern", "handshake"])
async def client(
    request: pytest.FixtureRequest, served: str, fleet: Fleet, http: httpx.AsyncClient
) -> AsyncIterator[Client]:
    kind: type[Client] = Modern if request.param == "modern" else Handshake
    async with kind(fleet.url, served, http) as client:

        async def is_served() -> bool:
            return len((await client.ask("resources/templates/list"))["resourceTemplates"]) == 3

        await until(is_served, "the worker has registered", 20)
        yield client


async def complete(client: Client, name: str, value: str, **more: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"ref": REF, "argument": {"name": name, "value": value}, **more}
    completion: dict[str, Any] = (await client.ask("completion/complete", **params))["completion"]
    return completion


@pytest.mark.requirement("template.served")
async def test_templates_are_listed_as_they_were_declared(client: Client) -> None:
    (city,) = [
        each
        for each in (await client.ask("resources/templates/list"))["resourceTemplates"]
        if each["uriTemplate"] == CITY
    ]
    assert city == {
        "uriTemplate": CITY,
        "name": "city",
        "description": "A city of a country.",
        "mimeType": "application/json",
    }


@pytest.mark.requirement("template.served")
async def test_a_cursor_that_is_none_of_ours_is_refused_for_templates_too(client: Client) -> None:
    with pytest.raises(RpcError) as refused:
        await client.ask("resources/templates/list", cursor="eA")
    assert refused.value.code == -32602


@pytest.mark.requirement("template.served", "resource.uri")
@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("city://at/wien", '{"country":"at","city":"wien"}'),
        ("city://at/a%20b", '{"country":"at","city":"a b"}'),
        ("city://at/a+b", '{"country":"at","city":"a+b"}'),
        ("city://at/%2520", '{"country":"at","city":"%20"}'),
        ("city://at/caf%C3%A9", '{"country":"at","city":"caf\u00e9"}'),
        ("number://7", "7"),
    ],
)
async def test_a_variable_is_decoded_once_and_the_uri_comes_back_as_it_was_asked(
    uri: str, text: str, client: Client
) -> None:
    (content,) = (await client.ask("resources/read", uri=uri))["contents"]
    assert (content["uri"], content["text"]) == (uri, text)


@pytest.mark.requirement("error.not-found", "template.served")
@pytest.mark.parametrize("uri", ["city://at", "city://at/a/b", "number://seven", "none://x"])
async def test_what_no_template_fits_cannot_be_found(uri: str, client: Client) -> None:
    with pytest.raises(RpcError) as refused:
        await client.ask("resources/read", uri=uri)
    assert refused.value.code == (-32602 if isinstance(client, Modern) else -32002)
    assert refused.value.data == {"uri": uri}


@pytest.mark.requirement("completion.served")
async def test_a_completion_knows_what_was_typed_and_what_was_chosen_before(client: Client) -> None:
    assert (await complete(client, "country", ""))["values"] == ["at", "ch"]
    assert (await complete(client, "country", "c"))["values"] == ["ch"]
    chosen = {"context": {"arguments": {"country": "at"}}}
    assert (await complete(client, "city", "", **chosen))["values"] == ["graz", "linz", "wien"]
    assert (await complete(client, "city", "w", **chosen))["values"] == ["wien"]
    assert (await complete(client, "city", "w"))["values"] == []


@pytest.mark.requirement("completion.served", "completion.form")
async def test_at_most_a_hundred_values_come_and_it_is_said_that_there_are_more(client: Client) -> None:
    many = await complete(client, "n", "", ref={"type": "ref/resource", "uri": "number://{n}"})
    assert len(many["values"]) == 100
    assert many["hasMore"] is True
    told = await complete(client, "n", "x", ref={"type": "ref/resource", "uri": "counted://{n}"})
    assert (told["values"], told["total"]) == (["xa", "xb", "xc"], 42)


@pytest.mark.requirement("completion.served")
@pytest.mark.parametrize(
    "ref", [{"type": "ref/prompt", "name": "any"}, {"type": "ref/resource", "uri": "none://{x}"}]
)
async def test_what_completes_nothing_has_no_values_and_is_no_error(
    ref: dict[str, str], client: Client
) -> None:
    assert (await complete(client, "x", "", ref=ref))["values"] == []
    assert (await complete(client, "no-such-variable", ""))["values"] == []


@pytest.mark.requirement("template.served", "list.tenant")
async def test_another_tenant_sees_no_template_of_ours(
    client: Client, fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    async with Modern(fleet.url, tenant, http) as other:
        assert (await other.ask("resources/templates/list"))["resourceTemplates"] == []
        with pytest.raises(RpcError):
            await other.ask("resources/read", uri="number://7")
        assert (await complete(other, "country", ""))["values"] == []
