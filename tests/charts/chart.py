"""Renders the chart by the real helm, offline."""

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.charts.install import HELM, KUBECTL

CHART = Path(__file__).parents[2] / "helm"
EXAMPLES = CHART / "examples"
NEWEST = "1.37"

Values = dict[str, Any]
Manifest = dict[str, Any]

MINIMAL: Values = {"redis": {"existingSecret": "broker-redis"}}


class ChartError(Exception):
    """What helm or kubectl said when it refused."""


def helm(*arguments: str, stdin: str | None = None) -> str:
    """Run helm and return what it printed.

    Raises:
        ChartError: it failed.
    """
    return _run(HELM, *arguments, stdin=stdin)


def created(*arguments: str) -> Manifest:
    """Return the object that `kubectl create …` would make; no cluster is asked.

    Raises:
        ChartError: it was refused.
    """
    return json.loads(_run(KUBECTL, *arguments, "--dry-run=client", "--output=json"))


def _run(program: Path, *arguments: str, stdin: str | None = None) -> str:
    nobody = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run(
        [str(program), *arguments], input=stdin, capture_output=True, text=True, check=False, env=nobody
    )
    if done.returncode:
        raise ChartError(done.stderr + done.stdout)
    return done.stdout


def render(values: Values, kube_version: str = NEWEST) -> list[Manifest]:
    """Return the objects that the chart makes of `values`.

    Raises:
        ChartError: the values were refused.
    """
    return json.loads(_rendered(json.dumps(values, sort_keys=True), kube_version))


@functools.cache
def _rendered(values: str, kube_version: str) -> str:
    arguments = ["template", "b", str(CHART), "--namespace", "mcp", "--kube-version", kube_version]
    text = helm(*arguments, "--values", "-", stdin=values)
    return json.dumps([manifest for manifest in yaml.safe_load_all(text) if manifest])


def example(name: str) -> Values:
    """Return the values of one of the examples."""
    return yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())


def one(manifests: list[Manifest], kind: str, suffix: str = "") -> Manifest:
    """Return the one object of a kind (whose name ends so)."""
    found = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, [(m["kind"], m["metadata"]["name"]) for m in manifests]
    return found[0]


def pods(manifests: list[Manifest]) -> list[tuple[str, Manifest]]:
    """Return each pod's spec, of whatever makes pods, with a name for messages."""
    found = [
        (m["metadata"]["name"], m["spec"]["template"]["spec"])
        for m in manifests
        if m["kind"] in {"Deployment", "StatefulSet"}
    ]
    return found + [(m["metadata"]["name"], m["spec"]) for m in manifests if m["kind"] == "Pod"]


def variables(container: Manifest) -> dict[str, str | None]:
    """Return a container's variables; None for what comes from a Secret."""
    return {each["name"]: each.get("value") for each in container.get("env", ())}
