"""What docs/operations says is so: settings and values exist, links lead somewhere, rights are enough.

Its commands are run by test_walkthrough.py.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker import settings
from tests.operations.test_commands import broker
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "operations").glob("*.md"))


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
