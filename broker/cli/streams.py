"""`broker streams list|cut`: the open streams of the replica on this machine, and ending one.

It asks the internal port, which answers this to its own machine only; in a cluster run it in the pod.
"""

import argparse
import http.client
import json
from typing import Any
from urllib.parse import quote

from broker.cli import flag
from broker.core.errors import BadRequest, Unavailable
from broker.settings import Settings

FLAGS = frozenset({"BROKER_INTERNAL_PORT"})
_COLUMNS = ("stream", "tenant", "subject", "watches", "waiting")


def add(commands: Any) -> None:
    """Add the command to the parser's `commands`."""
    parser = commands.add_parser("streams", help="show this replica's open streams, and end one")
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)
    listing = acts.add_parser("list", help="print the streams, those that watch most first")
    listing.add_argument("--tenant", help="only this tenant's")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    cut = acts.add_parser("cut", help="end a stream cleanly; its client may come back")
    cut.add_argument("stream", type=int, help="the stream's number, as the list gives it")
    for command in (listing, cut):
        flag.add(command, only=FLAGS)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """List, or cut.

    Raises:
        Unavailable: no broker answers on the internal port.
        BadRequest: there is no such stream.
    """
    if arguments.act == "list":
        query = f"?tenant={quote(arguments.tenant)}" if arguments.tenant else ""
        _, answer = ask(settings.internal_port, "GET", f"/streams{query}")
        _print(answer["streams"], is_json=arguments.json)
        return 0
    status, _ = ask(settings.internal_port, "POST", f"/streams/{arguments.stream}/end")
    if status == http.client.NOT_FOUND:
        raise BadRequest(f"There is no stream {arguments.stream} here; broker streams list shows them.")
    print(f"stream {arguments.stream} has been ended")  # noqa: T201 # the command's answer
    return 0


def ask(port: int, method: str, path: str) -> tuple[int, dict[str, Any]]:
    """Ask the internal port of this machine's broker.

    Raises:
        Unavailable: nobody answers there.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        raise Unavailable(
            f"No broker answers on the internal port {port} of this machine; say which with --internal-port."
        ) from None
    finally:
        connection.close()


def _print(streams: list[dict[str, Any]], *, is_json: bool) -> None:
    if is_json:
        for stream in streams:
            print(json.dumps(stream))  # noqa: T201 # the command's answer
        return
    rows = [_COLUMNS, *(tuple(_shown(stream[name]) for name in _COLUMNS) for stream in streams)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())  # noqa: T201 # the command's answer


def _shown(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() else ascii(text)
