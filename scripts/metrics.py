# ruff: noqa: INP001 # scripts are run by their paths
"""Writes docs/operations/metrics.md from the catalogue of metrics; `--check` only compares."""

import sys
from pathlib import Path

from broker.telemetry.catalogue import CATALOGUE, PROCESS, Kind, Metric

PAGE = Path(__file__).parents[1] / "docs" / "operations" / "metrics.md"

HEAD = """# Metrics

Made from `broker/telemetry/catalogue.py` by `make docs`; edit there. Every replica shows them on `/metrics`
of its internal port (`BROKER_INTERNAL_PORT`), in the text format or OpenMetrics, as asked. Counters that may
never have counted stand at 0, so that an alert sees the first increase.

A label is never a URI, a session or a subject, and has at most 64 values; the rest is counted as `other`.
Tenants are named only where `BROKER_METRICS__TENANTS` says for how many; their names are then seen by
whoever may read the internal port.

| metric | kind | labels | what it is |
|---|---|---|---|
"""


def _labels(metric: Metric) -> str:
    shown = [
        f"`{label}`" + (f" ({', '.join(values)})" if values else "")
        for label, values in metric.labels.items()
    ]
    return ", ".join(shown)


def _text(metric: Metric) -> str:
    text = metric.help
    if metric.kind is Kind.HISTOGRAM:
        text += f" Bounds in seconds: {', '.join(f'{bound:g}' for bound in metric.bounds)}."
    if metric.is_per_tenant:
        text += " Only with `BROKER_METRICS__TENANTS`."
    return text


def page() -> str:
    """Return what the page holds."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {_text(metric)} |\n"
        for metric in CATALOGUE.values()
    ]
    rows += [f"| `{name}` | the process | | {text} |\n" for name, text in PROCESS.items()]
    return HEAD + "".join(rows)


def main() -> int:
    """Write the page, or compare it."""
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.name} is not what the catalogue says: run make docs.", file=sys.stderr)  # noqa: T201 # a script
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
