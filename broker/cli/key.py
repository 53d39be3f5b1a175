"""`broker key create|list|rotate|revoke`: the API keys of a tenant.

A new key is the only line on standard output, so that it can be piped to where it is kept; it is never shown
again.
"""

import argparse
import time
from typing import Any

from broker.cli import flag, place
from broker.cli.administration import Desk, note, run_act, say, say_json
from broker.core.access import PUBLISH, READ
from broker.core.identity import check_tenant
from broker.settings import Settings

OVERLAP_SECONDS = 24 * 3600.0


def add(commands: Any) -> None:
    """Add the command to the parser's `commands`."""
    parser = commands.add_parser("key", help="create, rotate and revoke a tenant's API keys")
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)
    for name, text in (
        ("create", "make a key and print it, once"),
        ("list", "print the keys without their secrets"),
        ("rotate", "make another key for the same caller; the one before goes on for a while"),
        ("revoke", "end a key now, everywhere, with its streams"),
    ):
        command = acts.add_parser(name, help=text)
        command.add_argument("tenant", help="the tenant's name")
        if name != "list":
            what = "what it is for, as ci-publisher" if name == "create" else "the key's name or id"
            command.add_argument("name", help=what)
        if name == "create":
            command.add_argument(
                "--scope",
                action="append",
                help=f"what it may do, once for each: {READ}, {PUBLISH}, admin, or a scope that resources "
                f"require (default: {READ})",
            )
            command.add_argument("--expires-in", type=float, metavar="SECONDS", help="when it ends by itself")
        if name == "rotate":
            command.add_argument(
                "--overlap",
                type=float,
                default=OVERLAP_SECONDS,
                metavar="SECONDS",
                help="how long the key before goes on (default: a day)",
            )
        flag.add(command, only=place.FLAGS)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one of the commands."""
    return run_act(settings, lambda desk: _act(desk, arguments))


async def _act(desk: Desk, arguments: argparse.Namespace) -> None:
    control, tenant = desk.control, check_tenant(arguments.tenant)
    match arguments.act:
        case "create":
            end = None if arguments.expires_in is None else int((time.time() + arguments.expires_in) * 1000)
            scopes = arguments.scope or [READ]
            key, record = await control.new_key(desk.actor, tenant, arguments.name, scopes, end)
            note(f"Key {record.id} for {', '.join(record.scopes)}; it is not shown again.")
            say(key.text)
        case "list":
            for record in (await control.keys(tenant)).values():
                say_json(record.shown())
        case "rotate":
            key, record = await control.rotate(desk.actor, tenant, arguments.name, arguments.overlap)
            note(f"Key {record.id} follows; those before end in {arguments.overlap:g} s.")
            say(key.text)
        case _:
            for record in await control.revoke(desk.actor, tenant, arguments.name):
                say(f"revoked {record.id}")
