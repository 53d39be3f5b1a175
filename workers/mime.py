"""Which media type a file has, by its name alone.

The same on every machine: the system's own tables differ, so they are not asked. Text types carry no charset:
contents travel as Unicode.
"""

import mimetypes
from pathlib import PurePath

_KNOWN = {
    ".adoc": "text/asciidoc",
    ".csv": "text/csv",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".markdown": "text/markdown",
    ".md": "text/markdown",
    ".mdx": "text/markdown",
    ".py": "text/x-python",
    ".rst": "text/x-rst",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".ts": "text/typescript",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_TEXTUAL = ("+json", "+xml", "/json", "/jsonl", "/toml", "/xml", "/yaml", "/javascript")
_PYTHONS = mimetypes.MimeTypes()
"""Python's built-in table, without the files of the system."""


def type_of(path: PurePath) -> str | None:
    """Return the media type that the file's name says, None if it says none."""
    known = _KNOWN.get(path.suffix.lower())
    if known is not None:
        return known
    guessed, encoding = _PYTHONS.guess_type(path.name)
    # What is compressed is not what its inner name says.
    return "application/octet-stream" if encoding else guessed


def contents_of(data: bytes, path: PurePath) -> tuple[str | bytes, str]:
    """Return a file's contents as text where they are text, as bytes otherwise, and their media type."""
    declared = type_of(path)
    is_text = declared is None or declared.startswith("text/") or declared.endswith(_TEXTUAL)
    if is_text and b"\0" not in data:
        try:
            return data.decode("utf-8-sig"), declared or "text/plain"
        except UnicodeDecodeError:
            pass
    return data, declared or "application/octet-stream"
