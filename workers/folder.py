"""A worker that publishes a folder of files and follows it: edits, new files, deletions and renames.

1. A change in the folder only says *that* something changed; a look at the whole folder says what. So a lost
   or doubled event, a rename of a directory or an outage of Redis all end the same way: at the next look,
   what is published is made to be what is there.
2. The folder owns everything of its tenant under its base URI: what is published there without a file is
   removed, also what an earlier run published.
3. A file that cannot be read or published is told once and left out until it changes; the others go on.
4. Hidden files and what only editors want are left out; so is a link that leads out of the folder, also one
   that is put there between the look and the reading (paths.py).
5. A folder that is gone altogether (an unmounted disk) removes nothing: it is waited for.
"""

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import watchfiles

from broker.core.errors import BadRequest, BrokerError, Conflict, InvalidUri, LimitReached, NotFound
from broker.core.identity import check_uri
from workers.mime import contents_of
from workers.paths import open_inside
from workers.publisher import Publisher

log = logging.getLogger(__name__)

_LOOK_MS = 1000
"""How often the watch says that nothing happened; a failed look is then repeated."""
_DEBOUNCE_MS = 100
"""How long changes are gathered: an editor's save is several."""
_FULL_LOOK_SECONDS = 30.0
"""How often we look even if nothing is said to have changed: some file systems tell nothing."""
_OPEN_PATH = "/:@!$&'()*+,;=~"
"""What stands as it is in a URI's path (RFC 3986, pchar)."""
_HEADING = re.compile(r"^#\s+(.+?)\s*#*$", re.MULTILINE)


class Print(NamedTuple):
    """What tells one state of a file from another without reading it."""

    modified_ns: int
    changed_ns: int
    size: int
    inode: int


@dataclass(frozen=True)
class Folder:
    """Which files are published, and under which URIs."""

    root: Path
    base: str = "docs://"
    pattern: str = "*"
    """Of file names, as in a shell: "*.md"."""

    def __post_init__(self) -> None:
        check_uri(self.base + "x")

    def uri_of(self, path: Path) -> str:
        """Return the URI of a file below the root.

        Raises:
            InvalidUri: its name cannot be one, as when it is too long.
        """
        relative = path.relative_to(self.root).as_posix()
        return check_uri(self.base + quote(os.fsencode(relative), safe=_OPEN_PATH))

    def read(self, path: Path) -> bytes:
        """Return the contents of a file below the root.

        Raises:
            NotFound: it leads out of the folder by now, or is no file any more.
            OSError: it cannot be read.
        """
        root = self.root.resolve(strict=True)
        real = path.resolve(strict=True)
        if not real.is_relative_to(root):
            raise NotFound("There is no such file.")
        with open_inside(root, real) as file:
            return file.read()

    def files(self) -> Iterator[tuple[Path, Print]]:
        """Yield the files to publish, each with its print.

        Raises:
            FileNotFoundError: the folder is gone.
        """
        root = self.root.resolve(strict=True)
        for directory, inner, names in os.walk(root):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(names):
                if name.startswith(".") or name.endswith("~") or not fnmatch(name, self.pattern):
                    continue
                path = Path(directory, name)
                found = _print(path, root)
                if found is not None:
                    yield self.root / path.relative_to(root), found


def _print(path: Path, root: Path) -> Print | None:
    """Return the print of a regular file that is in the folder, None for anything else."""
    try:
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(root):
            return None
        facts = path.stat()
    except (OSError, RuntimeError):
        # It went while we looked, or a link leads nowhere or in a circle.
        return None
    if not path.is_file():
        return None
    return Print(facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino)


@dataclass
class Change:
    """What one look at the folder led to."""

    published: int = 0
    removed: int = 0
    failed: int = 0


@dataclass
class FolderWorker:
    """Keeps what is published equal to what is in the folder."""

    folder: Folder
    publisher: Publisher
    scopes: tuple[str, ...] = ()
    subjects: tuple[str, ...] | None = None
    is_published: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first look that went through."""

    def __post_init__(self) -> None:
        self._known: dict[str, Print] = {}
        """What we published, and from which state of its file."""
        self._left_out: dict[str, Print] = {}
        """What only a changed file can cure, and was told."""
        self._is_unsure = True
        """Whether what is published may be other than we know: at first, after an error, now and then."""
        self._is_failing = False

    async def run(self) -> None:
        """Publish the folder and follow it until cancelled."""
        while True:
            try:
                async with contextlib.aclosing(self._ticks()) as ticks:
                    async for has_changed in ticks:
                        if has_changed or self._is_unsure:
                            await self._look()
            except FileNotFoundError:
                log.warning("folder_gone", extra={"folder": str(self.folder.root)})
            except OSError as error:
                log.warning("folder_not_watched", extra={"folder": str(self.folder.root), "why": error})
            await asyncio.sleep(_LOOK_MS / 1000)

    async def _ticks(self) -> AsyncGenerator[bool]:
        """Yield at least once a second whether there is something to look at; first as soon as we watch."""
        loop = asyncio.get_running_loop()
        changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType] # trio's events are unknown
            self.folder.root,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_LOOK_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        # The first step of the generator begins the watch; only what changes after that is told. So look
        # then, beside the wait for the first change.
        first = asyncio.ensure_future(anext(changes))
        try:
            await asyncio.sleep(0)
            yield True
            due = loop.time() + _FULL_LOOK_SECONDS
            has_changed = bool(await first)
            while True:
                if not self.folder.root.is_dir():
                    raise FileNotFoundError
                if loop.time() > due:
                    due = loop.time() + _FULL_LOOK_SECONDS
                    self._is_unsure = True
                yield has_changed
                has_changed = bool(await anext(changes))
        finally:
            if not first.done():
                first.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await first
            await changes.aclose()

    async def _look(self) -> None:
        """Reconcile; an outage is told once and tried again at the next tick."""
        try:
            change = await self.reconcile()
        except BrokerError as error:
            if not error.retryable:
                raise
            if not self._is_failing:
                log.warning("publishing_failed", extra={"why": str(error)})
            self._is_failing = self._is_unsure = True
            return
        if self._is_failing:
            log.info("publishing_again")
        self._is_failing = False
        self.is_published.set()
        if change.published or change.removed:
            log.info("folder_published", extra={"published": change.published, "removed": change.removed})

    async def reconcile(self) -> Change:
        """Look at the whole folder once, and publish and remove what differs.

        Raises:
            BrokerError: Redis cannot be reached, or refuses everything; what was done stays done.
            FileNotFoundError: the folder is gone.
        """
        change = Change()
        files = await asyncio.to_thread(lambda: list(self.folder.files()))
        published = await self._published() if self._is_unsure else set(self._known)
        # What Redis lost, or somebody removed, is published again.
        self._known = {uri: found for uri, found in self._known.items() if uri in published}
        seen: set[str] = set()
        for path, found in files:
            try:
                uri = self.folder.uri_of(path)
            except InvalidUri as error:
                self._leave_out(str(path), found, error, change)
                continue
            # A file that cannot be read now is not a deleted one.
            seen.add(uri)
            is_hopeless = self._left_out.get(uri) == found and not self._is_unsure
            if self._known.get(uri) != found and not is_hopeless:
                await self._publish(uri, path, found, change)
        for uri in sorted(published - seen):
            await self.publisher.remove(uri)
            self._known.pop(uri, None)
            change.removed += 1
        self._is_unsure = False
        return change

    async def _published(self) -> set[str]:
        """Return what is published under the base."""
        found: set[str] = set()
        # In the order of their bytes, those that begin with the base follow it at once.
        async for listed in self.publisher.list(after=self.folder.base):
            if not listed.uri.startswith(self.folder.base):
                break
            found.add(listed.uri)
        return found

    async def _publish(self, uri: str, path: Path, found: Print, change: Change) -> None:
        try:
            contents, mime_type = contents_of(await asyncio.to_thread(self.folder.read, path), path)
            await self.publisher.publish(
                uri,
                contents,
                name=path.relative_to(self.folder.root).as_posix(),
                title=_title(contents, mime_type),
                mime_type=mime_type,
                scopes=self.scopes,
                subjects=self.subjects,
            )
        except (OSError, BadRequest, Conflict, LimitReached, NotFound) as error:
            self._leave_out(uri, found, error, change)
            return
        self._known[uri] = found
        change.published += 1

    def _leave_out(self, what: str, found: Print, error: Exception, change: Change) -> None:
        """Tell of a file that cannot be published, once for each of its states."""
        if self._left_out.get(what) != found:
            log.warning("file_left_out", extra={"file": what, "why": str(error)})
        self._left_out[what] = found
        change.failed += 1


def _title(contents: str | bytes, mime_type: str) -> str | None:
    """Return the first heading of a Markdown file."""
    if not isinstance(contents, str) or mime_type != "text/markdown":
        return None
    heading = _HEADING.search(contents)
    return heading.group(1) if heading else None
