"""uvicorn's HTTP protocol with the two limits that it lacks.

1. A request's head has a size: the parser keeps a header until it is whole, so a client that never ends one
   would cost memory without bound.
2. A request's head has a time: a connection that sends nothing, or a byte a minute, would cost a descriptor
   for ever. (uvicorn's own timer runs only after a response.)
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP/1.1 connection."""

    max_head_bytes = 32_768
    head_seconds = 20.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True
        self._is_head_too_large = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Start the clock of the first request's head."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_seconds, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of an unfinished head."""
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(self.head_seconds, self._end)
        super().data_received(data)
        # What came with the head's last bytes is body, hence only an unfinished head is judged here.
        if self._is_in_head and self._head_bytes > self.max_head_bytes and not self.transport.is_closing():
            self._is_head_too_large = True
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """Judge the finished head."""
        self._is_in_head = False
        self._stop_clock()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.max_head_bytes:
            self._is_head_too_large = True
            # The parser hands this back to data_received as its own error, which answers.
            raise ValueError("head too large")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for the next head; its clock starts with its first byte."""
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, or is too large, and close."""
        if not self._is_head_too_large:
            super().send_400_response(msg)
            return
        text = f"The request's line and headers are larger than {self.max_head_bytes} bytes.\n".encode()
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + text)
        self.transport.close()

    def _stop_clock(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end(self) -> None:
        """Close a connection whose request's head did not come in time."""
        self._head_timer = None
        # Some clients end a body with a stray line break: no reason to cut the stream that answers it.
        is_idle = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] # None before the first request
        if is_idle:
            self.transport.close()
