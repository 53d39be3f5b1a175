"""What stands at a sentinel's address and is none costs nothing as long as the others answer."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from broker.core.errors import StoreUnavailable
from broker.store.address import parse
from broker.store.errors import translated
from broker.store.sentinel import Sentinels, SyncSentinels

HONEST = (b"*2\r\n$1\r\nh\r\n$4\r\n6379\r\n", b"*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n")
LIES = {
    "an epoch that is no number": (HONEST[0], b"*2\r\n$12\r\nconfig-epoch\r\n$1\r\nx\r\n"),
    "a name without a value": (HONEST[0], b"*1\r\n$12\r\nconfig-epoch\r\n"),
    "a port that is none": (b"*2\r\n$1\r\nh\r\n$6\r\n999999\r\n", HONEST[1]),
    "a host that is no text": (b"*2\r\n$1\r\n\xff\r\n$4\r\n6379\r\n", HONEST[1]),
    "a host alone": (b"*1\r\n$1\r\nh\r\n", HONEST[1]),
    "other things": (b":1\r\n", b"+OK\r\n"),
}


@contextlib.asynccontextmanager
async def answering(place: bytes, details: bytes) -> AsyncGenerator[str]:
    """Give the address of a server that answers the two questions so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                count = int((await reader.readline())[1:] or b"0")
                words = [
                    (await reader.readexactly(int((await reader.readline())[1:]) + 2))[:-2].upper()
                    for _ in range(count)
                ]
                if not words:
                    break
                known = {b"GET-MASTER-ADDR-BY-NAME": place, b"MASTER": details}
                writer.write(known.get(words[1] if len(words) > 1 else b"", b"+OK\r\n"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("lie", LIES)
async def test_the_others_are_believed_and_alone_it_is_no_crash(lie: str) -> None:
    async with answering(*LIES[lie]) as liar, answering(*HONEST) as one, answering(*HONEST) as other:
        address = parse(f"redis+sentinel://{liar},{one},{other}/main")
        sentinels = Sentinels(address, 1.0)
        assert await sentinels.primary() == ("h", 6379)
        await sentinels.aclose()
        sync = SyncSentinels(address, 1.0)
        assert await asyncio.to_thread(sync.primary) == ("h", 6379)
        sync.close()
        alone = Sentinels(parse(f"redis+sentinel://{liar}/main"), 1.0)
        with pytest.raises(StoreUnavailable), translated():
            await alone.primary()
        await alone.aclose()
