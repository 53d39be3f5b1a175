"""`broker tenant create|list|show|limit|suspend|resume|delete|audit`."""

import argparse
import dataclasses
from typing import Any

from broker.cli import flag, place
from broker.cli.administration import Desk, note, run_act, say, say_json
from broker.core.errors import BadRequest, TenantNotFound
from broker.core.identity import TenantId, check_tenant
from broker.core.tenancy import Limits, Tenant
from broker.settings import Settings
from broker.store.erasure import Progress, erase


def add(commands: Any) -> None:
    """Add the command to the parser's `commands`."""
    parser = commands.add_parser("tenant", help="create, limit, suspend and delete tenants")
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)
    names = ", ".join(field.name for field in dataclasses.fields(Limits))
    for name, text in (
        ("create", "make a tenant"),
        ("list", "print the tenants"),
        ("show", "print a tenant, its limits and its keys"),
        ("limit", "change what a tenant may use"),
        ("suspend", "answer its callers no more and end their streams"),
        ("resume", "serve a suspended tenant again"),
        ("delete", "remove a tenant and everything it has"),
        ("audit", "print what administrators did"),
    ):
        command = acts.add_parser(name, help=text)
        if name not in {"list", "audit"}:
            command.add_argument("tenant", help="the tenant's name")
        if name in {"create", "limit"}:
            command.add_argument(
                "limits",
                nargs="*",
                metavar="LIMIT=NUMBER",
                help=f"a limit of its own; nothing after the = gives it back to the settings: {names}",
            )
        if name == "delete":
            command.add_argument("--yes", action="store_true", help="do it: there is no way back")
        if name == "audit":
            command.add_argument("--most", type=int, default=100, help="how many acts (default: 100)")
        flag.add(command, only=place.FLAGS)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one of the commands."""
    return run_act(settings, lambda desk: _act(desk, arguments))


async def _act(desk: Desk, arguments: argparse.Namespace) -> None:
    control, actor = desk.control, desk.actor
    if arguments.act == "list":
        for tenant in await control.tenants():
            say(f"{tenant.id}\t{tenant.state}")
        return
    if arguments.act == "audit":
        for act in await control.audit(arguments.most):
            say_json(dataclasses.asdict(act))
        return
    name = check_tenant(arguments.tenant)
    match arguments.act:
        case "create":
            await control.create(actor, name, Limits.read(_limits(arguments.limits)))
            say(f"created {name}")
        case "show":
            await _show(desk, name)
        case "limit":
            tenant = await control.limit(actor, name, _limits(arguments.limits))
            say_json(tenant.limits.given())
        case "suspend":
            await control.suspend(actor, name)
            say(f"suspended {name}")
        case "resume":
            await control.resume(actor, name)
            say(f"resumed {name}")
        case _:
            await _delete(desk, name, is_sure=arguments.yes)


async def _show(desk: Desk, name: TenantId) -> None:
    tenant = await desk.control.tenant(name)
    if tenant is None:
        raise TenantNotFound(f"There is no tenant {name!a}.")
    keys = await desk.control.keys(name)
    say_json(shown(tenant) | {"keys": [key.shown() for key in keys.values()]})


def shown(tenant: Tenant) -> dict[str, Any]:
    """Return a tenant as its operator is shown it."""
    return {
        "tenant": tenant.id,
        "state": tenant.state,
        "created_ms": tenant.created_ms,
        "limits": tenant.limits.given(),
    }


async def _delete(desk: Desk, name: TenantId, *, is_sure: bool) -> None:
    if not is_sure:
        raise BadRequest(f"This removes {name} with everything published there; say --yes to do it.")
    await desk.control.condemn(desk.actor, name)
    progress = Progress(0, 0)
    async for progress in erase(desk.redis, desk.keys, name):
        if progress.steps % 100 == 0:
            note(f"{progress.removed} keys removed in {progress.steps} steps…")
    await desk.control.bury(desk.actor, name)
    say(f"deleted {name}: {progress.removed} keys")


def _limits(words: list[str]) -> dict[str, Any]:
    """Read LIMIT=NUMBER words."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or (value and not (value.isascii() and value.isdigit())):
            raise BadRequest(f"A limit is written as NAME=NUMBER, not {word!a}.")
        given[name.replace("-", "_")] = int(value) if value else None
    return given
