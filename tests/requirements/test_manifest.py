"""The manifest and the tests name each other: no promise without a test, no wire test without a promise.

Read from the tests' source, so that it holds whatever is selected to run. A mark is a decorator of a test, or
the module's `pytestmark`; its names are literals.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
WIRE = sorted(path for folder in ("wire", "http") for path in (TESTS / folder).rglob("test_*.py"))
ALL = sorted(path for path in TESTS.rglob("test_*.py") if "node_modules" not in path.parts)
REVISIONS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
SOURCE = re.compile(
    r"20\d\d-\d\d-\d\d (basic|server)/\S+(: .+)?|design \d+(, decision \d+)?|promise \d+|issue \d+"
    r"|conformance \d+(\.\d+)?|field reports? \d+(, \d+)*|(JSON-RPC 2\.0|RFC \d+), section [\d.]+"
)

Requirement = dict[str, Any]


def _manifest() -> list[Requirement]:
    found: list[Requirement] = tomllib.loads((Path(__file__).parent / "manifest.toml").read_text())[
        "requirement"
    ]
    return found


REQUIREMENTS = _manifest()


def _marks(node: ast.AST) -> Iterator[str]:
    """Yield the names in every `pytest.mark.requirement(…)` within a piece of source."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.requirement":
            for argument in call.args:
                assert isinstance(argument, ast.Constant), f"no literal: {ast.unparse(call)}"
                yield str(argument.value)


def _tests(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the tests of a module with the requirements that they are for."""
    module = ast.parse(path.read_text())
    shared = [
        name
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for name in _marks(node)
    ]
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            own = [name for decorator in node.decorator_list for name in _marks(decorator)]
            yield f"{path.relative_to(TESTS)}::{node.name}", shared + own


@pytest.mark.parametrize("path", WIRE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_test_of_the_wire_is_for_something_that_is_promised(path: Path) -> None:
    known = {each["id"] for each in REQUIREMENTS}
    tests = dict(_tests(path))
    assert tests, f"no tests in {path}"
    for name, promised in tests.items():
        assert promised, f"{name} is for no requirement; mark it, or write down what it promises"
        assert set(promised) <= known, f"{name} is for requirements that are not in the manifest"


def test_each_promise_has_a_test() -> None:
    tested = {name for path in ALL for _, promised in _tests(path) for name in promised}
    assert [each["id"] for each in REQUIREMENTS if each["id"] not in tested] == []


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda each: each["id"])
def test_a_promise_says_where_it_comes_from_for_whom_it_is_and_what_it_is(requirement: Requirement) -> None:
    assert set(requirement) == {"id", "revisions", "source", "says"}
    assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", requirement["id"])
    assert requirement["revisions"]
    assert requirement["revisions"] == [each for each in REVISIONS if each in requirement["revisions"]]
    assert requirement["says"].endswith(".")
    for source in requirement["source"].split("; "):
        assert SOURCE.fullmatch(source), source


def test_no_promise_is_written_down_twice() -> None:
    ids = [each["id"] for each in REQUIREMENTS]
    sentences = [each["says"] for each in REQUIREMENTS]
    assert len(set(ids)) == len(ids)
    assert len(set(sentences)) == len(sentences)
