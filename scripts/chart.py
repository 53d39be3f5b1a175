# ruff: noqa: INP001 # scripts are run by their paths
"""Writes the chart's values.schema.json and its README's table from values.yaml; `--check` only compares.

A value's comment is its description. "@schema {…}" in it adds to what the default itself says: its type, and
for a map the names that it may have. A map that is empty may have any.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

CHART = Path(__file__).parents[1] / "helm"
VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"
BEGIN, END = "<!-- values -->", "<!-- /values -->"
MARK = "@schema"

_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "null": "null"}


class Value:
    """One value: where it stands, its comment, its default, and those below it."""

    def __init__(self, path: tuple[str, ...], comment: list[str], node: yaml.Node) -> None:
        self.path = path
        self.text = " ".join(line for line in comment if not line.startswith(MARK))
        hints = [line.removeprefix(MARK) for line in comment if line.startswith(MARK)]
        self.hints: dict[str, Any] = yaml.safe_load("".join(hints)) or {}
        self.node = node
        self.below: list[Value] = []

    def __iter__(self) -> Iterator["Value"]:
        """Yield the values that have a row in the table."""
        if self.text:
            yield self
        for value in self.below:
            yield from value

    @property
    def default(self) -> Any:
        return _plain(self.node)

    @property
    def is_free(self) -> bool:
        """Whether it is handed on to Kubernetes as it stands."""
        return self.hints.get("additionalProperties") is True

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"description": self.text} if self.text else {}
        if isinstance(self.node, yaml.MappingNode):
            found["type"] = "object"
            if self.below and not self.is_free:
                found["properties"] = {value.path[-1]: value.schema() for value in self.below}
                found["additionalProperties"] = False
        elif isinstance(self.node, yaml.SequenceNode):
            found["type"] = "array"
        else:
            found["type"] = _TYPES[self.node.tag.rsplit(":", 1)[1]]
        return {**found, **self.hints}


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def read(text: str) -> Value:
    """Return the values of a values.yaml.

    Raises:
        SystemExit: one of them has no comment.
    """
    node = yaml.compose(text)
    lines = text.splitlines()
    root = Value((), [], cast("yaml.Node", node))
    _fill(root, lines)
    return root


def _fill(value: Value, lines: list[str]) -> None:
    if not isinstance(value.node, yaml.MappingNode) or value.node.flow_style or value.is_free:
        return
    for key, node in value.node.value:
        below = Value((*value.path, key.value), _comment(lines, key.start_mark), node)
        is_group = isinstance(node, yaml.MappingNode) and not node.flow_style and not below.text
        if not below.text and not is_group:
            raise SystemExit(f"{'.'.join(below.path)} has no comment in values.yaml; say what it is.")
        value.below.append(below)
        _fill(below, lines)


def _comment(lines: list[str], mark: yaml.Mark) -> list[str]:
    """Return the comment lines right above a key, with its indentation."""
    found: list[str] = []
    start = " " * mark.column + "# "
    for line in reversed(lines[: mark.line]):
        if not line.startswith(start):
            break
        found.insert(0, line.removeprefix(start))
    return found


def schema(root: Value) -> str:
    """Return the JSON Schema; `global` is Helm's own."""
    body = root.schema()
    body["properties"]["global"] = {"type": "object"}
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **body}, indent=2) + "\n"


def table(root: Value) -> str:
    """Return the README's table."""
    rows = ["| value | default | what it is |\n", "|---|---|---|\n"]
    for value in root:
        default = json.dumps(value.default, separators=(", ", ": ")).replace("|", "\\|")
        text = value.text.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{'.'.join(value.path)}` | `{default}` | {text} |\n")
    return "".join(rows)


def pages() -> dict[Path, str]:
    """Return what each generated file holds."""
    root = read(VALUES.read_text())
    before, rest = README.read_text().split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return {SCHEMA: schema(root), README: f"{before}{BEGIN}\n\n{table(root)}\n{END}{after}"}


def main() -> int:
    """Write the files, or compare them."""
    is_check = "--check" in sys.argv[1:]
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if is_check:
            print(f"{path.name} is not what helm/values.yaml says: run make docs.", file=sys.stderr)  # noqa: T201 # a script
        else:
            path.write_text(pages()[path])
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
