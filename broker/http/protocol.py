"""uvicorn's HTTP protocol with the limits that it lacks.

1. A request's head has a size: the parser keeps a header until it is whole, so a client that never ends one
   would cost memory without bound.
2. A request's head has a time: a connection that sends nothing, or a byte a minute, would cost a descriptor
   for ever. (uvicorn's own timer runs only after a response, and any byte ends it.)
3. So has what is left of a body once its request is answered; uvicorn forgets it, and waits for ever.
4. A client that reads nothing has a time as well: it would keep its answer, and who waits to write more,
   for ever; also where the connection is closed already, since what was written goes out first.
5. The request that is being answered learns that its client has left, also where another one has come behind
   it: uvicorn tells only the last, and a stream went on writing to a connection that was no more.
6. Connections have a number: without the last descriptors this process could not reach Redis again. One too
   many is told so and closed.
7. What is no request is answered only between answers: uvicorn writes its 400 into the stream that is open.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_WHY = b"This replica has no room for more connections now; connect again shortly.\n"
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 1\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_WHY), _WHY)
)


class Stream(Protocol):
    """Who writes to the connection beside uvicorn (fast_writer.py), and must know when it may."""

    def paused(self) -> None:
        """Write nothing: the socket is full."""
        ...

    def resumed(self) -> None:
        """Go on."""
        ...


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP/1.1 connection."""

    # uvicorn's own attributes share their dict's keys up to thirty; ours beside them would cost 2 KB each.
    __slots__ = (
        "_answering",
        "_head_bytes",
        "_head_timer",
        "_is_head_too_large",
        "_is_in_head",
        "_unread_timer",
        "stream",
    )

    max_head_bytes = 32_768
    head_seconds = 20.0
    unread_seconds = 60.0
    most_connections: int | None = None
    on_too_many: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True
        self._is_head_too_large = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._answering: RequestResponseCycle | None = None
        self.stream: Stream | None = None
        """Whoever writes the body of the request that is being answered by itself."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Start the clock of the first request's head."""
        super().connection_made(transport)
        self._start_clock()
        if self.most_connections is not None and len(self.connections) > self.most_connections:
            self.on_too_many()
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks, and tell the request that is being answered (rule 5)."""
        self._stop_clock()
        self._stop_watching()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of an unfinished head."""
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._start_clock()
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
        """Wait for the next head; its clock starts with its first byte, or now if nothing else runs."""
        self._is_in_head = True
        self._head_bytes = 0
        self._stop_clock()
        super().on_message_complete()
        if self.cycle.response_complete:
            # Its body has ended uvicorn's timer.
            self._start_clock()

    def on_response_complete(self) -> None:
        """Go on to the next request, but wait neither for the rest of a body nor for a reader for ever."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_unread()
        elif not self._is_in_head and self._head_timer is None:
            self._start_clock()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that had no request for long."""
        super().timeout_keep_alive_handler()
        self._watch_unread()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, or is too large, and close."""
        answer = self._answering
        if answer is not None and answer.response_started and not answer.response_complete:
            # Its bytes would stand amid the answer that is under way (rule 7).
            self.transport.close()
            return
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

    def _start_clock(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._end)

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
            self._watch_unread()

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever."""
        super().pause_writing()
        self._watch_unread()
        if self.stream is not None:
            self.stream.paused()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_watching()
        if self.stream is not None:
            self.stream.resumed()

    def _watch_unread(self, before: int | None = None) -> None:
        """Cut the connection when its client has read nothing for long.

        `before`: how many bytes were waiting when this was last asked.
        """
        unread = self.transport.get_write_buffer_size()
        if unread == before:
            self.transport.abort()
            return
        self._stop_watching()
        self._unread_timer = self.loop.call_later(self.unread_seconds, self._watch_unread, unread)

    def _stop_watching(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
