"""Serves the protected resource metadata (RFC 9728) as a plain ASGI app: public, and readable by any page."""

from typing import Any

from broker.http.address import raw_path
from broker.http.auth.challenge import WELL_KNOWN, Challenge

_SECONDS = b"max-age=300"


class Metadata:
    """The well-known address, where it is served at all."""

    def __init__(self, challenge: Challenge) -> None:
        self._challenge = challenge

    def is_at(self, scope: Any) -> bool:
        """Whether an ASGI scope asks for metadata that there is."""
        path = raw_path(scope)
        return path.startswith(WELL_KNOWN) and self._challenge.metadata(path) is not None

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        """Answer one request."""
        body = self._challenge.metadata(raw_path(scope)) or b""
        is_read = scope["method"] in ("GET", "HEAD")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body) if is_read else b"0"),
            (b"access-control-allow-origin", b"*"),
            (b"cache-control", _SECONDS),
        ]
        status = 200
        if scope["method"] == "OPTIONS":
            status = 204
            headers += [
                (b"access-control-allow-methods", b"GET"),
                (b"access-control-allow-headers", b"MCP-Protocol-Version"),
            ]
        elif not is_read:
            status = 405
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})
