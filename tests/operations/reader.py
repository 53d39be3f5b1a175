"""Somebody who reads a page and does what it says, in a folder and an installation of his own.

Rules:

1. `broker …` is run, in this process, where that costs no start of Python; so is what is written in the text
   with all its arguments. The text may also name a command without them.
2. `helm template` is run. What is marked as needing a cluster is not: kubectl says which object it would
   make, and helm renders what it would install.
3. `make …` is a dry run, and what needs an engine or a registry is only read: `make image-check` does those.
4. What the pages leave open is in `Reader.meant`.
"""

import contextlib
import io
import logging
import os
import re
import shlex
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from broker import settings
from broker.__main__ import main
from tests.charts.chart import Manifest, created, helm

ROOT = Path(__file__).parents[2]
CLUSTER = "# cluster"
MARKS = (CLUSTER, "# an engine is needed", "# a registry is needed", "# a Redis is needed")
"""What a line may end with that cannot run on a machine that has this repository and nothing else."""
LASTING = {"top": ["--times", "1"]}
"""Commands that go on until they are interrupted, and what ends them."""
NOT_RUN = {"serve", "dev", "watch"}
NAMES = {"tenant", "key", "streams", "publish", "import", "call"}
"""Commands that the text speaks of without saying all that they need."""

_FENCE = re.compile(r"^```sh\n(.*?)^```$|`(broker [^`\n]+)`", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    line: str
    mark: str
    """What it needs, of MARKS; empty if it runs as it stands."""
    is_in_text: bool

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line, comments=True)


def commands(page: Path) -> list[Command]:
    """Return the commands of a page in reading order."""
    found: list[Command] = []
    for block, inline in _FENCE.findall(page.read_text()):
        if inline:
            found.append(Command(inline, "", is_in_text=True))
            continue
        for line in re.sub(r" *\\\n *", " ", block).splitlines():
            if line.strip():
                mark = next((mark for mark in MARKS if line.rstrip().endswith(mark)), "")
                found.append(Command(line, mark, is_in_text=False))
    return found


@dataclass
class Reader:
    """Does what a page says, in `folder`, which looks like the repository."""

    folder: Path
    environment: dict[str, str]
    meant: dict[str, str]
    """What stands in the pages, and what it is here."""
    made: list[Manifest] = field(default_factory=list[Manifest])
    """The objects that a cluster would have, of kubectl and of helm."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """Settings that a page sets without a command behind them."""
    printed: str = ""

    def prepare(self) -> None:
        """Make the folder look like a copy of the repository in which somebody has installed the chart."""
        for entry in ROOT.iterdir():
            if not entry.name.startswith(".") and entry.name != "build":
                (self.folder / entry.name).symlink_to(entry)
        (self.folder / "production.yaml").write_text((ROOT / "helm/examples/production.yaml").read_text())

    def do(self, command: Command) -> None:
        """Do one command; fails if it does."""
        words = self._words(command)
        given: dict[str, str] = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            given[name] = value
        if not words:
            self.variables |= given
        elif command.mark == CLUSTER:
            self._of_cluster(words)
        elif not command.mark:
            self._here(words, given, command)

    def have(self, tenant: str) -> None:
        """Have the tenant that the text goes on about, whatever the page did to it."""
        with contextlib.suppress(AssertionError):
            self._broker(["tenant", "create", tenant], {})

    def _words(self, command: Command) -> list[str]:
        line = command.line
        for written, meant in self.meant.items():
            line = line.replace(written, meant)
        return shlex.split(line, comments=True)

    def _here(self, words: list[str], given: dict[str, str], command: Command) -> None:
        match words:
            case ["broker", name, *rest] if name not in NOT_RUN:
                if command.is_in_text and (not rest and name in {*NAMES, "export"}):
                    return
                self._broker([name, *rest, *LASTING.get(name, ())], given)
            case ["broker", *_]:
                return
            case ["helm", "template", *_]:
                self._render(words[1:])
            case ["make", *targets]:
                subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, check=True, capture_output=True)
            case ["cp", *paths]:
                subprocess.run(["cp", *paths], cwd=self.folder, check=True)
            case other:
                raise AssertionError(f"say what {other} needs by one of {MARKS}, or run it here")

    def _of_cluster(self, words: list[str]) -> None:
        match words:
            case ["kubectl", "create", *_]:
                self.made.append(created(*words[1:]))
            case ["helm", "install" | "upgrade", *rest]:
                self._render(["template", *rest])
            case ["helm", "test" | "rollback", release]:
                assert release == "broker", "every command is about the same release"
            case other:
                raise AssertionError(f"{other} would not even be understood by a cluster")

    def _render(self, arguments: list[str]) -> None:
        self.made += [each for each in yaml.safe_load_all(helm(*arguments)) if each]

    def _broker(self, argv: list[str], given: dict[str, str]) -> None:
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
                for name, value in {**self.environment, **given}.items():
                    patch.setenv(name, value)
                code = main(argv)
        except SystemExit as wrong:
            raise AssertionError(f"broker {shlex.join(argv)}: {err.getvalue()}") from wrong
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
            logging.captureWarnings(capture=False)
        out.seek(0)
        self.printed = out.read()
        assert code == 0, f"broker {shlex.join(argv)}: {self.printed}{err.getvalue()}"
        if argv[:2] == ["key", "create"]:
            self.meant["THE KEY"] = self.printed.split()[0]

    def check_variables(self) -> None:
        """Fail unless the settings that the page sets are ones that a broker takes, together."""
        with pytest.MonkeyPatch.context() as patch:
            for name in os.environ:
                if name.startswith("BROKER_"):
                    patch.delenv(name)
            for name, value in self.variables.items():
                patch.setenv(name, value)
            settings.load()
