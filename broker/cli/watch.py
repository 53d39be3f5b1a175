"""`broker watch`: an MCP client of the modern era that prints a line whenever a resource changes.

The standard library's HTTP client is enough: one `subscriptions/listen` request, whose answer is the stream
(2026-07-28, "Subscriptions"). A stream that ends is opened again; what may have changed meanwhile is said.
"""

import argparse
import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from broker.cli.place import broker_url
from broker.core.errors import BadRequest, Misconfigured, Unavailable
from broker.core.identity import check_uri
from broker.settings import Settings
from workers.settings import Settings as PublisherSettings

_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"
_SILENCE_SECONDS = 60.0
"""A stream without even a keep-alive for this long is dead, whatever the socket says."""
_AGAIN_SECONDS = 1.0


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print cues until interrupted."""
    url = arguments.url or broker_url(settings)
    uris = [check_uri(uri) for uri in arguments.uri]
    tenant = arguments.tenant or PublisherSettings().tenant
    headers = {settings.auth.header: tenant} if settings.auth.header else {}
    has_been_told = is_away = False
    while True:
        try:
            for method, params in listen(url, uris, headers):
                has_been_told = True
                if is_away:
                    is_away = False
                    _say("the broker is back")
                _say(method, params)
            _say("the broker ended the stream; listening again")
        except Unavailable as error:
            # The first time it is an error of the call; later it is a broker that restarts.
            if not has_been_told:
                raise
            if not is_away:
                is_away = True
                _say(f"{error} Trying again until it is back.")
        time.sleep(_AGAIN_SECONDS)


def listen(url: str, uris: list[str], headers: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield method and params of each notification of one listen stream, until it ends in order.

    Raises:
        Unavailable: no broker answers there, or the stream broke.
        BadRequest: the broker refused, for the reason that the error says.
        Misconfigured: `url` is not one.
    """
    connection = _connect(url)
    body: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {
            "_meta": {
                f"{_META}protocolVersion": _VERSION,
                f"{_META}clientInfo": {"name": "broker watch", "version": version("mcp-resource-broker")},
                f"{_META}clientCapabilities": {},
            },
            "notifications": {"resourceSubscriptions": uris},
        },
    }
    fixed = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": "subscriptions/listen",
    }
    try:
        connection.request("POST", urlsplit(url).path or "/", json.dumps(body), {**headers, **fixed})
        response = connection.getresponse()
        if not response.getheader("Content-Type", "").startswith("text/event-stream"):
            raise BadRequest(_refusal(url, response))
        for message in messages(response):
            if "method" in message:
                yield message["method"], message.get("params", {})
            elif "error" in message:
                raise BadRequest(f"The broker refused: {message['error'].get('message')}")
            else:
                return
        raise Unavailable(f"The stream of {url} broke.")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"No broker answers at {url} ({error or type(error).__name__}): start one with broker dev, or "
            "say where it is with --url."
        ) from None
    finally:
        connection.close()


def messages(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the JSON-RPC message of each event of a stream."""
    data: list[str] = []
    for line in lines:
        text = line.decode().rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text.removeprefix("data:").removeprefix(" "))
        elif not text and data:
            joined = "\n".join(data)
            data.clear()
            # The priming event of some servers has no data to speak of.
            if joined:
                yield json.loads(joined)


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}.get(parts.scheme)
    if kind is None or not parts.hostname:
        raise Misconfigured(f"{url} is no address of a broker: it looks like http://127.0.0.1:8000/mcp.")
    return kind(parts.hostname, parts.port, timeout=_SILENCE_SECONDS)


def _refusal(url: str, response: http.client.HTTPResponse) -> str:
    """Say why the answer is not a stream."""
    body = response.read(65_536)
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"{url} answered {response.status} {response.reason}: is that the MCP endpoint of a broker?"
    return f"The broker refused: {message}"


def _say(what: str, params: Mapping[str, Any] | None = None) -> None:
    """Print one line, at once: somebody waits for it, perhaps behind a pipe."""
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    match what:
        case "notifications/subscriptions/acknowledged":
            uris = (params or {}).get("notifications", {}).get("resourceSubscriptions", [])
            text = f"watching  {' '.join(uris)}"
        case "notifications/resources/updated":
            text = f"changed   {(params or {}).get('uri')}"
        case _:
            text = what
    print(f"{now}  {text}", flush=True, file=sys.stdout)  # noqa: T201 # a shell command's answer
