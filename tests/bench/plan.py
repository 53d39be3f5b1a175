"""What the load generator sends, as bytes: requests that open streams, and publishes. No I/O but `write`.

A record is five little-endian 32-bit numbers and bytes, read by loadgen/plan.c. A *topic* is a URI of one
tenant; topics of a tenant are numbered on, tenant after tenant.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("<5I")

MODERN = "2026-07-28"


class Record(NamedTuple):
    """One request or publish; `span` topics from `topic` on, whose URIs are numbered from `uri` on."""

    topic: int
    uri: int
    span: int
    id: int
    data: bytes


class Place(NamedTuple):
    """A topic by its tenant's number and its URI's."""

    tenant: int
    uri: int


@dataclass(frozen=True, slots=True)
class Audience:
    """Who watches what: `streams` streams of `tenants` tenants, each watching `each` of a tenant's `uris`."""

    streams: int
    uris: int
    each: int = 1
    tenants: int = 1

    def __post_init__(self) -> None:
        assert self.uris % self.each == 0, "the URIs of a stream do not wrap around"

    @property
    def topics(self) -> int:
        return self.tenants * self.uris

    def place(self, topic: int) -> Place:
        """Return whose `topic` is; those beyond the last are watched by nobody."""
        if topic >= self.topics:
            return Place(0, self.uris + topic - self.topics)
        return Place(*divmod(topic, self.uris))

    def watched(self, stream: int) -> Place:
        """Return the first URI that a stream watches."""
        return Place(stream % self.tenants, stream // self.tenants * self.each % self.uris)

    def topic(self, place: Place) -> int:
        return place.tenant * self.uris + place.uri


def uri(number: int) -> str:
    """Return the URI of that number; the load generator finds the number in it."""
    return f"bench://u/{number}"


def meta() -> dict[str, object]:
    """Return what every request of the modern era says of its client."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def post(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return an HTTP request with a JSON body."""
    given = {
        "host": "127.0.0.1",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **headers,
        "content-length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def get(path: str, headers: Mapping[str, str]) -> bytes:
    """Return an HTTP request for an event stream."""
    given = {"host": "127.0.0.1", "accept": "text/event-stream", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()


def modern(method: str, params: Mapping[str, object], request_id: int, headers: Mapping[str, str]) -> bytes:
    """Return a request of the modern era."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta()}}
    named = {"mcp-protocol-version": MODERN, "mcp-method": method, **headers}
    return post("/mcp", named, json.dumps(message).encode())


def listen(uris: Iterable[str], request_id: int, headers: Mapping[str, str]) -> bytes:
    """Return a subscriptions/listen."""
    filters = {"notifications": {"resourceSubscriptions": list(uris)}}
    return modern("subscriptions/listen", filters, request_id, headers)


def resp(*words: str | bytes | int) -> bytes:
    """Return a Redis command in its wire form."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def write(path: Path, records: Iterable[Record]) -> Path:
    """Write a plan."""
    with path.open("wb") as file:
        for record in records:
            file.write(_HEAD.pack(record.topic, record.uri, record.span, record.id, len(record.data)))
            file.write(record.data)
    return path
