"""Opens sessions of the handshake era before a run: initialize, initialized, subscribe; many at once."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench import plan

HANDSHAKE = "2025-11-25"
AT_ONCE = 16

Wanted = tuple[Mapping[str, str], Sequence[str]]
"""A credential's headers, and the URIs that the session watches."""


def field(head: str, name: str) -> str:
    """Return a field of a response's head, "" if it has none of that name."""
    for line in head.split("\r\n"):
        found, _, value = line.partition(":")
        if found.lower() == name:
            return value.strip()
    return ""


class Door:
    """One kept connection; each request is answered before the next."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> "Door":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def post(self, headers: Mapping[str, str], message: Mapping[str, Any]) -> tuple[str, bytes]:
        """Send a message; returns the head of its answer and its body."""
        self._writer.write(plan.post("/mcp", headers, json.dumps(message).encode()))
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        body = await self._reader.readexactly(int(field(head, "content-length") or 0))
        assert head.startswith("HTTP/1.1 20"), (head, body)
        assert b'"error"' not in body, body
        return head, body

    def close(self) -> None:
        self._writer.close()


async def open_session(door: Door, wanted: Wanted) -> str:
    """Open a session that watches its URIs; returns its id."""
    headers, uris = wanted
    hello = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    head, _ = await door.post(headers, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    session = field(head, "mcp-session-id")
    assert session, head
    known = {**headers, "mcp-session-id": session, "mcp-protocol-version": HANDSHAKE}
    await door.post(known, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    for number, uri in enumerate(uris, 1):
        message = {"jsonrpc": "2.0", "id": number, "method": "resources/subscribe", "params": {"uri": uri}}
        await door.post(known, message)
    return session


async def open_sessions(doors: Sequence[str], wanted: Sequence[Wanted]) -> list[str]:
    """Open all of them; returns their ids in order."""
    sessions = [""] * len(wanted)

    async def some(first: int) -> None:
        door = await Door.open(doors[first % len(doors)])
        for number in range(first, len(wanted), AT_ONCE):
            sessions[number] = await open_session(door, wanted[number])
        door.close()

    await asyncio.gather(*(some(first) for first in range(AT_ONCE)))
    return sessions
