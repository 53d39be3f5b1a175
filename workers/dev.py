"""`workers dev`: a broker with its own Redis, and a worker that starts anew whenever its code changes.

Both are processes of their own, started by the commands that an operator would use; this one only starts,
watches and ends them, and says what can be done next.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import watchfiles

from workers.local import local_broker, start, stop

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
    with tempfile.TemporaryDirectory(prefix="workers-dev-") as directory:
        await _run(named, options, folder, Path(directory))


async def _run(named: Sequence[str], options: Sequence[str], folder: Path, directory: Path) -> None:
    async with local_broker(directory, os.environ) as url:
        print(BANNER.format(url=url, workers=", ".join(named), folder=folder), flush=True)  # noqa: T201 # what the command is for
        argv = [sys.executable, "-m", "workers", "run", *named, *options]
        worker = await start(argv, os.environ)
        try:
            changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType] # trio's events are unknown
                folder, watch_filter=watchfiles.PythonFilter()
            )
            async for _ in changes:
                await stop(worker)
                worker = await start(argv, os.environ)
        finally:
            await stop(worker)
