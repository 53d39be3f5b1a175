"""The Dockerfile keeps its promises as far as they can be read off it; `make image-check` runs it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.charts.chart import one, render
from tests.charts.deployment import playable, values

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [str(hadolint), "--failure-threshold", "info", str(ROOT / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_last_stage_has_no_rights_and_is_ended_by_sigterm() -> None:
    last = DOCKERFILE.rsplit("\nFROM ", 1)[1]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", last, re.MULTILINE)
    assert "pip" not in last
    assert last.count("COPY") == 1, "only the environment is taken over"


def test_the_chart_runs_the_image_s_user_and_ports() -> None:
    values = yaml.safe_load((ROOT / "helm" / "values.yaml").read_text())
    user = re.search(r"USER (\d+):(\d+)", DOCKERFILE)
    assert user is not None
    assert values["podSecurityContext"]["runAsUser"] == int(user[1])
    assert values["podSecurityContext"]["runAsGroup"] == int(user[2])
    assert "EXPOSE 8000 8001" in DOCKERFILE


def test_the_image_is_built_from_what_it_needs_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    copied: set[str] = set()
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        copied |= set(line.split()[:-1])
    assert copied == allowed


def test_pip_is_the_version_that_everybody_uses() -> None:
    makefile = (ROOT / "Makefile").read_text()
    version = re.search(r"^PIP_VERSION := (.+)$", makefile, re.MULTILINE)
    assert version is not None
    assert f"pip=={version[1]}" in DOCKERFILE


def test_every_extra_that_the_image_installs_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'\.\[(.+)\]'", DOCKERFILE)
    assert extras is not None
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
    chart = yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


@pytest.mark.usefixtures("helm_binary")
def test_what_image_check_plays_is_the_rendered_deployment_but_for_what_only_a_kubelet_does() -> None:
    rendered = one(render(values("localhost/x:check")), "Deployment")
    pod, played = (each["spec"]["template"]["spec"] for each in (rendered, playable(rendered)))
    assert {name for name in played if played[name] != pod.get(name)} == {"hostNetwork", "containers"}
    [container], [ours] = pod["containers"], played["containers"]
    assert container["image"] == "localhost/x:check"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    taken = {"startupProbe", "livenessProbe", "readinessProbe", "lifecycle", "ports"}
    assert container == ours | {name: container[name] for name in taken}
