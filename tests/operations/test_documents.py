"""What docs/operations says can be done: commands parse, settings exist, links lead somewhere."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from broker import settings
from broker.__main__ import _parser  # pyright: ignore[reportPrivateUsage] - parsed, not run
from tests.charts.chart import helm
from tests.operations.test_commands import broker
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "operations").glob("*.md"))
NEEDS = ("# cluster", "# an engine is needed", "# a registry is needed", "# a Redis is needed")


def commands() -> Iterator[tuple[str, str]]:
    """Yield each line of a shell block of the pages, and the page's name."""
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            yield from ((page.name, line) for line in block.splitlines() if line.strip())


RUNNABLE = [(page, line) for page, line in commands() if not any(line.rstrip().endswith(n) for n in NEEDS)]


@pytest.mark.parametrize(("page", "line"), RUNNABLE, ids=[f"{page}: {line}" for page, line in RUNNABLE])
@pytest.mark.usefixtures("helm_binary")
def test_a_command_that_is_not_marked_runs_as_it_stands(
    page: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(line, comments=True)
    while "=" in words[0]:
        words.pop(0)
    monkeypatch.chdir(ROOT)
    match words[0]:
        case "broker":
            assert _parser().parse_args(words[1:]).command == words[1], page
        case "helm":
            assert "kind: Deployment" in helm(*words[1:])
        case "make":
            subprocess.run(["make", "--dry-run", *words[1:]], check=True, capture_output=True)
        case other:
            raise AssertionError(f"{page} has {other}: mark what it needs, or try it here")


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    known = {variable for variable, _, _ in settings.variables()} | {"BROKER_KEY"}
    named = set(re.findall(r"BROKER_[A-Z0-9_]+[A-Z0-9]", page.read_text()))
    assert {name for name in named if not any(each.startswith(name) for each in known)} == set()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name} links to {target}"


def test_every_value_of_the_chart_that_a_page_names_exists() -> None:
    values = (ROOT / "helm" / "README.md").read_text()
    for page in PAGES:
        for name in re.findall(r"`((?:[a-z][A-Za-z]+\.)+[a-z][A-Za-z]+)`", page.read_text()):
            group = name.split(".")[0]
            if re.search(rf"^\| `{group}\.", values, re.MULTILINE):
                assert re.search(rf"^\| `{re.escape(name)}[`.]", values, re.MULTILINE), f"{page.name}: {name}"


def test_the_rights_that_the_install_page_gives_to_redis_s_user_are_enough(
    own_redis: RedisServer, new_fleet: Callable[..., Fleet]
) -> None:
    text = (ROOT / "docs" / "operations" / "install.md").read_text()
    found = re.search(r"`(~mrb:\*[^`]+)`", text)
    assert found is not None
    with own_redis.client() as client:
        rules = [rule.replace("mrb:", "") if rule.startswith("~") else rule for rule in found[1].split()]
        cast("Any", client).execute_command("ACL", "SETUSER", "broker", "on", ">secret", *rules)
    url = own_redis.url.replace("redis://", "redis://broker:secret@")
    looked = broker("doctor", BROKER_REDIS_URL=url)
    assert "FAIL" not in looked.stdout, looked.stdout
    fleet = new_fleet(url, 1)
    done = broker("doctor", "--url", fleet[0].url)
    assert done.returncode == 0, done.stdout + done.stderr
