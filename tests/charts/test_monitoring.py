"""Alerts and panels ask for metrics and labels that there are, and each alert's link leads to its runbook."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.telemetry.catalogue import CATALOGUE, PROCESS, Kind
from tests.charts.chart import one, render
from tests.charts.matrix import MATRIX
from tests.charts.promql import NotPromQLError, Selector, parse

pytestmark = pytest.mark.usefixtures("helm_binary")

RUNBOOKS = Path(__file__).parents[2] / "docs" / "operations" / "runbooks.md"
TARGET = {"job", "namespace", "instance", "pod"}
"""Labels that Prometheus adds."""


def alerts() -> list[dict[str, Any]]:
    return one(render(MATRIX["watched"]), "PrometheusRule")["spec"]["groups"][0]["rules"]


def panels() -> Iterator[tuple[str, str]]:
    """Yield each panel's title and query."""
    board = json.loads(one(render(MATRIX["watched"]), "ConfigMap")["data"]["mcp-resource-broker.json"])
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def check(selectors: list[Selector], grouped: set[str]) -> None:
    """Fail on a metric or label that no replica shows, and on a value that it would never have."""
    labels: set[str] = set(TARGET)
    for selector in selectors:
        if selector.name in PROCESS:
            assert selector.matchers.keys() <= TARGET
            continue
        plain = re.sub(r"_(bucket|count|sum)$", "", selector.name)
        is_histogram = plain in CATALOGUE and CATALOGUE[plain].kind is Kind.HISTOGRAM
        metric = CATALOGUE[plain if is_histogram else selector.name]
        assert is_histogram == (plain != selector.name), f"{selector.name} is no series of {plain}"
        if metric.kind is Kind.COUNTER or is_histogram:
            assert selector.is_range, f"{selector.name} only ever grows: rate or increase it"
        own = {*metric.labels, *(("le",) if is_histogram else ())}
        labels |= own
        for label, (_, text) in selector.matchers.items():
            assert label in own | TARGET, f"{selector.name} has no {label}"
            known = metric.labels.get(label, ())
            if known and selector.name != "broker_requests_refused_total":
                assert set(text.split("|")) <= set(known), f"{label} is never {text}"
    assert grouped <= labels


def test_every_alert_parses_and_asks_for_what_there_is() -> None:
    found = alerts()
    assert len(found) > 15
    for alert in found:
        assert "JOB" not in alert["expr"]
        assert 'job="b-mcp-resource-broker-internal",namespace="mcp"' in alert["expr"]
        check(*parse(alert["expr"]))


def test_every_panel_parses_and_asks_for_what_there_is() -> None:
    found = list(panels())
    assert len(found) > 15
    for _, expression in found:
        check(*parse(expression))


def test_every_metric_is_on_the_dashboard_in_an_alert_or_in_a_runbook() -> None:
    """One that nobody ever looks at costs and helps nobody."""
    text = " ".join([*(alert["expr"] for alert in alerts()), *(query for _, query in panels())])
    text += RUNBOOKS.read_text()
    assert [name for name in CATALOGUE if name not in text] == []


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    sections = re.findall(r"^## (Broker\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert sections == [alert["alert"] for alert in alerts()]
    for alert in alerts():
        annotations = alert["annotations"]
        assert annotations["runbook_url"] == f"https://example.org/runbooks#{alert['alert'].lower()}"
        assert annotations["summary"].endswith(".")


def test_every_label_value_in_an_alert_is_one_that_the_broker_counts() -> None:
    from tests.telemetry.test_metrics import reasons  # noqa: PLC0415 # beside the tree it walks

    for alert in alerts():
        for selector in parse(alert["expr"])[0]:
            if selector.name == "broker_requests_refused_total" and "reason" in selector.matchers:
                assert set(selector.matchers["reason"][1].split("|")) <= reasons()


@pytest.mark.parametrize(
    "typo",
    ["sum(rate(a[5m])", "rate(a)", "histogram_quantil(0.9, a)", 'a{b="c"', "a >", "a b", "abs(a[5m])", ""],
)
def test_the_reader_of_expressions_refuses_typos(typo: str) -> None:
    with pytest.raises(NotPromQLError):
        parse(typo)
