"""Every refusal and every failure names its request, whichever part of the broker makes it."""

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from broker.app import Broker, build
from broker.http import intake
from broker.http.modern import ModernEra
from broker.settings import Settings
from broker.store.control import Control
from broker.telemetry import request
from tests.support.mcp import MODERN
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet

TOKEN = "t" * 40
GIVEN = "proxy-0123456789"
PREFIX = "refusing"

REFUSALS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "MCP without a credential": ("POST", "/mcp", 401, {"json": {}}),
    "MCP of another host": ("POST", "/mcp", 421, {"json": {}, "headers": {"host": "evil.example"}}),
    "MCP of another origin": (
        "POST",
        "/mcp",
        403,
        {"json": {}, "headers": {"origin": "https://evil.example"}},
    ),
    "a method that MCP does not have": ("PATCH", "/mcp", 401, {}),
    "a tenant's own address": ("POST", "/t/acme/mcp", 401, {"json": {}}),
    "a publish without a credential": ("PUT", "/v1/resources?uri=docs://a", 401, {"content": b"x"}),
    "a publish of another host": ("PUT", "/v1/resources", 421, {"headers": {"host": "evil.example"}}),
    "a path that is not there": ("GET", "/v2/nothing", 404, {}),
    "a method that is not there": ("DELETE", "/v1/publish", 405, {}),
    "metadata that there is not": ("GET", "/.well-known/oauth-protected-resource/x", 404, {}),
    "administration without the token": ("GET", "/admin/v1/tenants", 401, {"bearer": "x"}),
    "administration of nothing": ("GET", "/admin/v1/nothing", 404, {"bearer": TOKEN}),
    "administration of a tenant that is not there": (
        "GET",
        "/admin/v1/tenants/nobody",
        404,
        {"bearer": TOKEN},
    ),
    "administration with a broken body": (
        "PUT",
        "/admin/v1/tenants/acme",
        400,
        {"bearer": TOKEN, "content": b"{"},
    ),
}


@pytest.fixture(scope="module")
def refusing(redis_server: RedisServer) -> Iterator[Fleet]:
    """Give a replica that asks for credentials and has an administrators' API."""
    settings = {"BROKER_AUTH__MODE": "keys", "BROKER_ADMIN__TOKEN": TOKEN}
    with Fleet(redis_server.url, PREFIX, **settings) as fleet:
        fleet.add(1)
        yield fleet
    with redis_server.client() as client:
        clear(client, PREFIX)


@pytest.mark.parametrize("name", REFUSALS)
async def test_every_refusal_carries_the_request_s_id_once(refusing: Fleet, name: str) -> None:
    method, path, status, more = REFUSALS[name]
    more = dict(more)
    headers = {request.HEADER: GIVEN, **more.pop("headers", {})}
    if "bearer" in more:
        headers["authorization"] = f"Bearer {more.pop('bearer')}"
    port = refusing[0].internal_port if path.startswith("/admin") else refusing[0].port
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(method, f"http://127.0.0.1:{port}{path}", headers=headers, **more)
    assert answer.status_code == status, answer.text
    assert answer.headers.get_list(request.HEADER) == [GIVEN], answer.headers


async def test_what_succeeds_has_no_id_to_tell(refusing: Fleet) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"http://127.0.0.1:{refusing[0].port}/openapi.json")
    assert answer.status_code == 200
    assert request.HEADER not in answer.headers


@pytest.fixture
async def own(redis_server: RedisServer, prefix: str) -> AsyncIterator[Broker]:
    """Give a broker in this process, whose parts a test may break; it serves without its lifespan."""
    settings = Settings.model_validate(
        {"redis_url": redis_server.url, "prefix": prefix, "admin": {"token": TOKEN}},
    )
    broker = build(settings)
    yield broker
    await broker.replica.redis.aclose()


def _broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug of ours")


BUGS: dict[str, tuple[tuple[Any, str], tuple[str, str, dict[str, str]]]] = {
    "MCP": (
        (ModernEra, "post"),
        ("POST", "/mcp", {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"}),
    ),
    "publishing": ((intake, "order"), ("PUT", "/v1/resources?uri=docs://a", {})),
    "administration": (
        (Control, "tenants"),
        ("GET", "/admin/v1/tenants", {"authorization": f"Bearer {TOKEN}"}),
    ),
}


@pytest.mark.parametrize("name", BUGS)
async def test_a_bug_is_answered_with_the_id_under_which_the_log_has_its_traceback(
    own: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    """A failing publish was plain text without an id, and was not counted for the alert BrokerFails."""
    (owner, attribute), (method, path, headers) = BUGS[name]
    monkeypatch.setattr(owner, attribute, _broken)
    app: Any = own.internal if path.startswith("/admin") else own.public
    transport = httpx.ASGITransport(app)
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN}
    message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        given = {request.HEADER: GIVEN, **headers}
        body = message if method == "POST" else None
        answer = await client.request(method, path, headers=given, json=body)
    assert answer.status_code == 500
    assert answer.headers.get_list(request.HEADER) == [GIVEN]
    assert GIVEN in answer.json()["error"]["message"]
    assert own.replica.metrics["broker_requests_failed_total"] == 1
    [failed] = [each for each in caplog.records if each.message == "request_failed"]
    assert failed.levelno == logging.ERROR
    assert failed.exc_info is not None
    assert failed.exc_info[0] is ZeroDivisionError
