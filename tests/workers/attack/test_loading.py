"""`workers run` says in one sentence what is wrong with what it was told to run."""

import sys
from pathlib import Path

import pytest

from broker.core.errors import Misconfigured
from workers.loading import load


@pytest.mark.parametrize("named", ["", ":worker", "./app.py", "a b:c", "..app:worker", "app-1:worker"])
def test_what_names_no_module_is_refused_with_how_to_write_it(named: str) -> None:
    with pytest.raises(Misconfigured, match="names no module"):
        load(named)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("x = 1\ndef broken(:\n", r"invalid syntax in .*line 2: def broken\(:"),
        ("import sys\nsys.exit(3)\n", "ends the process"),
        ("worker = 5\n", "has no worker named 'worker'"),
    ],
)
def test_a_module_that_cannot_be_run_is_told_with_its_place(
    code: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "attacked_module.py").write_text(code)
    try:
        with pytest.raises(Misconfigured, match=sentence):
            load("attacked_module:worker")
    finally:
        sys.modules.pop("attacked_module", None)
