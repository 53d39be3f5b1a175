"""Finds the workers that a command names: `module:worker`, as their author would import them."""

import importlib
import sys
from pathlib import Path

from broker.core.errors import Misconfigured
from workers.worker import Worker

DEFAULT = "worker"
"""The name of the worker in a module that is named alone."""


def load(named: str) -> Worker:
    """Return the worker that `named` says: "package.module:worker", or a module with a `worker`.

    Raises:
        Misconfigured: there is none; with what to do. Whatever the module raises when it is imported, too.
    """
    module_name, _, attribute = named.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise Misconfigured(
            f"{named!a} names no module: write it as you would import it, as in reports.orders:worker (no "
            "path, and no .py)."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        # As with python -m: what lies in this folder can be imported.
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise Misconfigured(
            f"There is no module {module_name!a}; name one as you would import it from {here}, as in "
            "reports.orders:worker."
        ) from None
    except SyntaxError as error:
        raise Misconfigured(
            f"{module_name} cannot be imported: {error.msg} in {error.filename}, line {error.lineno}"
            f"{_shown(error)}."
        ) from None
    except SystemExit as error:
        raise Misconfigured(
            f"{module_name} ends the process ({error!r}) when it is imported; keep what runs as a program "
            'under if __name__ == "__main__".'
        ) from None
    found = getattr(module, attribute or DEFAULT, None)
    if not isinstance(found, Worker):
        names = ", ".join(name for name, value in vars(module).items() if isinstance(value, Worker))
        raise Misconfigured(
            f"{module_name} has no worker named {attribute or DEFAULT!a}; "
            + (f"it has {names}." if names else "make one: worker = Worker(...).")
        )
    return found


def _shown(error: SyntaxError) -> str:
    line = (error.text or "").strip()
    return f": {line}" if line.isprintable() and line else ""
