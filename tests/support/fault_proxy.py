"""A TCP proxy that can do what networks do: refuse, swallow, delay, reset, cut.

A black hole keeps both connections open and forwards nothing; bytes that were sent into it arrive when it
ends, as after a broken link. `cut` and `reset` end connections, `refuse` ends new ones. `hold` keeps back the
replies to one kind of command only, so that a test decides which answer is late. All may be switched at any
time, from any thread.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Self

from tests.support.loop_thread import LoopThread

Address = tuple[str, int]
CHUNK = 1 << 16
READERS = 2
"""Connections on which one replica of the broker waits by XREAD: for the log, and for its inbox."""


class _Way:
    """One direction: open or a black hole, and how long bytes take, in seconds."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.delay = 0.0


class FaultProxy:
    """Stands in front of one address; `port` stays the same for its life."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self.port = 0
        self.accepted = 0
        """How many connections were ever accepted."""
        self._thread = LoopThread("fault proxy")
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._up = self._down = _Way()
        self._marker: bytes | None = None
        self._held: set[asyncio.Event] = set()
        self.held = 0
        """How many connections ever had a reply held back."""
        self._thread.run(self._start())

    def __repr__(self) -> str:
        return f"<FaultProxy {self.port} -> {self.target}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def connections(self) -> int:
        """How many client connections are open now."""
        return len(self._open) // 2

    def pass_all(self) -> None:
        """Heal everything: accept, forward, at once. What a black hole held back arrives now."""
        self._thread.run(self._start())
        self._thread.call(self._heal)

    def refuse(self) -> None:
        """Refuse new connections; those that are open go on."""
        self._thread.run(self._stop_listening())

    def black_hole(self, *, up: bool = True, down: bool = True) -> None:
        """Forward nothing towards the server (`up`) or the client (`down`); nobody notices by itself."""

        def switch() -> None:
            for way, is_closed in ((self._up, up), (self._down, down)):
                way.is_open.clear() if is_closed else way.is_open.set()

        self._thread.call(switch)

    def hold(self, marker: bytes) -> None:
        """Let commands that contain `marker` pass, and hold back all that their connections answer."""

        def switch() -> None:
            self._marker = marker

        self._thread.call(switch)

    def release(self) -> None:
        """Let everything come that `hold` held back, and hold no more."""
        self._thread.call(self._release)

    def forget(self) -> None:
        """Hold back nothing more, but never let come what is held: those connections are dead ends."""

        def switch() -> None:
            self._marker = None

        self._thread.call(switch)

    def _release(self) -> None:
        self._marker = None
        for gate in self._held:
            gate.set()
        self._held.clear()

    def delay(self, seconds: float) -> None:
        """Let each chunk take that long, each way."""

        def switch() -> None:
            self._up.delay = self._down.delay = seconds

        self._thread.call(switch)

    def cut(self) -> None:
        """Close every open connection, as an orderly peer would (FIN)."""
        self._thread.call(lambda: [writer.close() for writer in self._open])

    def reset(self) -> None:
        """Reset every open connection (RST)."""

        def reset() -> None:
            for writer in self._open:
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

        self._thread.call(reset)

    def close(self) -> None:
        """End everything, the thread included."""
        self.refuse()
        self.cut()
        self._thread.close()

    async def _start(self) -> None:
        if self._server is None:
            self._up, self._down = (_Way(), _Way()) if not self.port else (self._up, self._down)
            self._server = await asyncio.start_server(self._thread.task(self._serve), "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _heal(self) -> None:
        self._release()
        for way in (self._up, self._down):
            way.is_open.set()
            way.delay = 0.0

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            server, to_server = await asyncio.open_connection(*self.target)
        except OSError:
            to_client.transport.abort()
            return
        ends = {to_client, to_server}
        self._open |= ends
        gate = asyncio.Event()
        gate.set()
        try:
            await asyncio.gather(
                self._pump(client, to_server, self._up, lambda data: self._hold(data, gate)),
                self._pump(server, to_client, self._down, lambda _: gate.wait()),
            )
        finally:
            self._open -= ends
            for end in ends:
                end.close()

    async def _hold(self, data: bytes, gate: asyncio.Event) -> None:
        if self._marker is not None and self._marker in data:
            gate.clear()
            self._held.add(gate)
            self.held += 1

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        way: _Way,
        pause: Callable[[bytes], Awaitable[object]],
    ) -> None:
        """Forward one direction until its end; the end itself is forwarded, too (half-close)."""
        with contextlib.suppress(ConnectionError):
            while data := await source.read(CHUNK):
                if way.delay:
                    await asyncio.sleep(way.delay)
                await way.is_open.wait()
                await pause(data)
                sink.write(data)
                await sink.drain()
            await way.is_open.wait()
            with contextlib.suppress(OSError):  # "not connected": its peer is gone already
                if sink.can_write_eof() and not sink.is_closing():
                    sink.write_eof()
            return
        sink.transport.abort()
