"""Carries an open stream: from its first byte to whatever ends it."""

import asyncio
from typing import TypeVar

from broker.http.exchange import STREAM_HEADERS, Exchange
from broker.replica import Replica
from broker.streams.connection import Connection

W = TypeVar("W")


async def carry(exchange: Exchange, replica: Replica[W], connection: Connection[W], first: bytes) -> None:
    """Send `first`, then let cues flow until the client leaves or we end the stream.

    The caller undoes what it registered (`replica.leave`), in a finally around this. The request's own
    task sleeps in `receive` all the while: the server wakes it when the client has gone, and when the body
    is done.
    """
    era = "handshake" if exchange.method == "GET" else "modern"
    await exchange.start(200, STREAM_HEADERS)
    writer = exchange.make_writer(exchange.send, asyncio.current_task())
    replica.metrics.stream_opened(era)
    try:
        await exchange.send({"type": "http.response.body", "body": first, "more_body": True})
        connection.start(writer)
        replica.keep(connection)
        while (await exchange.receive())["type"] != "http.disconnect":
            pass
    finally:
        writer.close()
        replica.metrics.stream_left(era)
