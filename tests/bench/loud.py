"""The loud tenant of the neighbours' benchmark: offers requests at fixed rates, answered or not.

Raw bytes over kept connections, made ahead, at the lowest priority: on two cores a generator must not take
from the broker what it is there to measure. A request that finds no free connection opens one, so where
answers are slow connections pile up, as with a real crowd, up to `MOST`. Streams come on connections of their
own and are held for a second.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from tests.support.mcp import BOTH, HANDSHAKE, MODERN

MOST = 500
"""Connections: an attacker's descriptors end somewhere, too."""
HELD_SECONDS = 1.0
LOWEST = 19


class Offer(NamedTuple):
    """Requests of one kind, a second."""

    name: str
    rate: float
    requests: Iterator[tuple[str, bytes]]
    """Where to, and what."""


def http(url: str, method: str, path: str, key: str, body: bytes, **headers: str) -> bytes:
    """Return one request as it is sent."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {urlsplit(url).netloc}", f"authorization: Bearer {key}"]
    lines.append(f"content-length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def modern(url: str, key: str, method: str, named: str | None, **params: object) -> bytes:
    """Return a request of the modern era."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    said = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"content_type": "application/json", "accept": BOTH}
    headers |= {"mcp_protocol_version": MODERN, "mcp_method": method}
    if named is not None:
        headers["mcp_name"] = named
    return http(url, "POST", "/mcp", key, json.dumps(said).encode(), **headers)


def subscribe(url: str, key: str, session: str, uri: str) -> bytes:
    """Return a subscription of the handshake era."""
    said = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": uri}}
    headers = {"content_type": "application/json", "accept": BOTH, "mcp_session_id": session}
    return http(
        url, "POST", "/mcp", key, json.dumps(said).encode(), mcp_protocol_version=HANDSHAKE, **headers
    )


def initialize(url: str, key: str) -> bytes:
    """Return the beginning of a session."""
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
    said = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return http(
        url, "POST", "/mcp", key, json.dumps(said).encode(), content_type="application/json", accept=BOTH
    )


class Loud:
    """Offers what it is told to, for as long as it runs."""

    def __init__(self) -> None:
        self.offered: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._idle: dict[str, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}
        self._open = 0

    async def ask(self, url: str, request: bytes) -> tuple[str, bytes]:
        """Return what became of a request, and the head of its answer; a stream is held for a while."""
        idle = self._idle.setdefault(url, [])
        while idle and idle[-1][1].is_closing():
            idle.pop()[1].close()
            self._open -= 1
        if idle:
            reader, writer = idle.pop()
        else:
            self._open += 1
            parts = urlsplit(url)
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            except BaseException:
                self._open -= 1
                raise
        is_kept = False
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            said = head[9:12].decode()
            _, _, length = head.lower().partition(b"content-length:")
            if length:
                body = await reader.readexactly(int(length.partition(b"\r\n")[0]))
                said += " -31429" if b"-31429" in body else ""
                is_kept = b"connection: close" not in head.lower()
            else:
                await asyncio.sleep(HELD_SECONDS)
            return said, head
        finally:
            if is_kept:
                idle.append((reader, writer))
            else:
                self._open -= 1
                writer.close()

    async def _one(self, name: str, url: str, request: bytes) -> None:
        # Refusals are the point; and connections that we gave up at the end.
        with contextlib.suppress(OSError, EOFError):
            said, _ = await self.ask(url, request)
            self.answered[f"{name} {said}"] += 1

    async def offer(self, offer: Offer) -> None:
        due = time.monotonic()
        running: set[asyncio.Task[None]] = set()
        while True:
            url, request = next(offer.requests)
            self.offered[offer.name] += 1
            if self._open < MOST:
                task = asyncio.create_task(self._one(offer.name, url, request))
                running.add(task)
                task.add_done_callback(running.discard)
            due += 1 / offer.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))


class Tenant:
    """What the loud tenant asks for, of each replica in turn."""

    def __init__(self, urls: list[str], key: str) -> None:
        self._urls = urls
        self._key = key
        self._turns = itertools.count()
        self._sessions: dict[str, str] = {}

    async def begin(self, loud: "Loud") -> None:
        """Open a session on each replica, to subscribe in."""
        for url in self._urls:
            said, head = await loud.ask(url, initialize(url, self._key))
            assert said == "200", head
            self._sessions[url] = head.decode().partition("mcp-session-id:")[2].split()[0]

    def requests(self, name: str) -> Iterator[tuple[str, bytes]]:
        """Yield requests of one kind for ever."""
        makers = {
            "publish": self._publish,
            "read": self._read,
            "listen": self._listen,
            "subscribe": self._subscribe,
        }
        for url in itertools.cycle(self._urls):
            yield url, makers[name](url, f"bench://loud/{next(self._turns) % 20}")

    def _publish(self, url: str, uri: str) -> bytes:
        path = f"/v1/resources?uri={quote(uri, safe='')}"
        return http(url, "PUT", path, self._key, f"{time.time()}".encode(), content_type="text/plain")

    def _read(self, url: str, uri: str) -> bytes:
        return modern(url, self._key, "resources/read", uri, uri=uri)

    def _listen(self, url: str, uri: str) -> bytes:
        wanted = {"resourceSubscriptions": [uri]}
        return modern(url, self._key, "subscriptions/listen", None, notifications=wanted)

    def _subscribe(self, url: str, uri: str) -> bytes:
        return subscribe(url, self._key, self._sessions[url], uri)


async def run(urls: list[str], key: str, rates: dict[str, float]) -> None:
    """Offer load until standard input ends; then say what was offered and answered."""
    loud, tenant = Loud(), Tenant(urls, key)
    await tenant.begin(loud)
    async with asyncio.TaskGroup() as group:
        offers = [Offer(name, rate, tenant.requests(name)) for name, rate in rates.items()]
        tasks = [group.create_task(loud.offer(one)) for one in offers]
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
    print(json.dumps({"offered": loud.offered, "answered": loud.answered}))  # noqa: T201 # its answer


if __name__ == "__main__":
    os.nice(LOWEST)
    asyncio.run(run(*json.loads(sys.argv[1])))
