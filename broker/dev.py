"""`broker dev`: everything on one machine, to try it out.

One replica with our own Redis, and a worker that publishes a folder and follows it. Once it serves, it says
on standard output what a newcomer can do next, ready to paste.
"""

import argparse
import asyncio
import importlib
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from broker import server
from broker.cli.place import broker_url
from broker.cli.serve import Build, warn
from broker.core.errors import Misconfigured
from broker.settings import Settings
from broker.store.embedded import Embedded
from workers import Publisher

if TYPE_CHECKING:
    from workers.folder import Folder

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 2.0
"""At a keyboard nobody waits for a balancer."""
_FIRST_LOOK_SECONDS = 10.0

BANNER = """
The broker serves {url} (no credentials are asked for; this machine only by default).
{folder} is published under {base}… ({count}); edit a file there, and whoever watches it hears of it.

Watch and publish from a shell:

    {broker} watch {uri}{where}
    echo hello | {broker} publish demo://hello{place}
    {broker} list{place}

Watch from Python (pip install mcp), era 2026-07-28:

    import asyncio
    from mcp import Client

    async def main():
        async with Client("{url}") as client:
            async with client.listen(resource_subscriptions=["{uri}"]) as changes:
                async for change in changes:
                    print(await client.read_resource(change.uri))

    asyncio.run(main())

Look around with the MCP Inspector (Node 22 or newer), in a browser or in the shell:

    npx @modelcontextprotocol/inspector --transport http --server-url {url}
    npx @modelcontextprotocol/inspector --cli {url} --method resources/list

Publish from anything that speaks HTTP:

    curl -X PUT --data hello -H 'Content-Type: text/plain' '{origin}/v1/resources?uri=demo://hello'

Ctrl+C ends it.
"""


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve and follow the folder until interrupted.

    Raises:
        Misconfigured: with what to do.
    """
    folder = _folder(Path(arguments.folder), arguments.base)
    settings.check_exposure()
    if "drain_seconds" not in settings.model_fields_set:
        settings = settings.model_copy(update={"drain_seconds": _DRAIN_SECONDS})
    sockets = server.Sockets(settings)
    try:
        warn(settings)
        return server.run(_run(folder, settings, sockets, importlib.import_module("broker.app").build))
    finally:
        sockets.close()


def _folder(path: Path, base: str) -> "Folder":
    try:
        from workers.folder import Folder  # noqa: PLC0415 # an extra that may be missing
    except ModuleNotFoundError as error:
        if error.name != "watchfiles":
            raise
        raise Misconfigured(
            "broker dev needs watchfiles: pip install 'mcp-resource-broker[folder]'."
        ) from None
    if not path.is_dir():
        raise Misconfigured(f"{path} is no folder: name one with Markdown files, as in broker dev docs.")
    return Folder(path.resolve(), base)


async def _run(folder: "Folder", settings: Settings, sockets: server.Sockets, build: Build) -> int:
    if settings.redis_url is not None:
        return await _serve(folder, settings, sockets, build)
    async with Embedded(
        settings.state_dir, binary=settings.redis_server_bin, is_ephemeral=settings.ephemeral
    ) as url:
        return await _serve(folder, settings.with_redis(url), sockets, build)


async def _serve(folder: "Folder", settings: Settings, sockets: server.Sockets, build: Build) -> int:
    work = asyncio.create_task(_work(folder, settings, sockets), name="folder worker")
    try:
        return await server.serve(build(settings), settings, sockets)
    finally:
        work.cancel()
        await asyncio.wait({work})


async def _work(folder: "Folder", settings: Settings, sockets: server.Sockets) -> None:
    """Publish and follow the folder, and say once what can be done with it."""
    from workers.folder import FolderWorker  # noqa: PLC0415 # see _folder

    try:
        async with Publisher(
            settings.redis_url,
            tenant=settings.auth.tenant,
            prefix=settings.prefix,
            max_content_bytes=settings.http.max_content_bytes,
        ) as publisher:
            worker = FolderWorker(folder, publisher)
            following = asyncio.create_task(worker.run(), name="following")
            try:
                published = asyncio.create_task(worker.is_published.wait())
                await asyncio.wait(
                    {published, following}, timeout=_FIRST_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                published.cancel()
                _welcome(folder, settings, sockets)
                await following
            finally:
                following.cancel()
                await asyncio.wait({following})
    except Exception:
        # The replica serves on: what is published stays readable.
        log.exception("folder_worker_died")


def _welcome(folder: "Folder", settings: Settings, sockets: server.Sockets) -> None:
    uris = [folder.uri_of(path) for path, _ in folder.files()]
    url = server.address(settings, sockets)
    text = BANNER.format(
        url=url,
        origin=url.removesuffix("/mcp"),
        folder=folder.root,
        base=folder.base,
        count=f"{len(uris)} file{'' if len(uris) == 1 else 's'}",
        uri=next(iter(uris), f"{folder.base}hello.md"),
        broker=_own_command(),
        where=_where(settings, url),
        place=_place(settings),
    )
    print(text, flush=True)  # noqa: T201 # this is what the command is for


def _where(settings: Settings, url: str) -> str:
    """Return the flags by which a command in another terminal finds this broker."""
    flags = "" if url == broker_url(Settings.model_construct()) else f" --url {url}"
    return flags + _tenant(settings)


def _place(settings: Settings) -> str:
    """Return the flags by which a command in another terminal finds our own Redis."""
    flags = ""
    # One that somebody else keeps is named by BROKER_REDIS_URL, and its URL may hold a password.
    url = settings.redis_url or ""
    if url.startswith("unix:") and settings.model_fields_set & {"state_dir", "ephemeral"}:
        flags += f" --redis-url {shlex.quote(url)}"
    if "prefix" in settings.model_fields_set:
        flags += f" --prefix {settings.prefix}"
    return flags + _tenant(settings)


def _tenant(settings: Settings) -> str:
    return "" if settings.auth.tenant == "default" else f" --tenant {shlex.quote(settings.auth.tenant)}"


def _own_command() -> str:
    """Return how this very program is called from the shell that called it."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "broker" else f"{shlex.quote(sys.executable)} -m broker"
