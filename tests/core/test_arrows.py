"""Who may import whom (docs/architecture.md; the arrows are the layout's promise).

http -> sessions -> replica -> core; http -> wire -> core; store -> core; workers -> core, store.
The composition roots (app, server, dev, __main__, cli) see all, and nobody imports them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = {"app", "server", "dev", "__main__", "cli"}
"""Composition roots: they may see all, and only each other sees them."""

REPLICA = "replica"
"""The running broker: broker/replica.py and what stands beside it that is no layer of its own, its parts
(tailing, streams, callbacks, tenants) included."""

MAY: dict[str, set[str]] = {
    "core": {"core"},
    "wire": {"wire", "core"},
    "store": {"store", "core"},
    "telemetry": {"telemetry", "core"},
    "settings": {"settings", "core", "store"},
    "replica": {"replica", "store", "core", "telemetry", "settings"},
    "sessions": {"sessions", "replica", "store", "core", "telemetry", "settings"},
    "http": {"http", "wire", "sessions", "replica", "store", "core", "telemetry", "settings"},
    "workers": {"workers", "core", "store"},
}
"""What each layer may import of ours."""


def _layer(part: str) -> str:
    return part if part in MAY or part in ROOTS else REPLICA


def _modules() -> Iterator[tuple[Path, str]]:
    for package in ("broker", "workers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            inside = path.relative_to(ROOT / package)
            if package == "workers":
                # The `workers` command composes, as broker/__main__.py does.
                yield path, "__main__" if inside.stem == "__main__" else "workers"
            elif len(inside.parts) > 1:
                yield path, _layer(str(inside).split("/", 1)[0])
            elif inside.stem != "__init__":
                yield path, _layer(inside.stem)


MODULES = list(_modules())


def _imports(path: Path) -> Iterator[str]:
    """Yield every module that is imported anywhere in the file, in functions and for types as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrow"
            assert node.module is not None
            yield node.module
            # `from broker import app` imports the module broker.app.
            if node.module in {"broker", "workers"}:
                names = (alias.name for alias in node.names)
                yield from (f"{node.module}.{name}" for name in names if not name.startswith("__"))


def _parts(path: Path) -> set[str]:
    found: set[str] = set()
    for name in _imports(path):
        head, _, rest = name.partition(".")
        if head == "workers":
            found.add("workers")
        elif head == "broker" and rest:
            found.add(_layer(rest.split(".")[0]))
    return found


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(("path", "part"), MODULES, ids=[_name(path) for path, _ in MODULES])
def test_a_module_imports_only_along_the_arrows(path: Path, part: str) -> None:
    if part in ROOTS:
        return
    assert _parts(path) <= MAY[part]


def test_only_the_store_imports_the_redis_client() -> None:
    importers = {part for path, part in MODULES if any(n.split(".")[0] == "redis" for n in _imports(path))}
    assert importers <= {"store"}


def test_the_core_and_the_wire_never_await() -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    awaits = [
        _name(path)
        for path, part in MODULES
        if part in {"core", "wire"}
        and any(isinstance(node, waiting) for node in ast.walk(ast.parse(path.read_text())))
    ]
    assert awaits == []


def test_the_core_needs_the_standard_library_only() -> None:
    foreign = {
        name
        for path, part in MODULES
        if part == "core"
        for name in _imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("broker.core")
    }
    assert foreign == set()


def test_what_a_worker_imports_needs_no_web_server() -> None:
    web = {"fastapi", "starlette", "uvicorn", "uvloop", "httptools", "mcp_types"}
    heavy = {
        _name(path)
        for path, part in MODULES
        if part in {"core", "store", "workers"} and any(n.split(".")[0] in web for n in _imports(path))
    }
    assert heavy == set()


def test_every_module_opens_with_its_charter() -> None:
    without = [_name(path) for path, _ in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert without == []
