"""A held connection on which a log is read: XREAD written as bytes, its answer parsed and nothing more.

The client's own call takes a connection from its pool, sends through a task with a timeout, reads with
another, and makes a dict of each entry: 190 µs for a lone entry, 2.6 µs for each of a thousand. Here it is
30 µs and 1.1 µs. Connecting stays the client's business (address, TLS, credentials, the first commands of
client.py), and so does parsing; only the calls between are left out. Rules:

1. The connection belongs to the client's pool and is given back, closed, after whatever went wrong: an answer
   that is still to come would be taken for the next one's.
2. A read has one deadline, for its answer as a whole: an idle log is answered after the block.
3. Where the client is of another make (a cluster: not `is_held`; another release), its own call is used.
"""

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker.store.errors import is_demotion

if TYPE_CHECKING:
    from redis.asyncio import Redis

RawEntry = tuple[bytes, list[bytes]]
"""An entry's id, and its fields as they come: name, value, name, value."""


class Line:
    """Reads one stream through the connection of one client."""

    def __init__(
        self, client: "Redis", stream: str, *, block_ms: int, timeout: float, is_held: bool = True
    ) -> None:
        self._client: Any = client
        self._stream = stream
        self._block_ms = block_ms
        self._timeout = timeout
        self._is_held = is_held
        self._connection: Any = None
        self._head: dict[int, bytes] = {}
        """The beginning of the command, by how many entries are wanted."""

    def __repr__(self) -> str:
        return f"<Line {self._stream} {'open' if self._connection else 'closed'}>"

    async def read(self, after: bytes, count: int) -> list[RawEntry]:
        """Return up to `count` entries after the id `after`, waiting for the first; [] if none came.

        Raises:
            Exception: the client's own.
        """
        connection = self._connection
        if connection is not None and (connection._writer is None or connection.is_outdated):  # noqa: SLF001 - looked at in _open
            # Closed by the pool between two reads, or to one that is the primary no more.
            await self._drop()
            connection = None
        if connection is None and (connection := await self._open()) is None:
            return await self._called(after, count)
        try:
            async with asyncio.timeout(self._timeout):
                connection._writer.write(self._command(after, count))  # noqa: SLF001 - looked at in _open
                reply = await connection._parser.read_response()  # noqa: SLF001 - looked at in _open
        except BaseException:
            await self._drop()
            raise
        if isinstance(reply, Exception):
            if is_demotion(reply):
                await self._drop()
            raise reply
        return reply[0][1] if reply else []

    def _command(self, after: bytes, count: int) -> bytes:
        head = self._head.get(count)
        if head is None:
            words = ("XREAD", "COUNT", str(count), "BLOCK", str(self._block_ms), "STREAMS", self._stream)
            encoded = [word.encode() for word in words]
            head = b"*8\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
            self._head[count] = head
        return head + b"$%d\r\n%b\r\n" % (len(after), after)

    async def _open(self) -> Any:
        """Take a connection; None where the client's cannot be used so."""
        pool: Any = getattr(self._client, "connection_pool", None)
        if pool is None or not self._is_held:
            return None
        connection = await pool.get_connection()
        if getattr(connection, "_writer", None) is None or not hasattr(connection, "is_outdated"):
            await pool.release(connection)
            return None
        self._connection = connection
        return connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        await connection.disconnect(nowait=True)
        await self._client.connection_pool.release(connection)

    async def _called(self, after: bytes, count: int) -> list[RawEntry]:
        reply: Any = await self._client.xread({self._stream: after}, count=count, block=self._block_ms)
        if not reply:
            return []
        # None, a list or a dict, by protocol and client version.
        streams = list(cast("dict[Any, Any]", reply).items()) if isinstance(reply, dict) else reply
        return [(entry_id, _flat(fields or {})) for entry_id, fields in streams[0][1]]


def _flat(fields: dict[bytes, bytes]) -> list[bytes]:
    return [part for pair in fields.items() for part in pair]
