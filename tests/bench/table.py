"""Figures of one run: medians, and ratios of those that were measured side by side. Pure."""

import statistics
from collections.abc import Sequence

from tests.bench.results import Results

NONE = "-"


def values(results: Results, scenario: str, system: str, field: str, x: float = 0) -> list[float]:
    """Return what a system's exact runs found."""
    rows = results.of(scenario, system)
    return [float(row[field]) for row in rows if field in row and row.get("x", 0) == x]


def median(found: Sequence[float]) -> float | None:
    return statistics.median(found) if found else None


def ratios(results: Results, scenario: str, system: str, other: str, field: str) -> list[float]:
    """Return system ÷ other of each round in which both were exact."""
    theirs = {row["round"]: float(row[field]) for row in results.of(scenario, other) if field in row}
    return [
        float(row[field]) / theirs[row["round"]]
        for row in results.of(scenario, system)
        if field in row and theirs.get(row["round"])
    ]


def number(value: float | None, digits: int = 1) -> str:
    """Return a figure as the page shows it, a dash for none."""
    if value is None:
        return NONE
    if abs(value) >= 100:  # three digits are enough
        return f"{value:,.0f}"
    return f"{value:.{digits}f}"


def times(value: float | None) -> str:
    """Return a ratio as the page shows it."""
    if value is None:
        return NONE
    return f"{value:.0f} x" if value >= 10 else f"{value:.2f} x"  # two digits are enough
