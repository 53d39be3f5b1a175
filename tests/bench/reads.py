"""How long a read takes: stored, answered by a worker, and from a plain server of the official SDK.

    .venv/bin/python -m tests.bench.reads [reads in a round]

All are asked the same way over kept connections: one read after another, then 32 at a time.
The worker is a process of its own; its function returns at once and nothing is kept, so each read of it is a
call, there and back. Rounds of all three alternate, since times drift; medians of the rounds are printed.
"""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from tests.support.mcp import MODERN
from tests.support.process import Process, free_port
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from workers import Publisher

ROUNDS = 7
AT_ONCE = 32
ROOT = Path(__file__).parents[2]

WORKER = """
from workers import Worker
worker = Worker("bench")
@worker.resource("bench://called/{n}")
async def called(n: str) -> str:
    return "x" * 1000
"""

PLAIN = """
import sys, uvicorn
from mcp.server import MCPServer
server = MCPServer("bench")
@server.resource("bench://plain/{n}")
async def plain(n: str) -> str:
    return "x" * 1000
uvicorn.run(server.streamable_http_app(json_response=True, stateless_http=True), host="127.0.0.1",
            port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


def request(uri: str, host: str) -> bytes:
    """Return a read as the modern era sends it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri, "_meta": meta}}
    body = json.dumps(message).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: {host}\r\naccept: application/json, text/event-stream\r\n"
        f"content-type: application/json\r\nmcp-protocol-version: {MODERN}\r\nmcp-method: resources/read\r\n"
        f"mcp-name: {uri}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Door:
    """One kept connection."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = f"127.0.0.1:{port}"
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Door":
        return cls(port, *await asyncio.open_connection("127.0.0.1", port))

    async def read(self, uri: str) -> None:
        """Ask once, and fail unless the contents come."""
        self._writer.write(request(uri, self._host))
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        data = await self._reader.readexactly(length)
        assert head.startswith(b"http/1.1 200"), (head, data)
        body = json.loads(data)
        assert "result" in body, body
        assert body["result"]["contents"][0]["text"] == "x" * 1000, body

    def close(self) -> None:
        self._writer.close()


async def one_by_one(port: int, kind: str, reads: int) -> list[float]:
    """Return the seconds of each of `reads`, one after another."""
    door = await Door.open(port)
    times: list[float] = []
    for number in range(reads):
        started = time.perf_counter()
        await door.read(f"bench://{kind}/{number % 100}")
        times.append(time.perf_counter() - started)
    door.close()
    return times


async def together(port: int, kind: str, reads: int) -> float:
    """Return how many reads a second are answered, `AT_ONCE` at a time."""
    doors = [await Door.open(port) for _ in range(AT_ONCE)]

    async def ask(door: Door, first: int) -> None:
        for number in range(first, reads, AT_ONCE):
            await door.read(f"bench://{kind}/{number}")

    started = time.perf_counter()
    await asyncio.gather(*(ask(door, first) for first, door in enumerate(doors)))
    for door in doors:
        door.close()
    return reads / (time.perf_counter() - started)


async def answers(port: int, kind: str) -> None:
    """Wait until a read is answered."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OSError, AssertionError, asyncio.IncompleteReadError):
                door = await Door.open(port)
                try:
                    await door.read(f"bench://{kind}/0")
                finally:
                    door.close()
                return
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def servers() -> Generator[tuple[str, str, dict[str, int]]]:
    """Run a replica with a worker, and a plain server; give Redis, the prefix and the ports by kind."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mrb-bench-")))
        fleet = stack.enter_context(Fleet(redis.url, "bench"))
        fleet.add(1)
        (folder / "bench_worker.py").write_text(WORKER)
        (folder / "bench_plain.py").write_text(PLAIN)
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "BROKER_REDIS_URL": redis.url}
        env["BROKER_PREFIX"] = "bench"
        port = free_port()
        for name, argv in (
            ("worker", ["-m", "workers", "run", "bench_worker"]),
            ("plain", [str(folder / "bench_plain.py"), str(port)]),
        ):
            process = Process(name, [sys.executable, *argv], folder / f"{name}.log", env)
            process.start()
            stack.callback(process.kill)
        yield redis.url, "bench", {"stored": fleet[0].port, "called": fleet[0].port, "plain": port}


async def measure(reads: int) -> None:
    """Measure all three in turns, and print the table."""
    with servers() as (url, prefix, ports):
        async with Publisher(url, prefix=prefix) as publisher:
            for number in range(reads):
                await publisher.publish(f"bench://stored/{number}", "x" * 1000)
        for kind, port in ports.items():
            await answers(port, kind)
        alone: dict[str, list[float]] = {kind: [] for kind in ports}
        rates: dict[str, list[float]] = {kind: [] for kind in ports}
        for _ in range(ROUNDS):
            for kind, port in ports.items():
                alone[kind] += await one_by_one(port, kind, reads // 4)
                rates[kind].append(await together(port, kind, reads))
    say(f"{'':8} {'p50 ms':>8} {'p99 ms':>8} {'reads/s':>8}   against the plain server")
    plain = statistics.median(alone["plain"])
    for kind, times in alone.items():
        cuts = statistics.quantiles(times, n=100)
        rate = statistics.median(rates[kind])
        p50 = statistics.median(times)
        say(f"{kind:8} {p50 * 1e3:8.2f} {cuts[98] * 1e3:8.2f} {rate:8.0f}   {p50 / plain:.2f} x the time")


def say(line: str) -> None:
    """Print a line of the table."""
    print(line)  # noqa: T201 # a benchmark's answer


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 800))
