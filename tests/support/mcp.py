"""Raw MCP clients of both eras over HTTP, which check every byte of every stream.

They do what the specification says and nothing more: no retries, no reconnects, no caches. A test does those
itself, so that it knows what was asked of whom.
"""

import asyncio
import base64
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, Literal, Self, cast

import httpx

from tests.support.sse import Frame, Reader
from tests.support.wait import until, within

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
BOTH = "application/json, text/event-stream"
UPDATED = "notifications/resources/updated"
LIST_CHANGED = "notifications/resources/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class RpcError(Exception):
    """A JSON-RPC error, with the HTTP status that carried it."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"HTTP {status}, {error}")
        self.status = status
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


def new_http() -> httpx.AsyncClient:
    """Return an HTTP client for any number of raw clients and streams; bounded waits, no environment."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(20, read=60),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=50),
        trust_env=False,
        verify=False,
    )


class Stream:
    """An open event stream, read in the background; what came is there to look at.

    `ended` is None while it is open, "clean" after a proper end of the body, "cut" after any other.
    """

    def __init__(self, response: httpx.Response, name: str) -> None:
        self.response = response
        self.name = name
        self.raw = bytearray()
        self.frames: list[Frame] = []
        self.ended: Literal["clean", "cut"] | None = None
        self.failure: AssertionError | None = None
        self.news = asyncio.Event()
        """Set whenever something came or the stream ended; whoever waits for it clears it."""
        self._task = asyncio.create_task(self._read())

    def __repr__(self) -> str:
        return f"<Stream {self.name} {self.ended or 'open'} {[f.raw[:200] for f in self.frames[-8:]]}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def messages(self) -> list[dict[str, Any]]:
        self.check()
        return [frame.message for frame in self.frames if frame.message is not None]

    @property
    def cues(self) -> list[str]:
        """The URIs that were cued, in order."""
        self.check()
        return [str(frame.params["uri"]) for frame in self.frames if frame.method == UPDATED]

    @property
    def list_changes(self) -> int:
        """How often the list was cued."""
        self.check()
        return sum(frame.method == LIST_CHANGED for frame in self.frames)

    @property
    def last_id(self) -> str | None:
        """The id that a client would present now."""
        return next((frame.id for frame in reversed(self.frames) if frame.id is not None), None)

    def check(self) -> None:
        """Fail if a byte was wrong."""
        if self.failure is not None:
            raise self.failure

    async def cue(self, uri: str, count: int = 1, seconds: float = 10.0) -> None:
        """Wait until `uri` has been cued `count` times."""
        await until(
            lambda: self.cues.count(uri) >= count, lambda: f"{uri} cued {count} x on {self!r}", seconds
        )

    async def end(self, seconds: float = 10.0) -> str:
        """Wait for the end of the stream and say how it ended."""
        await until(lambda: self.ended is not None, lambda: f"an end of {self!r}", seconds)
        self.check()
        return str(self.ended)

    async def close(self) -> None:
        """Leave, as a client that closes its connection."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.response.aclose()
        self.check()

    async def _read(self) -> None:
        reader = Reader()
        try:
            async for data in self.response.aiter_raw():
                self.raw += data
                self.frames += reader.feed(data)
                self.news.set()
            reader.end()
        except AssertionError as failure:
            self.failure = failure
            self.ended = "cut"
        except (httpx.TransportError, httpx.StreamError):
            self.ended = "cut"
        else:
            self.ended = "clean"
        finally:
            self.news.set()


class _Client:
    """What both eras share."""

    def __init__(self, url: str, tenant: str = "default", http: httpx.AsyncClient | None = None) -> None:
        self.url = url
        self.tenant = tenant
        self.http = http or new_http()
        self._owns_http = http is None
        self._ids = itertools.count(1)
        self.streams: list[Stream] = []

    async def close(self) -> None:
        """Close this client's streams, and its HTTP client if it made one."""
        for stream in self.streams:
            await stream.close()
        if self._owns_http:
            await self.http.aclose()

    async def post(self, message: Any, headers: dict[str, str]) -> httpx.Response:
        return await self.http.post(self.url, json=message, headers=headers)

    async def _open(self, request: httpx.Request, name: str) -> Stream:
        response = await self.http.send(request, stream=True)
        content_type = response.headers.get("content-type", "")
        if response.status_code != 200 or not content_type.startswith("text/event-stream"):
            await response.aread()
            _answer(response)
            raise AssertionError(
                f"neither a stream nor an error: {response.status_code} {response.content!r}"
            )
        assert response.headers.get("cache-control") == "no-store", response.headers
        assert response.headers.get("x-accel-buffering") == "no", response.headers
        stream = Stream(response, name)
        self.streams.append(stream)
        return stream


def _answer(response: httpx.Response) -> Any:
    """Return the result in a response.

    Raises:
        RpcError: it carries an error.
    """
    assert response.headers.get("content-type", "").startswith("application/json"), (
        f"HTTP {response.status_code}: {response.content!r}"
    )
    body = response.json()
    if "error" in body:
        raise RpcError(response.status_code, body["error"])
    assert response.status_code == 200, response.status_code
    return body["result"]


class Handshake(_Client):
    """A client of the handshake era (2025-11-25 unless said otherwise): one session."""

    def __init__(
        self,
        url: str,
        tenant: str = "default",
        http: httpx.AsyncClient | None = None,
        version: str = HANDSHAKE,
    ) -> None:
        super().__init__(url, tenant, http)
        self.version = version
        self.session = ""
        self.initialized: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def headers(self, **more: str) -> dict[str, str]:
        headers = {"accept": BOTH, "broker-tenant": self.tenant, **more}
        if self.session:
            headers |= {"mcp-session-id": self.session, "mcp-protocol-version": self.version}
        return headers

    async def initialize(self) -> dict[str, Any]:
        """Open the session (2025-11-25, "Lifecycle") and say that it is initialized."""
        params = {
            "protocolVersion": self.version,
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self.post(message, self.headers())
        self.initialized = _answer(response)
        self.session = response.headers["mcp-session-id"]
        assert self.initialized["protocolVersion"] == self.version
        done = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.headers())
        if done.status_code >= 400:
            _answer(done)  # Redis was flushed in between: it raises
        assert (done.status_code, done.content) == (202, b""), done
        return self.initialized

    async def ask(self, method: str, **params: Any) -> Any:
        """Return the result of one request in the session.

        Raises:
            RpcError: it was refused.
        """
        identity = next(self._ids)
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        response = await self.post(message, self.headers())
        result = _answer(response)
        assert response.json()["id"] == identity
        return result

    async def subscribe(self, uri: str) -> None:
        assert await self.ask("resources/subscribe", uri=uri) == {}

    async def unsubscribe(self, uri: str) -> None:
        assert await self.ask("resources/unsubscribe", uri=uri) == {}

    async def read(self, uri: str) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", (await self.ask("resources/read", uri=uri))["contents"])

    async def list(self) -> list[str]:
        """Return all URIs, page by page."""
        return await _all_uris(self)

    async def get_stream(self, last_event_id: str | None = None, url: str | None = None) -> Stream:
        """Open the session's GET stream, here or on another replica's `url`.

        Raises:
            RpcError: it was refused.
        """
        headers = (
            self.headers() if last_event_id is None else self.headers(**{"last-event-id": last_event_id})
        )
        request = self.http.build_request("GET", url or self.url, headers=headers)
        return await self._open(request, f"GET {self.tenant} {self.session[:6]}")

    async def delete(self) -> int:
        """End the session; returns the HTTP status."""
        return (await self.http.delete(self.url, headers=self.headers())).status_code


class Modern(_Client):
    """A client of the modern era (2026-07-28): no session, each request stands alone."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _request(self, method: str, params: dict[str, Any], identity: Any) -> tuple[Any, dict[str, str]]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            **params.get("_meta", {}),
        }
        headers = {
            "accept": BOTH,
            "broker-tenant": self.tenant,
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
        }
        if method == "resources/read":
            headers["mcp-name"] = _header_value(params["uri"])
        message = {
            "jsonrpc": "2.0", "id": identity, "method": method, "params": {**params, "_meta": meta},
        }  # fmt: skip
        return message, headers

    async def ask(self, method: str, **params: Any) -> Any:
        """Return the result of one request.

        Raises:
            RpcError: it was refused.
        """
        identity = next(self._ids)
        response = await self.post(*self._request(method, params, identity))
        result = _answer(response)
        assert response.json()["id"] == identity
        assert result["resultType"] == "complete"
        return result

    async def discover(self) -> dict[str, Any]:
        return cast("dict[str, Any]", await self.ask("server/discover"))

    async def read(self, uri: str) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", (await self.ask("resources/read", uri=uri))["contents"])

    async def list(self) -> list[str]:
        """Return all URIs, page by page."""
        return await _all_uris(self)

    async def listen(
        self,
        uris: Sequence[str] = (),
        *,
        wants_list: bool = False,
        url: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> "Listening":
        """Open a listen stream, here or on another replica's `url`, and wait for its acknowledgement.

        Raises:
            RpcError: it was refused.
        """
        wanted: dict[str, Any] = {}
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        if wants_list:
            wanted["resourcesListChanged"] = True
        identity = f"listen-{next(self._ids)}"
        message, headers = self._request("subscriptions/listen", {"notifications": wanted}, identity)
        message["params"]["_meta"] |= meta or {}
        request = self.http.build_request("POST", url or self.url, json=message, headers=headers)
        stream = await self._open(request, f"listen {self.tenant}")
        listening = Listening(stream, identity)
        await within(listening.acknowledged(), f"an acknowledgement on {stream!r}")
        return listening


class Listening:
    """A listen stream whose every message carries its own subscription id."""

    def __init__(self, stream: Stream, identity: str) -> None:
        self.stream = stream
        self.id = identity
        self.honoured: dict[str, Any] = {}
        self.acknowledgement: dict[str, Any] = {}

    def __repr__(self) -> str:
        return repr(self.stream)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def acknowledged(self) -> None:
        """Wait for the first message and keep what was honoured."""
        await until(lambda: self.stream.messages or self.stream.ended, "a first message")
        first = self.stream.messages[0]
        assert first["method"] == ACKNOWLEDGED, first
        self.acknowledgement = first["params"]
        self.honoured = first["params"]["notifications"]
        self.check()

    def check(self) -> None:
        """Fail unless every frame is tagged with this subscription and none has an SSE id."""
        self.stream.check()
        for frame in self.stream.frames:
            assert frame.id is None, f"an SSE id on a listen stream: {frame.raw!r}"
            if frame.message is not None:
                holder: dict[str, Any] = frame.message.get("params") or frame.message["result"]
                assert holder["_meta"][SUBSCRIPTION] == self.id, frame.raw

    @property
    def cues(self) -> list[str]:
        self.check()
        return self.stream.cues

    @property
    def list_changes(self) -> int:
        self.check()
        return self.stream.list_changes

    @property
    def ended(self) -> str | None:
        return self.stream.ended

    @property
    def result(self) -> dict[str, Any] | None:
        """The final result of a graceful end, if it came."""
        last = self.stream.messages[-1] if self.stream.messages else {}
        return cast("dict[str, Any] | None", last.get("result"))

    async def cue(self, uri: str, count: int = 1, seconds: float = 10.0) -> None:
        """Wait until `uri` has been cued `count` times."""
        await self.stream.cue(uri, count, seconds)

    async def end(self, seconds: float = 10.0) -> str:
        return await self.stream.end(seconds)

    async def close(self) -> None:
        await self.stream.close()
        self.check()


def _header_value(uri: str) -> str:
    """Return a URI as Mcp-Name carries it: as it is, or in the Base64 form if it is not plain ASCII."""
    if uri.isascii() and uri == uri.strip() and not uri.startswith("=?base64?"):
        return uri
    return f"=?base64?{base64.b64encode(uri.encode()).decode()}?="


async def _all_uris(client: Handshake | Modern) -> list[str]:
    uris: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await client.ask("resources/list", **cursor)
        uris += [str(each["uri"]) for each in page["resources"]]
        if not page.get("nextCursor"):
            return uris
        cursor = {"cursor": page["nextCursor"]}
