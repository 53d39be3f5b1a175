"""`broker publish`, `touch`, `remove`, `list` and `read`: the publisher's API from a shell.

They talk to Redis directly, so they work without a broker. Standard output is the answer alone: what a
command did, the URIs, or the contents byte for byte.
"""

import argparse
import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.cli.place import redis_url
from broker.core.errors import BadRequest, NotFound
from broker.settings import Settings
from workers import Outcome, SyncPublisher
from workers.mime import contents_of

Command = Callable[[SyncPublisher, argparse.Namespace], int]


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one of the commands."""
    commands: dict[str, Command] = {
        "publish": _publish,
        "touch": _touch,
        "remove": lambda publisher, args: _done(publisher.remove(args.uri), args.uri),
        "list": _list,
        "read": _read,
    }
    with SyncPublisher(
        redis_url(settings),
        tenant=arguments.tenant,
        prefix=settings.prefix,
        max_content_bytes=settings.http.max_content_bytes,
    ) as publisher:
        return commands[arguments.command](publisher, arguments)


def _publish(publisher: SyncPublisher, arguments: argparse.Namespace) -> int:
    contents, mime_type = contents_of(*_input(arguments))
    # None says "not given": the publisher has its own defaults.
    name = arguments.name or (None if arguments.file == "-" else Path(arguments.file).name)
    outcome = publisher.publish(
        arguments.uri,
        contents,
        mime_type=arguments.mime_type or mime_type,
        name=name,
        title=arguments.title,
        description=arguments.description,
        version=arguments.version,
        expires_in=arguments.expires_in,
        wait_replicas=arguments.wait_replicas,
        wait_ms=arguments.wait_ms,
    )
    return _done(outcome, arguments.uri)


def _input(arguments: argparse.Namespace) -> tuple[bytes, Path]:
    """Return the contents, and the name by which their type is told: the file's, else the URI's."""
    if arguments.file == "-":
        if sys.stdin.isatty():
            print("Type the contents, then Ctrl+D.", file=sys.stderr)  # noqa: T201 # said to the person typing
        return sys.stdin.buffer.read(), Path(arguments.uri.rpartition("/")[2] or "stdin")
    path = Path(arguments.file)
    try:
        return path.read_bytes(), path
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}.") from None


def _touch(publisher: SyncPublisher, arguments: argparse.Namespace) -> int:
    outcome = publisher.touch(arguments.uri)
    _done(outcome, arguments.uri)
    if publisher.read(arguments.uri) is None:
        _print("Nothing is published there: whoever watches it was told, and a worker may answer its reads.")
    return 0


def _list(publisher: SyncPublisher, _arguments: argparse.Namespace) -> int:
    for listed in publisher.list():
        mime_type = json.loads(listed.meta).get("mimeType", "")
        _print(f"{listed.uri}\t{mime_type}" if mime_type else listed.uri)
    return 0


def _read(publisher: SyncPublisher, arguments: argparse.Namespace) -> int:
    stored = publisher.read(arguments.uri)
    if stored is None:
        # It may be listed all the same: only a broker asks the worker that answers it.
        raise NotFound(f"Nothing is published under {arguments.uri!a}; what workers answer, brokers read.")
    entries: list[dict[str, Any]] = json.loads(stored.contents)
    for entry in entries:
        data = base64.b64decode(entry["blob"]) if "blob" in entry else str(entry["text"]).encode()
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


def _done(outcome: Outcome, uri: str) -> int:
    at = f" at revision {outcome.stamp}" if outcome.stamp else ""
    _print(f"{outcome.status} {uri}{at}")
    return 0


def _print(text: str) -> None:
    print(text)  # noqa: T201 # a shell command's answer
