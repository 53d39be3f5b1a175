"""`broker serve`, the real one, as a process: sharing our own Redis, and starting without any."""

import json
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from broker.store import embedded
from tests.process.conftest import Program, Start
from tests.support.wait import until_sync
from workers import SyncPublisher, Unavailable


def _read(program: Program, uri: str) -> str | None:
    """Read as an MCP client of the modern era; None if the broker could not answer."""
    body: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "resources/read",
        "params": {
            "uri": uri,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "resources/read",
        "Mcp-Name": uri,
    }
    connection = program.connect()
    try:
        connection.request("POST", "/mcp", json.dumps(body), headers)
        answer = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if "result" not in answer:
        return None
    return str(answer["result"]["contents"][0]["text"])


def _is_ready(program: Program) -> bool:
    return program.get("/readyz", program.internal_port)[0] == 200


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def _publish(state: Path, uri: str, text: str) -> bool:
    url = embedded.find(state)
    if url is None:
        return False
    with SyncPublisher(url) as publisher:
        try:
            publisher.publish(uri, text)
        except Unavailable:
            return False
    return True


def test_brokers_of_one_machine_share_a_redis_and_survive_its_owner(start: Start, state: Path) -> None:
    first = start("-m", "broker", "serve", BROKER_STATE_DIR=str(state))
    first.wait_ready()
    second = start("-m", "broker", "serve", BROKER_STATE_DIR=str(state), BROKER_LINGER_SECONDS="0")
    second.wait_ready()
    until_sync(lambda: _is_ready(first) and _is_ready(second), "ready")
    assert _publish(state, "docs://a", "one")
    assert _read(first, "docs://a") == _read(second, "docs://a") == "one"
    first.process.kill()
    until_sync(lambda: _publish(state, "docs://b", "two"), "published again", 20)
    until_sync(lambda: _read(second, "docs://b") == "two", second.process.tail)
    # What was acknowledged before is still there; a first answer may be that Redis has just come back.
    until_sync(lambda: _read(second, "docs://a") == "one", second.process.tail)
    second.process.terminate()
    assert second.process.wait(30) == 0
    assert "Traceback" not in second.process.tail(1000)
    assert embedded.find(state) is None


def test_a_broker_whose_redis_is_not_there_yet_is_alive_but_not_ready(start: Start) -> None:
    program = start(
        "-m", "broker", "serve", BROKER_REDIS_URL="redis://127.0.0.1:1/0", BROKER_LINGER_SECONDS="0"
    )
    program.wait_ready()
    assert program.get("/livez", program.internal_port)[0] == 200
    status, body = program.get("/readyz", program.internal_port)
    assert status == 503
    assert json.loads(body)["reason"]
    program.process.terminate()
    assert program.process.wait(10) == 0
    assert "Traceback" not in program.process.tail(1000)


def test_the_flags_are_the_settings(start: Start, state: Path) -> None:
    program = start("-m", "broker", "serve", "--state-dir", str(state), "--log-format", "json", "--ephemeral")
    program.wait_ready()
    events = [json.loads(line) for line in program.process.log.read_text().splitlines()]
    assert "serving" in {event["event"] for event in events}
    assert not state.exists()
