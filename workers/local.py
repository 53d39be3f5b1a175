"""A broker of one's own on this machine, as a process: for `workers dev` and for tests.

Started by the command that an operator would use, it tells its port in a file, and is asked to leave at the
end before it is ended.
"""

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from broker.core.errors import Misconfigured

READY_SECONDS = 30.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.05

QUICK = {"BROKER_DRAIN_SECONDS": "1", "BROKER_LINGER_SECONDS": "0"}
"""At a keyboard and in a test nobody waits for a balancer."""


@contextlib.asynccontextmanager
async def local_broker(directory: Path, environment: Mapping[str, str]) -> AsyncGenerator[str]:
    """Run a broker with this environment and give the address of its endpoint; `directory` is for its file.

    Raises:
        Misconfigured: it did not start.
    """
    ready = directory / "ready.json"
    argv = [sys.executable, "-m", "broker", "serve"]
    process = await start(argv, {**QUICK, **environment, "BROKER_READY_FILE": str(ready)})
    try:
        port = await _port(process, ready)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        await stop(process)


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


async def start(argv: Sequence[str], environment: Mapping[str, str]) -> Process:
    """Start a program in a session of its own: Ctrl+C reaches us, and we end the rest in order."""
    return await asyncio.create_subprocess_exec(*argv, env=environment, start_new_session=True)


async def stop(process: Process) -> None:
    """Ask a program to leave, and end it if it does not."""
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
