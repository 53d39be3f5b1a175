"""A balancer that knows nothing but TCP: each connection goes to the next replica, no byte is touched.

The suite tests Host and Origin, so nothing between it and the broker may read or write HTTP. The one
exception is a credential, which the suite cannot send by itself: with a `token` it is added to each head.
"""

import asyncio
import contextlib
import functools
import itertools
import re
from collections.abc import Sequence
from typing import Self

from tests.support.balancer import Address
from tests.support.loop_thread import LoopThread

CHUNK = 1 << 16


class TcpBalancer:
    """Spreads connections over `replicas`; `turns` counts what each of them got."""

    def __init__(self, replicas: Sequence[Address], token: str | None = None) -> None:
        self._forward = _pump if token is None else functools.partial(_credited, token=token)
        self.turns = dict.fromkeys(replicas, 0)
        self._next = itertools.cycle(replicas)
        self._thread = LoopThread("tcp balancer")
        self._server = self._thread.run(asyncio.start_server(self._thread.task(self._serve), "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.call(self._server.close)
        self._thread.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        replica = next(self._next)
        self.turns[replica] += 1
        try:
            server, to_server = await asyncio.open_connection(*replica)
        except OSError:
            to_client.transport.abort()
            return
        try:
            await asyncio.gather(self._forward(client, to_server), _pump(server, to_client))
        finally:
            to_client.close()
            to_server.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Forward one direction until its end, and the end itself."""
    with contextlib.suppress(ConnectionError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
        sink.write_eof()


async def _credited(source: asyncio.StreamReader, sink: asyncio.StreamWriter, token: str) -> None:
    """Forward requests, each with the credential behind its first line."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await source.readuntil(b"\r\n\r\n")
            first, rest = head.split(b"\r\n", 1)
            sink.write(b"%b\r\nauthorization: Bearer %b\r\n%b" % (first, token.encode(), rest))
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            sink.write(await source.readexactly(int(length[1])) if length else b"")
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()
