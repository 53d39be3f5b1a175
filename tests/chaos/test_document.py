"""docs/reliability.md says of each fault what shows it, and that is there."""

import re
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.support.process import ROOT


def shown_by() -> set[str]:
    """Return what stands in the last column of the table of faults."""
    lines = Path(ROOT, "docs", "reliability.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and line.count("|") == 7]
    return {each for row in rows for each in re.findall(r"`([^`]+)`", row.split("|")[6])}


def test_every_fault_is_in_the_document_and_nothing_that_is_not_there() -> None:
    shown = shown_by()
    tests = {each for each in shown if each.startswith("tests/")}
    assert shown - tests == set(FAULTS)
    assert [each for each in tests if not Path(ROOT, each).is_file()] == []
