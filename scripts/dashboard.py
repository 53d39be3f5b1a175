# ruff: noqa: INP001 # scripts are run by their paths
"""Writes the Grafana dashboard of the chart, helm/files/dashboard.json; `--check` only compares.

Three questions, a row each: is it well, who is loud, what is slow.
"""

import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "helm" / "files" / "dashboard.json"

JOB = 'job=~"$job",namespace=~"$namespace"'
QUANTILES = ("0.5", "0.99")


def _quantiles(name: str, by: str = "") -> list[tuple[str, str]]:
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({labels}) (rate({name}_bucket{{JOB}}[$__rate_interval]))"
    wanted = QUANTILES if not by else QUANTILES[1:]
    return [(f"histogram_quantile({q}, {rate})", f"p{float(q) * 100:g}{legend}") for q in wanted]


def _rate(name: str, by: str = "", more: str = "") -> list[tuple[str, str]]:
    grouped = f"sum by ({by})" if by else "sum"
    return [(f"{grouped} (rate({name}{{JOB{more}}}[$__rate_interval]))", f"{{{{{by}}}}}" if by else name)]


def _loudest(aggregate: str, expression: str) -> list[tuple[str, str]]:
    return [(f"topk(10, {aggregate} by (tenant) ({expression}))", "{{tenant}}")]


ROWS: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    "Is it well?": [
        (
            "Ready replicas",
            "short",
            [("sum(broker_ready{JOB})", "ready"), ("max(broker_replicas_alive{JOB})", "alive")],
        ),
        ("Redis answers", "short", [("min by (log) (broker_redis_up{JOB})", "log {{log}}")]),
        (
            "Redis' settings: 1 doubtful, 2 bad",
            "short",
            [("max by (what) (broker_redis_unfit{JOB})", "{{what}}")],
        ),
        ("Open streams", "short", [("sum by (era) (broker_streams_open{JOB})", "{{era}}")]),
        ("Log lag, entries", "short", [("max by (instance) (broker_log_lag_entries{JOB})", "{{instance}}")]),
        ("Resyncs, by why", "ops", _rate("broker_resyncs_total", "reason")),
        ("Resyncs' cues", "ops", _rate("broker_resync_cues_total")),
        (
            "Readers in trouble",
            "ops",
            [
                *_rate("broker_reader_failures_total"),
                *_rate("broker_reader_late_total"),
                *_rate("broker_entries_skipped_total"),
            ],
        ),
        ("Last heartbeat", "s", [("max by (instance) (broker_redis_beat_age_seconds{JOB})", "{{instance}}")]),
        ("Streams ended, by why", "ops", _rate("broker_streams_closed_total", "reason")),
        ("Streams opened, by era", "ops", _rate("broker_streams_opened_total", "era")),
        ("Requests refused, by why", "ops", _rate("broker_requests_refused_total", "reason")),
        (
            "Failed by a bug, and connections refused",
            "ops",
            _rate("broker_requests_failed_total") + _rate("broker_connections_refused_total"),
        ),
        ("Workers' calls, by outcome", "ops", _rate("broker_worker_calls_total", "outcome")),
        (
            "Descriptors used",
            "percentunit",
            [("process_open_fds{JOB} / process_max_fds{JOB}", "{{instance}}")],
        ),
        ("Memory", "bytes", [("process_resident_memory_bytes{JOB}", "{{instance}}")]),
    ],
    "Who is loud?": [
        (
            "Changes in the log",
            "ops",
            [("max(rate(broker_entries_applied_total{JOB}[$__rate_interval]))", "changes")],
        ),
        ("Cues", "ops", _rate("broker_cues_written_total") + _rate("broker_cues_coalesced_total")),
        ("Requests, by method", "ops", _rate("broker_request_seconds_count", "method")),
        ("Reads, by where from", "ops", _rate("broker_reads_total", "kind")),
        (
            "Watched",
            "short",
            [
                ("sum(broker_subscriptions_open{JOB})", "subscriptions"),
                ("sum(broker_resources_watched{JOB})", "resources, by replica"),
            ],
        ),
        (
            "Changes by tenant (opt-in)",
            "ops",
            _loudest("max", "rate(broker_tenant_changes_total{JOB}[$__rate_interval])"),
        ),
        (
            "Cues by tenant (opt-in)",
            "ops",
            _loudest("sum", "rate(broker_tenant_cues_total{JOB}[$__rate_interval])"),
        ),
        (
            "Subscriptions by tenant (opt-in)",
            "short",
            _loudest("sum", "broker_tenant_subscriptions_open{JOB}"),
        ),
        ("Streams by tenant (opt-in)", "short", _loudest("sum", "broker_tenant_streams_open{JOB}")),
    ],
    "What is slow?": [
        ("Publish to cue", "s", _quantiles("broker_publish_to_cue_seconds")),
        ("Requests, p99 by method", "s", _quantiles("broker_request_seconds", "method")),
        ("Scripts, p99 by name", "s", _quantiles("broker_script_seconds", "script")),
        ("Workers' calls", "s", _quantiles("broker_worker_call_seconds")),
        ("Event loop's lag", "s", _quantiles("broker_loop_lag_seconds")),
        (
            "Streams that do not read",
            "short",
            [
                ("sum(broker_streams_blocked{JOB})", "blocked"),
                ("sum(broker_cues_waiting{JOB})", "cues waiting"),
            ],
        ),
    ],
}
"""Row → panels: title, unit, and queries with their legends."""

SOURCE = {"type": "prometheus", "uid": "$source"}
WIDTH, HEIGHT = 8, 7


def _panel(number: int, title: str, unit: str, queries: list[tuple[str, str]], place: dict[str, int]) -> Any:
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "expr": expression.replace("JOB", JOB),
                "legendFormat": legend,
                "datasource": SOURCE,
            }
            for i, (expression, legend) in enumerate(queries)
        ],
    }


def _panels() -> list[Any]:
    found: list[Any] = []
    y = 0
    for title, panels in ROWS.items():
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": title,
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                "panels": [],
            }
        )
        y += 1
        for index, (name, unit, queries) in enumerate(panels):
            place = {
                "x": index % 3 * WIDTH,
                "y": y + index // 3 * HEIGHT,
                "w": WIDTH,
                "h": HEIGHT,
            }
            found.append(_panel(len(found) + 1, name, unit, queries, place))
        y += -(-len(panels) // 3) * HEIGHT
    return found


def _chosen(name: str, label: str) -> Any:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values(broker_info, {label})",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }


def page() -> str:
    """Return what the file holds."""
    board = {
        "uid": "mcp-resource-broker",
        "title": "MCP resource broker",
        "tags": ["mcp"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus"},
                _chosen("namespace", "namespace"),
                _chosen("job", "job"),
            ]
        },
        "panels": _panels(),
    }
    return json.dumps(board, indent=1) + "\n"


def main() -> int:
    """Write the file, or compare it."""
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.name} is not what scripts/dashboard.py says: run make docs.", file=sys.stderr)  # noqa: T201 # a script
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
