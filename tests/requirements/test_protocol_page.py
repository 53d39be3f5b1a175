"""docs/protocol.md says what the code does: its codes, its decisions, its extension."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from broker.wire import extension, handshake, mirror, modern, refusal
from broker.wire.jsonrpc import Request, parse
from broker.wire.operations import Listen

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "protocol.md").read_text()
CODES = {
    *(refusal.PARSE_ERROR, refusal.INVALID_REQUEST, refusal.METHOD_NOT_FOUND, refusal.INVALID_PARAMS),
    *(refusal.INTERNAL_ERROR, refusal.LIMIT_REACHED, refusal.UNAVAILABLE),
    *(handshake.RESOURCE_NOT_FOUND, mirror.HEADER_MISMATCH, modern.UNSUPPORTED_VERSION),
}


def test_the_table_of_errors_has_every_code_and_no_other() -> None:
    assert {int(code) for code in re.findall(r"^\| (-\d+) \|", PAGE, re.MULTILINE)} == CODES


@pytest.mark.parametrize(
    "member", [extension.REVISION, extension.REVISIONS, extension.KNOWN, extension.TOKEN]
)
def test_the_extension_has_every_member(member: str) -> None:
    assert f"| `{member}` |" in PAGE


def test_the_example_is_a_request_that_we_read() -> None:
    example = PAGE.partition("```json\n")[2].partition("```")[0]
    message = parse(example.encode())
    assert isinstance(message, Request)
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": message.method}
    operation = modern.decode(message, headers)
    assert isinstance(operation, Listen)
    assert operation.known is not None
    assert list(operation.known) == list(json.loads(example)["params"]["_meta"][extension.KNOWN])


def test_every_decision_that_a_promise_comes_from_is_on_the_page() -> None:
    manifest = (HERE / "manifest.toml").read_text()
    cited = {
        number
        for each in tomllib.loads(manifest)["requirement"]
        for number in re.findall(r"decision (\d+)", each["source"])
    }
    decisions = set(re.findall(r"^(\d+)\. ", PAGE.partition("## Decisions")[2], re.MULTILINE))
    assert decisions == {str(number) for number in range(1, 13)}
    assert cited <= decisions
