"""`workers dev`: a broker with its own Redis, and a worker that starts anew whenever its code changes.

Both are processes of their own, started by the commands that an operator would use; this one only starts,
watches and ends them, and says what can be done next.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import watchfiles

from broker.core.errors import Misconfigured

READY_SECONDS = 30.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.05

BANNER = """
The broker serves {url} (no credentials are asked for; this machine only by default).
{workers} answers there, and starts anew when a Python file under {folder} changes.

Look around with the MCP Inspector (Node):

    npx @modelcontextprotocol/inspector --transport http --server-url {url}

Ctrl+C ends both.
"""


async def run(named: Sequence[str], options: Sequence[str], folder: Path) -> None:
    """Serve `named` until cancelled. `options` are handed on to `workers run`.

    Raises:
        Misconfigured: the broker did not start.
    """
    async with _broker() as url:
        print(BANNER.format(url=url, workers=", ".join(named), folder=folder), flush=True)  # noqa: T201 # what the command is for
        argv = [sys.executable, "-m", "workers", "run", *named, *options]
        worker = await _start(argv, os.environ)
        try:
            changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType] # trio's events are unknown
                folder, watch_filter=watchfiles.PythonFilter()
            )
            async for _ in changes:
                await _stop(worker)
                worker = await _start(argv, os.environ)
        finally:
            await _stop(worker)


@contextlib.asynccontextmanager
async def _broker() -> AsyncGenerator[str]:
    """Run a broker and give the address of its endpoint."""
    with tempfile.TemporaryDirectory(prefix="workers-dev-") as directory:
        ready = Path(directory) / "ready.json"
        quick = {"BROKER_DRAIN_SECONDS": "1", "BROKER_LINGER_SECONDS": "0"}
        env = {**quick, **os.environ, "BROKER_READY_FILE": str(ready)}
        process = await _start([sys.executable, "-m", "broker", "serve"], env)
        try:
            port = await _port(process, ready)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            await _stop(process)


async def _port(process: Process, ready: Path) -> int:
    try:
        async with asyncio.timeout(READY_SECONDS):
            while (port := _told(ready)) is None:
                if process.returncode is not None:
                    raise Misconfigured("The broker did not start; what it said is above.")
                await asyncio.sleep(POLL_SECONDS)
            return port
    except TimeoutError:
        raise Misconfigured(f"The broker did not serve within {READY_SECONDS:g} seconds.") from None


def _told(ready: Path) -> int | None:
    return int(json.loads(ready.read_text())["port"]) if ready.exists() else None


async def _start(argv: Sequence[str], env: Mapping[str, str]) -> Process:
    # A session of its own: Ctrl+C reaches us, and we end the rest in order.
    return await asyncio.create_subprocess_exec(*argv, env=env, start_new_session=True)


async def _stop(process: Process) -> None:
    """Ask it to leave, and end it if it does not."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
