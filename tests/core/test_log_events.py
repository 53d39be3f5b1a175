"""A log line is the name of an event, in snake_case, and fields: by names operators search and alert."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
LOGGERS = {"log", "_log", "logger", "logging"}
EVENT = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

Place = tuple[str, ast.expr]


def _sources() -> Iterator[Path]:
    for package in ("broker", "workers"):
        yield from sorted((ROOT / package).rglob("*.py"))


def logged(tree: ast.AST, where: str) -> Iterator[Place]:
    """Yield each call of a logger, with what it names as its event.

    A function that logs its parameter `event` hands it on: what its callers give it counts instead.
    """
    hands_on: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parameters = [each.arg for each in node.args.args if each.arg != "self"]
            if "event" in parameters and any(_is_parameter(_event(call)) for call in ast.walk(node)):
                hands_on[node.name] = parameters.index("event")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in hands_on:
            yield f"{where}:{node.lineno}", node.args[hands_on[name]]
        first = _event(node)
        if first is not None and not (_is_parameter(first) and hands_on):
            yield f"{where}:{node.lineno}", first


def _event(node: ast.AST) -> ast.expr | None:
    """Return what a logger's call names as its event, None for any other node."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in LOGGERS
        and node.func.attr in LEVELS
    ):
        return node.args[1 if node.func.attr == "log" else 0]
    return None


def _is_parameter(first: ast.expr | None) -> bool:
    return isinstance(first, ast.Name) and first.id == "event"


def _is_event(first: ast.expr) -> bool:
    return (
        isinstance(first, ast.Constant)
        and isinstance(first.value, str)
        and EVENT.fullmatch(first.value) is not None
    )


def test_every_log_call_names_an_event_in_snake_case() -> None:
    found = [
        place
        for path in _sources()
        for place in logged(ast.parse(path.read_text()), str(path.relative_to(ROOT)))
    ]
    assert len(found) > 60, "the walk finds the calls no more"
    assert [place for place, first in found if not _is_event(first)] == []


@pytest.mark.parametrize(
    "call",
    [
        'log.warning("call failed")',
        'log.info("OPEN_MODE")',
        'log.error(f"lost_{name}")',
        "log.error(name)",
        "log.error(event)",
        'def tell(event): log.info(event)\ntell("not one")',
    ],
)
def test_the_walk_would_find_what_is_no_event(call: str) -> None:
    assert not all(_is_event(first) for _, first in logged(ast.parse(call), "x"))
