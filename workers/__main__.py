"""The `workers` command: workers that need no code of yours. `workers folder PATH` publishes a folder.

Exit codes as those of `broker`: 0 done, 1 trying again may help, 2 something must be changed first.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.core.errors import BrokerError, Misconfigured
from broker.telemetry import logging
from workers.publisher import Publisher


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="workers", description="Workers of the resource broker for MCP.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    folder = commands.add_parser("folder", help="publish the files of a folder, and follow its changes")
    folder.add_argument("path", type=Path, help="the folder")
    folder.add_argument("--base", default="docs://", help="what its URIs begin with (default: docs://)")
    folder.add_argument("--glob", default="*", help='which files, by their names, as "*.md" (default: all)')
    folder.add_argument("--tenant", help="the tenant to publish for [BROKER_TENANT; default: default]")
    folder.add_argument("--redis-url", help="the brokers' Redis [BROKER_REDIS_URL; default: this machine's]")
    folder.add_argument("--prefix", help="what every Redis key begins with [BROKER_PREFIX; default: mrb]")
    folder.add_argument(
        "--scope", action="append", default=[], help="a scope that readers must have; may be repeated"
    )
    return parser


async def _follow(arguments: argparse.Namespace) -> None:
    try:
        from workers.folder import Folder, FolderWorker  # noqa: PLC0415 # an extra that may be missing
    except ModuleNotFoundError as error:
        if error.name != "watchfiles":
            raise
        raise Misconfigured(
            "Following a folder needs watchfiles: pip install 'mcp-resource-broker[folder]'."
        ) from None
    if not arguments.path.is_dir():
        raise Misconfigured(f"{arguments.path} is no folder.")
    folder = Folder(arguments.path, arguments.base, arguments.glob)
    async with Publisher(arguments.redis_url, tenant=arguments.tenant, prefix=arguments.prefix) as publisher:
        await FolderWorker(folder, publisher, tuple(arguments.scope)).run()


async def _until_signal(arguments: argparse.Namespace) -> None:
    task = asyncio.ensure_future(_follow(arguments))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    logging.configure()
    try:
        asyncio.run(_until_signal(arguments))
    except BrokerError as error:
        print(f"workers: {error}", file=sys.stderr)  # noqa: T201 # a shell command's answer
        return 1 if error.retryable else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
