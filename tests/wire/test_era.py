"""The era of a request: the table of design section 5, row by row."""

from typing import Any

import pytest
from mcp_types import version as registry

from broker.wire.era import (
    HANDSHAKE_VERSIONS,
    META_CAPABILITIES,
    META_CLIENT,
    META_VERSION,
    MODERN_VERSION,
    Era,
    choose,
)
from broker.wire.jsonrpc import Message, Notification, Request, Response
from broker.wire.refusal import Refusal

pytestmark = pytest.mark.requirement("endpoint.era")

SESSION = {"mcp-session-id": "s" * 43}
MODERN_META: dict[str, Any] = {META_VERSION: MODERN_VERSION, META_CAPABILITIES: {}}


def headers(version: str | None, session: bool) -> dict[str, str]:  # noqa: FBT001 - a column of the matrix
    return ({"mcp-protocol-version": version} if version is not None else {}) | (SESSION if session else {})


def request(method: str, meta: Any = None) -> Request:
    return Request(7, method, {} if meta is None else {"_meta": meta})


VERSIONS = [None, *HANDSHAKE_VERSIONS, MODERN_VERSION, "v999.0.0", "", "2024-11-05"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("method", ["server/discover", "initialize", "resources/subscribe", "ping"])
@pytest.mark.parametrize(
    "meta", [MODERN_META, {META_VERSION: "v999"}, {META_CAPABILITIES: {}}, {META_CLIENT: None}]
)
def test_modern_meta_decides_over_session_header_and_method(
    version: str | None,
    session: bool,  # noqa: FBT001 - a column of the matrix
    method: str,
    meta: dict[str, Any],
) -> None:
    assert choose("POST", headers(version, session), request(method, meta)) is Era.MODERN


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize(
    "meta", [None, {}, {"progressToken": 1}, {"io.modelcontextprotocol/related-task": {}}]
)
def test_initialize_begins_a_session_whatever_the_version_header_says(
    version: str | None,
    session: bool,  # noqa: FBT001 - a column of the matrix
    meta: Any,
) -> None:
    assert choose("POST", headers(version, session), request("initialize", meta)) is Era.HANDSHAKE


BODIES: list[Message | list[Message]] = [
    request("resources/read"),
    request("server/discover", {}),
    request("x", "no object"),
    request("x", [META_VERSION]),
    Notification("notifications/initialized", {}),
    Response(1),
    [request("ping")],
    [request("initialize")],
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_id_is_the_handshake_eras(body: Message | list[Message], version: str | None) -> None:
    assert choose("POST", headers(version, session=True), body) is Era.HANDSHAKE


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("version", [MODERN_VERSION, f" {MODERN_VERSION}\t", "v999.0.0", "2024-11-05", ""])
def test_without_a_session_a_version_that_no_session_has_is_the_modern_eras_to_judge(
    body: Message | list[Message], version: str
) -> None:
    assert choose("POST", headers(version, session=False), body) is Era.MODERN


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("version", [None, *HANDSHAKE_VERSIONS])
def test_else_the_request_belongs_to_no_session_and_is_told_to_begin_one(
    body: Message | list[Message], version: str | None
) -> None:
    with pytest.raises(Refusal, match="initialize") as caught:
        choose("POST", headers(version, session=False), body)
    assert caught.value.status == 400
    assert caught.value.id == (7 if isinstance(body, Request) else None)


@pytest.mark.parametrize("http_method", ["GET", "DELETE"])
@pytest.mark.parametrize("version", VERSIONS)
def test_get_and_delete_belong_to_a_session(http_method: str, version: str | None) -> None:
    assert choose(http_method, headers(version, session=True)) is Era.HANDSHAKE
    with pytest.raises(Refusal) as caught:
        choose(http_method, headers(version, session=False))
    is_modern = version == MODERN_VERSION
    assert caught.value.status == (405 if is_modern else 400)
    assert caught.value.headers == (((b"allow", b"POST"),) if is_modern else ())


@pytest.mark.requirement("endpoint.methods")
@pytest.mark.parametrize("http_method", ["PUT", "PATCH", "HEAD", "get", "TRACE"])
def test_other_http_methods_are_named_what_is_allowed(http_method: str) -> None:
    with pytest.raises(Refusal) as caught:
        choose(http_method, headers(MODERN_VERSION, session=True))
    assert caught.value.status == 405
    assert caught.value.headers == ((b"allow", b"GET, POST, DELETE, OPTIONS"),)


def test_the_versions_are_those_of_the_protocol_with_this_transport() -> None:
    """2024-11-05 had another transport (HTTP+SSE), which is not offered."""
    assert (MODERN_VERSION,) == registry.MODERN_PROTOCOL_VERSIONS
    assert ("2024-11-05", *HANDSHAKE_VERSIONS) == registry.HANDSHAKE_PROTOCOL_VERSIONS
