"""A balancer that knows nothing but TCP: each connection goes to the next replica, no byte is touched.

The suite tests Host and Origin, so nothing between it and the broker may read or write HTTP.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Self

from tests.support.balancer import Address
from tests.support.loop_thread import LoopThread

CHUNK = 1 << 16


class TcpBalancer:
    """Spreads connections over `replicas`; `turns` counts what each of them got."""

    def __init__(self, replicas: Sequence[Address]) -> None:
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
            await asyncio.gather(_pump(client, to_server), _pump(server, to_client))
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
