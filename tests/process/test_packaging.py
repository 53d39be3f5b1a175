"""What a fresh machine installs: the same twice, and no more than a worker or a broker needs."""

import re
import tomllib
from typing import Any

import pytest

from tests.process.conftest import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def test_constraints_are_names_and_exact_versions_without_any_address() -> None:
    assert len(PINNED) > 30
    assert [line for line in PINNED if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)] == []


@pytest.mark.parametrize(
    "requirement",
    [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(each for extra in PROJECT["project"]["optional-dependencies"].values() for each in extra),
        *PROJECT["dependency-groups"]["dev"],
    ],
)
def test_everything_that_is_required_is_pinned(requirement: str) -> None:
    assert _name(requirement) in {_name(line) for line in PINNED}


def test_a_worker_needs_no_web_server() -> None:
    needed = {_name(each) for each in PROJECT["project"]["dependencies"]}
    assert needed == {"hiredis", "pydantic", "pydantic-settings", "redis"}
