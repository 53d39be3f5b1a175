"""Flags made from the settings: one source for variables, flags and documentation.

The setting `BROKER_HTTP__RETRY_MS` is the flag `--http-retry-ms`. A flag overrules its variable; its value is
handed on as text, so both are read and refused by the same code.
"""

import argparse
from collections.abc import Container
from typing import Any

from broker import settings


def add(parser: argparse.ArgumentParser, only: Container[str] | None = None) -> None:
    """Add the flags of all settings, or of those whose variables are in `only`."""
    group = parser.add_argument_group("settings", "Each is also the variable in brackets.")
    for variable, path, field in settings.variables():
        if variable in settings.NO_FLAG or (only is not None and variable not in only):
            continue
        flag = "--" + "-".join(path).replace("_", "-")
        default = settings.shown_default(field)
        unit = settings.unit(field)
        told = f"; default: {default}{' ' + unit if unit else ''}" if default else ""
        text = f"{field.description} [{variable}{told}]".replace("%", "%%")
        destination = "setting:" + ".".join(path)
        if field.annotation is bool:
            group.add_argument(flag, dest=destination, help=text, action=argparse.BooleanOptionalAction)
        else:
            group.add_argument(flag, dest=destination, help=text, metavar=(unit or path[-1]).upper())


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that flags gave, nested as `settings.load` takes them."""
    nested: dict[str, Any] = {}
    for name, value in vars(arguments).items():
        if name.startswith("setting:") and value is not None:
            *groups, last = name.removeprefix("setting:").split(".")
            inner = nested
            for part in groups:
                inner = inner.setdefault(part, {})
            inner[last] = value
    return nested
