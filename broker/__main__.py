"""The `broker` command: serve, dev, and publishing and watching from a shell.

The commands that publish import neither FastAPI nor uvicorn: each command's module is imported when it runs.
Exit codes: 0 done, 1 it failed and trying again may help, 2 something must be changed first.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from broker.cli import flag, place
from broker.core.errors import BrokerError, Misconfigured
from broker.settings import Settings, load
from broker.telemetry import logging

Command = Callable[[argparse.Namespace, Settings], int]

_SERVERS = {"serve": "server,embedded", "dev": "server,embedded,folder"}
"""Commands that run a broker, and the extras that they need."""
_MODULES = ("tenant", "key", "doctor", "top", "streams", "transfer")
"""Modules of broker/cli that bring commands of their own: of the same name, but for these."""
_OF_MODULE = {"export": "transfer", "import": "transfer"}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command's arguments under that command's own usage, not that of `broker`."""

    # The library's own overloads say no more than this.
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


class _Version(argparse.Action):
    """Prints which release this is, and ends; looking for it costs the other commands nothing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from broker.gauges import release  # noqa: PLC0415 # as each command's own module

        print(f"broker {release()}")  # noqa: T201 # a shell command's answer
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="broker", description="The resource broker for MCP.", epilog="broker COMMAND --help tells more."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print which release this is")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    serve = commands.add_parser("serve", help="run one replica")
    flag.add(serve)

    dev = commands.add_parser("dev", help="run one replica that publishes a folder, to try it out")
    dev.add_argument(
        "folder", nargs="?", default="docs", help="the folder to publish and watch (default: docs)"
    )
    dev.add_argument(
        "--base", default="docs://", help="what the URIs of its files begin with (default: docs://)"
    )
    flag.add(dev)

    publish = commands.add_parser("publish", help="publish contents under a URI")
    publish.add_argument("uri", help="the resource's URI, as docs://hello")
    publish.add_argument(
        "file", nargs="?", default="-", help="the file with the contents; - or none reads stdin"
    )
    publish.add_argument(
        "--mime-type", help="the media type; by default what the file's name or contents say"
    )
    publish.add_argument(
        "--expires-in", type=float, metavar="SECONDS", help="remove it again after this many seconds"
    )
    publish.add_argument(
        "--wait-replicas", type=int, metavar="N", help="fail unless so many replicas of Redis have it as well"
    )
    publish.add_argument(
        "--wait-ms", type=int, metavar="MS", help="how long to wait for them (default: 1000)"
    )
    publish.add_argument("--name", help="the resource's name; by default the file's")
    publish.add_argument("--title", help="a title for people")
    publish.add_argument("--description", help="a sentence for people and models")
    publish.add_argument(
        "--version", type=int, help="your own version number: a publish with an older one changes nothing"
    )

    for name, text in (
        ("touch", "tell subscribers that a resource changed, without new contents"),
        ("remove", "remove a resource"),
        ("read", "print the contents that were published"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("uri", help="the resource's URI")
        _add_place(command)
    listing = commands.add_parser("list", help="print the URIs of the published resources")
    for command in (publish, listing):
        _add_place(command)

    for module in _MODULES:
        # Each brings its own arguments.
        importlib.import_module(f"broker.cli.{module}").add(commands)

    watch = commands.add_parser("watch", help="print a line whenever a resource changes, as an MCP client")
    watch.add_argument("uri", nargs="+", help="the URIs to watch")
    watch.add_argument("--url", help="the broker's MCP endpoint (default: made of the settings)")
    _add_tenant(watch)
    flag.add(watch, only=place.BROKER_FLAGS)
    return parser


def _add_place(command: argparse.ArgumentParser) -> None:
    _add_tenant(command)
    flag.add(command, only=place.FLAGS)


def _add_tenant(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tenant", help="the tenant to act for [BROKER_TENANT; default: default]")


def _command(name: str) -> Command:
    named = _OF_MODULE.get(name, name)
    module = named if named in {"serve", "dev", "watch", *_MODULES} else "resource"
    path = "broker.dev" if module == "dev" else f"broker.cli.{module}"
    try:
        command: Command = importlib.import_module(path).run
    except ModuleNotFoundError as error:
        if name not in _SERVERS or (error.name or "").partition(".")[0] in {"broker", "workers"}:
            raise
        raise Misconfigured(
            f"broker {name} needs {error.name}: pip install 'mcp-resource-broker[{_SERVERS[name]}]'."
        ) from None
    return command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        settings = load(flag.given(arguments))
        # A shell command answers on standard output, and says what went wrong by its own last line.
        level = settings.log.level if arguments.command in _SERVERS else "error"
        logging.configure(level, settings.log.format)
        return _command(arguments.command)(arguments, settings)
    except Misconfigured as error:
        return _fail(error, 2)
    except BrokerError as error:
        return _fail(error, 1 if error.retryable else 2)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; nothing more can be written, not even at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _fail(error: BrokerError, code: int) -> int:
    print(f"broker: {error}", file=sys.stderr)  # noqa: T201 # a shell command's answer
    return code


if __name__ == "__main__":
    sys.exit(main())
