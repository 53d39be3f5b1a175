"""`broker export` and `broker import`: an installation's lasting contents as a file, and back into any other.

To move to another Redis, to a cluster, to another prefix or number of shards, or a tenant to another cell
(docs/operations/move.md).
"""

import argparse
import os
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from broker.cli import flag, place
from broker.cli.administration import Desk, note, run_act, say
from broker.core.errors import BadRequest, TenantNotFound
from broker.core.identity import TenantId, check_tenant
from broker.core.tenancy import State, Tenant
from broker.core.transfer import (
    MAX_HEADER_BYTES,
    MAX_LINE_BYTES,
    End,
    Header,
    Line,
    ResourceLine,
    TenantLine,
    decode,
    encode,
)
from broker.settings import Settings
from broker.store import transfer
from broker.store.quotas import set_limits
from broker.store.transfer import Tally

PROGRESS = 1000
"""Resources between two lines about how far it is."""


def add(commands: Any) -> None:
    """Add both commands to the parser's `commands`."""
    out = commands.add_parser("export", help="write tenants, keys and published resources to a file")
    out.add_argument("file", nargs="?", default="-", help="where to; - or none writes standard output")
    out.add_argument("--tenant", action="append", help="only this tenant; may be given several times")
    flag.add(out, only=place.FLAGS)
    back = commands.add_parser("import", help="take in what broker export wrote")
    back.add_argument("file", help="the file; - reads standard input")
    back.add_argument("--check", action="store_true", help="compare only, and change nothing")
    back.add_argument("--overwrite", action="store_true", help="replace what is there and different")
    flag.add(back, only=place.FLAGS)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one of the commands; 1 if an import left something out."""
    if arguments.command == "export":
        return run_act(settings, lambda desk: _export(desk, arguments))
    tally = Tally()
    run_act(settings, lambda desk: _import(desk, arguments, tally))
    return 1 if tally.missing or tally.refused or (arguments.check and tally.different) else 0


# -- out -----------------------------------------------------------------------------------------------------


async def _export(desk: Desk, arguments: argparse.Namespace) -> None:
    only = {check_tenant(name) for name in arguments.tenant or ()}
    end = End(0, 0)
    with _written(arguments.file) as file:
        async for line in _lines(desk, only):
            file.write(encode(line))
            match line:
                case TenantLine():
                    end = End(end.tenants + 1, end.resources)
                case ResourceLine():
                    end = End(end.tenants, end.resources + 1)
                    if end.resources % PROGRESS == 0:
                        note(f"{end.resources} resources…")
                case _:
                    pass
        file.write(encode(end))
    note(f"exported {end.resources} resources and {end.tenants} registered tenants")


async def _lines(desk: Desk, only: set[TenantId]) -> AsyncIterator[Line]:
    yield Header(version("mcp-resource-broker"))
    registered = [
        tenant
        for tenant in await desk.control.tenants()
        if tenant.state is not State.DELETING and (not only or tenant.id in only)
    ]
    for tenant in registered:
        yield TenantLine(tenant, await desk.control.keys(tenant.id))
    publishing = set(await transfer.tenants(desk.redis, desk.keys))
    unknown = only - publishing - {tenant.id for tenant in registered}
    if unknown:
        raise TenantNotFound(f"There is no tenant {', '.join(sorted(unknown))}, and nothing of it.")
    for name in sorted(publishing & only if only else publishing):
        async for line in transfer.published(desk.redis, desk.keys, name):
            yield line


@contextmanager
def _written(name: str) -> Generator[IO[bytes]]:
    """Open a file that gets its name once it is whole; only its owner reads it: it holds digests of keys."""
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = Path(f"{name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(name)
    except OSError as error:
        raise BadRequest(f"{name} cannot be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)


# -- in ------------------------------------------------------------------------------------------------------


class _Batch:
    """Resources of one tenant on their way in."""

    def __init__(self, desk: Desk, arguments: argparse.Namespace, tally: Tally) -> None:
        self._desk = desk
        self._arguments = arguments
        self._tally = tally
        self._lines: list[ResourceLine] = []
        self._bytes = 0

    async def add(self, line: ResourceLine) -> None:
        """Take one in, with those before it if that is enough for a round trip."""
        is_other = bool(self._lines) and self._lines[0].publication.key.tenant != line.publication.key.tenant
        if is_other or self._bytes > transfer.BODY_BYTES or len(self._lines) == transfer.BODIES:
            await self.flush()
        self._lines.append(line)
        self._bytes += len(line.publication.body)

    async def flush(self) -> None:
        """Send what is left."""
        lines, self._lines, self._bytes = self._lines, [], 0
        if not lines:
            return
        before = self._tally.total // PROGRESS
        tally, refused = await transfer.take_in(
            self._desk.redis,
            self._desk.keys,
            lines,
            overwrite=self._arguments.overwrite,
            check=self._arguments.check,
        )
        self._tally.add(tally)
        for uri, error in refused:
            note(f"refused {uri}: {error}")
        if self._tally.total // PROGRESS > before:
            note(f"{self._tally.total} resources…")


class _Import:
    """One import: takes line after line, and knows whether they are in order."""

    def __init__(self, desk: Desk, arguments: argparse.Namespace, tally: Tally) -> None:
        self._desk = desk
        self._arguments = arguments
        self._tally = tally
        self._batch = _Batch(desk, arguments, tally)
        self._tenants: list[Tenant] = []
        self._keys = 0
        self._resources = 0
        self._end: End | None = None

    async def take(self, text: bytes, number: int) -> None:
        """Take in line `number`."""
        line = decode(text, number)
        if (number == 1) != isinstance(line, Header) or self._end is not None:
            raise BadRequest(f"Line {number} is out of place: is this a file of broker export?")
        match line:
            case TenantLine():
                await self._tenant(line)
            case ResourceLine():
                self._resources += 1
                await self._batch.add(line)
            case End():
                self._end = line
            case Header():
                pass

    async def _tenant(self, line: TenantLine) -> None:
        self._tenants.append(line.tenant)
        if not self._arguments.check:
            self._keys += await self._desk.control.restore(self._desk.actor, line.tenant, line.keys)
        elif await self._desk.control.lacks(line.tenant, line.keys):
            self._tally.missing += 1
            note(f"tenant {line.tenant.id} or one of its keys is missing")

    async def finish(self) -> None:
        """Send what is left, and say what became of it all.

        Raises:
            BadRequest: the file was cut, or lacks lines amid it.
        """
        desk = self._desk
        await self._batch.flush()
        if not self._arguments.check:
            # Last, so that a tenant's own limits do not hold up what it had within them.
            for tenant in self._tenants:
                there = await desk.control.tenant(tenant.id)
                await set_limits(desk.redis, desk.keys, tenant.id, (there or tenant).limits)
        _tell(self._tally, len(self._tenants), self._keys)
        if self._end is None:
            raise BadRequest("The file has no last line: it was cut, and what is behind the cut is not here.")
        found = End(len(self._tenants), self._resources)
        if found != self._end:
            raise BadRequest(
                f"The file says that it has {self._end.tenants} tenants and {self._end.resources} resources, "
                f"and has {found.tenants} and {found.resources}: lines of it are missing, or are there twice."
            )


async def _import(desk: Desk, arguments: argparse.Namespace, tally: Tally) -> None:
    taking = _Import(desk, arguments, tally)
    with _read(arguments.file) as file:
        number, most = 1, MAX_HEADER_BYTES
        # With a bound: what is no such file may have no end of a line at all.
        while text := file.readline(most + 1):
            if len(text) > most:
                raise BadRequest(
                    f"Line {number} is longer than {most} bytes: is this a file of broker export?"
                )
            await taking.take(text, number)
            number, most = number + 1, MAX_LINE_BYTES
    await taking.finish()


@contextmanager
def _read(name: str) -> Generator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise BadRequest(f"{name} cannot be read: {error.strerror}.") from None


def _tell(tally: Tally, tenants: int, keys: int) -> None:
    say(f"tenants\t{tenants}\nkeys added\t{keys}")
    for name in ("added", "same", "different", "expired", "missing", "refused"):
        say(f"{name}\t{getattr(tally, name)}")
