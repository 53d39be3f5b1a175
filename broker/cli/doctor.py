"""`broker doctor`: looks at what a broker needs, and says what to do where something is missing.

With --url it also publishes a resource of its own through that broker and waits for the cue as an MCP client
does: the test of a whole installation (`helm test` runs it). Exit codes: 0 nothing is bad, 2 something is.
"""

import argparse
import asyncio
import http.client
import importlib
import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from broker import doctor
from broker.cli import flag, place
from broker.cli.watch import listen
from broker.core.access import PUBLISH, READ
from broker.core.errors import BrokerError, Misconfigured
from broker.doctor import Finding, Verdict
from broker.settings import Settings

KEY_VARIABLE = "BROKER_KEY"
CUE_SECONDS = 15.0
_CREATED = (200, 201)


def add(commands: Any) -> None:
    """Add the command to the parser's `commands`."""
    parser = commands.add_parser("doctor", help="check settings, Redis and limits, and say what to fix")
    parser.add_argument("--url", help="also publish through this broker, and wait for the cue")
    parser.add_argument("--tenant", default="default", help="the tenant of that, in open mode")
    parser.epilog = f"{KEY_VARIABLE} holds an API key that may publish and read, where callers have one."
    flag.add(parser, only=place.FLAGS | place.BROKER_FLAGS | {"BROKER_AUTH__MODE"})


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the findings; 2 if one of them is bad."""
    if arguments.url:
        findings = [_round_trip(arguments.url, _credential(arguments.tenant, settings))]
    else:
        findings = [*doctor.surroundings(settings), _writer(settings.stream.writer), *_redis(settings)]
    for finding in findings:
        _say(finding)
    return 2 if any(finding.verdict is Verdict.BAD for finding in findings) else 0


def _redis(settings: Settings) -> list[Finding]:
    try:
        url = place.redis_url(settings)
    except Misconfigured as error:
        return [Finding(Verdict.BAD, "Redis", "No Redis was given.", str(error))]
    return asyncio.run(doctor.redis(url, settings))


def _credential(tenant: str, settings: Settings) -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE)
    if key:
        return {"authorization": f"Bearer {key}"}
    return {settings.auth.header: tenant} if settings.auth.header else {}


def _writer(mode: str) -> Finding:
    """Return how a broker would write its streams here."""
    if mode == "portable":
        return Finding(Verdict.GOOD, "writer", "Streams are written through ASGI, as is set.")
    try:
        # Only a broker needs the web server; whoever only publishes may ask, too.
        why_not: str | None = importlib.import_module("broker.http.fast_writer").examine()
    except ImportError as error:
        why_not = f"{error.name} is not installed."
    if why_not is None:
        return Finding(Verdict.GOOD, "writer", "Streams are written on uvicorn's own transport.")
    advice = "A cue costs about 1.3 times as much; install the uvicorn of constraints.txt."
    return Finding(Verdict.DOUBTFUL, "writer", f"Streams are written through ASGI. {why_not}", advice)


def _say(finding: Finding) -> None:
    print(f"{finding.verdict.value:<5} {finding.what:<12} {finding.fact}")  # noqa: T201 # the command's answer
    if finding.advice:
        print(f"{'':<18} → {finding.advice}")  # noqa: T201 # the command's answer


# -- the whole way -------------------------------------------------------------------------------------------


def _round_trip(url: str, credential: Mapping[str, str]) -> Finding:
    """Publish through the broker at `url`, and see the cue come back to a client of it."""
    base = url.rstrip("/").removesuffix("/mcp")
    uri = f"doctor://round-trip/{secrets.token_hex(8)}"
    told: queue.Queue[str | BrokerError] = queue.Queue()
    threading.Thread(target=_watch, args=(f"{base}/mcp", uri, credential, told), daemon=True).start()
    try:
        _await(told, "notifications/subscriptions/acknowledged")
        started = time.perf_counter()
        _publish(base, "PUT", uri, credential)
        _await(told, "notifications/resources/updated")
        took = time.perf_counter() - started
        _publish(base, "DELETE", uri, credential)
    except BrokerError as error:
        return Finding(Verdict.BAD, "round trip", str(error), _advice(error))
    return Finding(
        Verdict.GOOD, "round trip", f"Published through {base}, and its cue came after {took * 1000:.0f} ms."
    )


def _watch(url: str, uri: str, credential: Mapping[str, str], told: "queue.Queue[str | BrokerError]") -> None:
    try:
        for method, _ in listen(url, [uri], credential):
            told.put(method)
    except BrokerError as error:
        told.put(error)


def _await(told: "queue.Queue[str | BrokerError]", method: str) -> None:
    """Wait for one notification.

    Raises:
        BrokerError: the stream failed, or the notification did not come.
    """
    ends = time.monotonic() + CUE_SECONDS
    while True:
        try:
            found = told.get(timeout=max(0.0, ends - time.monotonic()))
        except queue.Empty:
            raise Misconfigured(f"No {method} came within {CUE_SECONDS:g} s.") from None
        if isinstance(found, BrokerError):
            raise found
        if found == method:
            return


def _publish(base: str, method: str, uri: str, credential: Mapping[str, str]) -> None:
    """Publish or remove the resource.

    Raises:
        Misconfigured: it was refused, or nobody answers.
    """
    parts = urlsplit(base)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=CUE_SECONDS)
    try:
        path = f"{parts.path}/v1/resources?uri={quote(uri, safe='')}"
        body = b"hello from broker doctor" if method == "PUT" else None
        connection.request(method, path, body, {**credential, "content-type": "text/plain"})
        answer = connection.getresponse()
        said = answer.read(65_536)
        if answer.status not in _CREATED:
            raise Misconfigured(f"{method} /v1/resources was answered {answer.status}: {_message(said)}")
    except (OSError, http.client.HTTPException) as error:
        raise Misconfigured(f"Nobody answers at {base} ({error or type(error).__name__}).") from None
    finally:
        connection.close()


def _message(said: bytes) -> str:
    try:
        return str(json.loads(said)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return said[:200].decode(errors="replace")


def _advice(error: BrokerError) -> str:
    text = str(error)
    if "Host" in text:
        return "Add the name to BROKER_HTTP__ALLOWED_HOSTS."
    if any(word in text for word in ("401", "403", "credential", "key")):
        return f"Set {KEY_VARIABLE} to an API key with the scopes {READ} and {PUBLISH} (broker key create)."
    return "Check the address, and the log of the broker."
