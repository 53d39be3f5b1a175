"""The fast way to a stream's socket: frames written on uvicorn's own transport, as uvicorn would.

uvicorn's `send` costs a coroutine, a message and a dozen checks for each part of a body: 2.3 µs of the 7 that
a cue took us beside the kernel's own. Here a part goes to the transport in the same chunk framing. Rules:

1. Not a byte differs from what `send` would write (`examine` compares them when the process starts). The
   head, the first part and the end of the body still go through `send`, so keep-alive, pipelined requests and
   `connection: close` stay uvicorn's business.
2. Flow control is the transport's: it pauses and resumes its protocol (http/protocol.py), which tells the
   writer. While paused nothing is written, and cues coalesce in the backlog.
3. A server, a protocol or a request that is not known in every detail gets the portable writer.
"""

import asyncio
import logging
from typing import Any, Literal, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from broker.http.protocol import LimitedProtocol
from broker.http.writer import AsgiWriter, MakeWriter, Send

_log = logging.getLogger(__name__)

Mode = Literal["auto", "portable", "fast"]


class FastWriter(AsgiWriter):
    """A connection.Writer on the transport of one request's connection."""

    __slots__ = ("_cycle", "_protocol", "_transport")

    def __init__(
        self,
        send: Send,
        request: asyncio.Task[Any] | None,
        cycle: RequestResponseCycle,
        protocol: LimitedProtocol,
    ) -> None:
        super().__init__(send, request)
        self._cycle = cycle
        self._transport = cycle.transport
        self._protocol = protocol
        protocol.stream = self
        if cycle.flow.write_paused:
            self.paused()

    def write(self, data: bytes) -> None:
        """Write a part of the body."""
        if not self._is_over and not self._cycle.disconnected:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def paused(self) -> None:
        """Note that the socket takes no more: called by the connection's protocol."""
        self.is_blocked = True
        self.blocked_since = asyncio.get_running_loop().time()

    def resumed(self) -> None:
        """Go on: the socket takes more. Called by the connection's protocol."""
        self.is_blocked = False
        self._go_on()

    def finish(self, data: bytes) -> None:
        """Write the last part and end the body, when the socket takes it."""
        super().finish(data)
        if self._is_over:
            self._let_go()

    def close(self) -> None:
        """Forget what is still being written; the request is over."""
        super().close()
        self._let_go()

    def _let_go(self) -> None:
        # The next request's stream on this connection may have come already.
        if self._protocol.stream is self:
            self._protocol.stream = None


def chosen(mode: Mode) -> MakeWriter:
    """Return how streams are written in this process; says once in the log where that is not as wished."""
    if mode == "portable":
        return AsgiWriter
    why_not = examine()
    if why_not is None:
        return fast_or_portable
    level = logging.WARNING if mode == "fast" else logging.INFO
    _log.log(level, "stream_writer_portable", extra={"why": why_not})
    return AsgiWriter


def fast_or_portable(send: Send, request: asyncio.Task[Any] | None) -> AsgiWriter:
    """Return the fast writer where the request's head went out in chunked framing on a connection of ours."""
    cycle = getattr(send, "__self__", None)
    if type(cycle) is RequestResponseCycle and cycle.response_started and cycle.chunked_encoding is True:
        protocol = cycle.transport.get_protocol()
        # HEAD has no body, and uvicorn swallows it.
        if isinstance(protocol, LimitedProtocol) and cycle.scope["method"] != "HEAD":
            return FastWriter(send, request, cycle, protocol)
    return AsgiWriter(send, request)


def examine() -> str | None:
    """Return why this uvicorn cannot be written to directly, None if it can: both ways, byte for byte."""
    try:
        portable, fast = _Wire(), _Wire()
        cycle = _cycle(fast)
        _drive(_cycle(portable), _HEAD, *map(_part, _PARTS), _LAST)
        _drive(cycle, _HEAD)
        writer = FastWriter(cast("Send", cycle.send), None, cycle, cast("LimitedProtocol", _NoProtocol()))
        for part in _PARTS:
            writer.write(part)
        _drive(cycle, _LAST)
        cycle.flow.pause_writing()
        is_paused = cycle.flow.write_paused
    except Exception as error:  # whatever a uvicorn of another make raises, it is not the one we know
        return f"uvicorn is not as it is known here ({type(error).__name__}: {error})."
    if portable.written != fast.written:
        return "uvicorn frames the parts of a body in another way."
    if not (is_paused and cycle.response_complete and not cycle.disconnected):
        return "uvicorn keeps another account of a response or of its flow."
    return None


class _Wire:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False


class _NoProtocol:
    stream: FastWriter | None = None


_HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
_PARTS = (b":\n", b"data: " + b"x" * 300 + b"\n\n")
_LAST = {"type": "http.response.body", "body": b"data: last\n\n", "more_body": False}


def _part(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


def _cycle(wire: _Wire) -> RequestResponseCycle:
    transport = cast("asyncio.Transport", wire)
    return RequestResponseCycle(
        scope=cast("Any", {"type": "http", "method": "POST", "http_version": "1.1"}),
        transport=transport,
        flow=FlowControl(transport),
        logger=_log,
        access_logger=_log,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )


def _drive(cycle: RequestResponseCycle, *messages: Any) -> None:
    for message in messages:
        sending = cycle.send(message)
        try:
            sending.send(None)
        except StopIteration:
            continue
        sending.close()
        raise RuntimeError("sending waits though the socket is free")
