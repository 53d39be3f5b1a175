"""Results: JSON lines, the first of which says on what machine and with what versions."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import install

FOLDER = install.BUILD / "results"

Row = dict[str, Any]


@dataclass
class Results:
    """One run of the whole: its machine, and a row for each measurement."""

    machine: Row
    rows: list[Row] = field(default_factory=list[Row])

    def of(self, scenario: str, system: str | None = None) -> list[Row]:
        """Return the exact measurements of a scenario, of one system or of all."""
        return [
            row
            for row in self.rows
            if row["scenario"] == scenario and row.get("exact") and system in (None, row["system"])
        ]


class Writer:
    """Appends rows to a file of its own as they come, so that what was measured stays."""

    def __init__(self, machine: Row, path: Path | None = None) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.path = path or FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
        self.path.write_text("")
        self.add(machine)

    def add(self, row: Row) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def newest() -> Path:
    """Return the newest file of results.

    Raises:
        SystemExit: there is none.
    """
    found = sorted(FOLDER.glob("*.jsonl"))
    if not found:
        raise SystemExit(f"{FOLDER} has no results; make bench makes them.")
    return found[-1]


def load(path: Path) -> Results:
    """Read a file of results."""
    machine, *rows = _lines(path.read_text().splitlines())
    return Results(machine, rows)


def _lines(lines: Iterable[str]) -> Iterator[Row]:
    return (json.loads(line) for line in lines if line)
