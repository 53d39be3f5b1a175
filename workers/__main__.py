"""The `workers` command: run workers of yours, or one that needs no code.

`workers run module:worker` serves, `workers dev module:worker` does with a broker and reload, `workers folder
PATH` publishes a folder, `workers postgres DSN TABLE` the rows of a table.

Exit codes as those of `broker`: 0 done, 1 trying again may help, 2 something must be changed first.
"""

import argparse
import asyncio
import contextlib
import logging as events
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.core.errors import BrokerError, Misconfigured
from broker.telemetry import logging
from workers.calling import ServingRules
from workers.loading import load
from workers.publisher import Publisher
from workers.serving import serve

_log = events.getLogger(__name__)

LAST_SECONDS = 1.0
"""How long what is left may take to end."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="workers", description="Workers of the resource broker for MCP.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    folder = commands.add_parser("folder", help="publish the files of a folder, and follow its changes")
    folder.add_argument("path", type=Path, help="the folder")
    folder.add_argument("--base", default="docs://", help="what its URIs begin with (default: docs://)")
    folder.add_argument("--glob", default="*", help='which files, by their names, as "*.md" (default: all)')
    _add_audience(folder)
    _add_place(folder)
    rows = commands.add_parser("postgres", help="publish the rows of a PostgreSQL table, and follow them")
    rows.add_argument("dsn", help="as postgresql://user@host/database; a password belongs in PGPASSWORD")
    rows.add_argument("table", help="the table, with its schema before a dot if it needs one")
    rows.add_argument("--key", default="id", help="a unique column that ends a row's URI (default: id)")
    rows.add_argument("--base", default="", help="what its URIs begin with (default: row://TABLE/)")
    rows.add_argument("--column", action="append", help="publish only these; may be repeated (default: all)")
    rows.add_argument("--channel", default="", help="what to listen to (default: mcp_rows_TABLE)")
    rows.add_argument("--install", action="store_true", help="make the table's triggers first")
    _add_audience(rows)
    _add_place(rows)
    run = commands.add_parser("run", help="serve workers of yours until a signal comes")
    _add_workers(run)
    _add_place(run)
    dev = commands.add_parser("dev", help="a broker, and workers of yours that start anew when they change")
    _add_workers(dev)
    dev.add_argument("--watch", type=Path, default=Path(), help="the folder of the code (default: this one)")
    return parser


def _add_audience(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tenant", help="the tenant to publish for [BROKER_TENANT; default: default]")
    command.add_argument(
        "--scope", action="append", default=[], help="a scope that readers must have; may be repeated"
    )


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument("--redis-url", help="the brokers' Redis [BROKER_REDIS_URL; default: this machine's]")
    command.add_argument("--prefix", help="what every Redis key begins with [BROKER_PREFIX; default: mrb]")


def _add_workers(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "workers", nargs="+", metavar="MODULE:WORKER", help="what to serve, as it would be imported"
    )
    command.add_argument(
        "--concurrency", type=int, default=64, help="calls answered at once by each worker (default: 64)"
    )
    command.add_argument(
        "--per-tenant",
        type=int,
        help="of these, for each tenant (default: all; half for a worker of several tenants)",
    )


async def _serve(arguments: argparse.Namespace) -> None:
    for option, number in (("--concurrency", arguments.concurrency), ("--per-tenant", arguments.per_tenant)):
        if number is not None and number < 1:
            raise Misconfigured(f"{option} is at least 1.")
    workers = [load(named) for named in arguments.workers]
    rules = ServingRules(concurrency=arguments.concurrency, per_tenant=arguments.per_tenant)
    await serve(*workers, url=arguments.redis_url, prefix=arguments.prefix, rules=rules)


async def _develop(arguments: argparse.Namespace) -> None:
    try:
        from workers import dev  # noqa: PLC0415 # an extra that may be missing
    except ModuleNotFoundError as error:
        if error.name != "watchfiles":
            raise
        raise Misconfigured(
            "workers dev needs watchfiles: pip install 'mcp-resource-broker[server,embedded,folder]'."
        ) from None
    # A mistake in the names is said before anything is started.
    for named in arguments.workers:
        load(named)
    options = ["--concurrency", str(arguments.concurrency)]
    if arguments.per_tenant is not None:
        options += ["--per-tenant", str(arguments.per_tenant)]
    await dev.run(arguments.workers, options, arguments.watch.resolve())


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


async def _follow_rows(arguments: argparse.Namespace) -> None:
    try:
        from workers.postgres import Rows, RowsWorker, install  # noqa: PLC0415 # an extra that may be missing
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise Misconfigured(
            "Following a table needs psycopg: pip install 'mcp-resource-broker[postgres]'."
        ) from None
    columns = None if arguments.column is None else tuple(arguments.column)
    rows = Rows(arguments.dsn, arguments.table, arguments.key, arguments.base, columns, arguments.channel)
    if arguments.install:
        await install(rows)
    async with Publisher(arguments.redis_url, tenant=arguments.tenant, prefix=arguments.prefix) as publisher:
        await RowsWorker(rows, publisher, tuple(arguments.scope)).run()


_COMMANDS = {"folder": _follow, "postgres": _follow_rows, "run": _serve, "dev": _develop}


async def _until_signal(arguments: argparse.Namespace) -> None:
    task = asyncio.ensure_future(_COMMANDS[arguments.command](arguments))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await _end_the_rest()


async def _end_the_rest() -> None:
    """Leave no function behind that ignores its cancellation: asyncio would wait for it for ever."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if not rest:
        return
    for each in rest:
        each.cancel()
    _, pending = await asyncio.wait(rest, timeout=LAST_SECONDS)
    if pending:
        _log.error("functions_ignore_the_end", extra={"count": len(pending)})
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


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
