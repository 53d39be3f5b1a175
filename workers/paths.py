"""Keeping file names that a client made inside the folder that they are meant for.

Values come out of a URI decoded exactly once, and are checked in that form, so no way of encoding hides
anything. Two lines of defence:

1. `refusal` looks at each value before the function runs. It needs no folder and knows none: it refuses what
   is never a plain relative path. It is on unless the author exempts a parameter.
2. `safe_join` is the boundary for files: it resolves the real path, symlinks included, and refuses what is
   not inside. It holds at the moment of the call: who can write into the folder can swap a directory for a
   link a moment later.
3. `safe_open` holds beyond that. It opens what `safe_file` found one directory after the other, each from the
   one before and none through a link, so what is read is in the folder whatever is swapped meanwhile. The
   folder itself and what is above it are the operator's: they are trusted. So are hard links and mounts,
   which no path shows.

A refused value and a missing file look to the client exactly like an unknown resource.
"""

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from broker.core.errors import NotFound

_DRIVE = re.compile(r"[A-Za-z]:")
_ROUNDS = 3
"""How often a value is decoded on suspicion. Whoever encodes more often than that has no good in mind."""


def refusal(value: str, *, is_path: bool = True) -> str | None:
    """Return why `value` is no plain relative path, None if it is one.

    Also refuses what would be none if the function decoded it once more, as careless ones do. With
    `is_path`, as for all but query parameters, segments that are empty or a single dot are refused as well:
    the same file would have many URIs.
    """
    for _ in range(_ROUNDS):
        why = _refusal(value, is_path=is_path)
        if why is not None or "%" not in value:
            return why
        decoded = unquote(value, errors="surrogateescape")
        if decoded == value:
            return None
        value = decoded
    return "it is percent-encoded again and again"


def _refusal(value: str, *, is_path: bool) -> str | None:
    if "\0" in value:
        return "it contains a NUL character"
    if "\\" in value:
        return "it contains a backslash"
    if value.startswith("/"):
        return "it is an absolute path"
    if _DRIVE.match(value):
        return "it begins with a drive letter"
    segments = value.split("/")
    if ".." in segments:
        return "it has a .. segment"
    if is_path and value and ("." in segments or "" in segments):
        return "it has an empty or . segment"
    return None


def safe_join(root: str | Path, *parts: str) -> Path:
    """Return the real path of what `parts` name inside of `root`: an existing file or folder.

    Raises:
        NotFound: nothing is there, or it is not inside of `root` once all symlinks are followed.
        FileNotFoundError: `root` itself does not exist.
    """
    base = Path(root).resolve(strict=True)
    for part in parts:
        if "\0" in part or part.startswith(("/", "\\")) or _DRIVE.match(part):
            raise NotFound("There is no such file.")
    try:
        found = base.joinpath(*parts).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        # Missing, a loop of links, a name that is too long or that the file system cannot hold.
        raise NotFound("There is no such file.") from None
    if not found.is_relative_to(base):
        raise NotFound("There is no such file.")
    return found


def safe_file(root: str | Path, *parts: str) -> Path:
    """Do what `safe_join` does, for a regular file only.

    Raises:
        NotFound, FileNotFoundError: as `safe_join`; NotFound for a folder or a device as well.
    """
    found = safe_join(root, *parts)
    if not found.is_file():
        raise NotFound("There is no such file.")
    return found


def safe_open(root: str | Path, *parts: str) -> BinaryIO:
    """Open what `safe_file` finds, for reading bytes, also where others may write into `root` meanwhile.

    Raises:
        NotFound, FileNotFoundError: as `safe_file`.
        OSError: it is there and cannot be read.
    """
    base = Path(root).resolve(strict=True)
    return open_inside(base, safe_file(base, *parts))


def open_inside(base: Path, path: Path) -> BinaryIO:
    """Open the regular file `path` below `base`, both real paths: no link is followed between the two.

    Raises:
        NotFound: it is no regular file any more, or there is a link on the way now.
        OSError: it is there and cannot be read.
    """
    with contextlib.ExitStack() as opened:
        at = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, at)
        *directories, name = path.relative_to(base).parts
        try:
            for directory in directories:
                at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                opened.callback(os.close, at)
            # Without waiting: it may be a pipe by now.
            found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        except PermissionError:
            raise
        except OSError:
            # Gone, or a link, or no directory: it was swapped since it was looked at.
            raise NotFound("There is no such file.") from None
    file = os.fdopen(found, "rb")
    if not stat.S_ISREG(os.fstat(found).st_mode):
        file.close()
        raise NotFound("There is no such file.")
    return file
