"""Writes docs/performance.md's tables and plots from results; `--check` only compares the tables.

    .venv/bin/python -m tests.bench.report [RESULTS.jsonl]     the newest of build/bench/results/ by default

The results that the page shows are kept beside it, docs/performance/results.jsonl.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench import catalogue, goals, install, model
from tests.bench.results import Results, load, newest
from tests.bench.table import NONE, median, number, ratios, times, values

DOCS = install.HERE.parents[1] / "docs"
PAGE = DOCS / "performance.md"
FOLDER = DOCS / "performance"
KEPT = FOLDER / "results.jsonl"

BLOCK = "<!-- {name}: written by make bench-report -->"
END = "<!-- /{name} -->"

COLUMNS: dict[str, dict[str, str]] = {
    "one-uri": {
        "cpu_us": "µs a cue", "user_us": "of it user", "store_cpu_us": "Redis µs", "cues_s": "cues/s",
    },
    "many-uris": {
        "cpu_us": "µs a cue", "user_us": "of it user", "store_cpu_us": "Redis µs", "cues_s": "cues/s",
    },
    "lone": {"cpu_us_per_publish": "µs a publish", "store_cpu_us_per_publish": "Redis µs"},
    "bursts": {
        "burst_cpu_us": "µs a publish and stream", "burst_told": "cues told",
        "burst_expected": "publishes x streams", "burst_growth_kb": "KB a stream grew",
    },
    "flood": {"burst_cpu_us": "µs a publish and stream", "burst_growth_kb": "KB a stream grew"},
    "unwatched": {
        "cpu_us_per_publish": "µs a publish", "store_cpu_us_per_publish": "Redis µs",
        "publishes_s": "publishes/s",
    },
    "idle": {
        "stream_kb": "KB a stream", "open_cpu_us": "µs to open one", "open_store_cpu_us": "Redis µs",
        "idle_core": "of a core, idle",
    },
    "prompt": {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "p999_ms": "p99.9 ms", "max_ms": "worst ms"},
    "read": {
        "answers_s": "reads/s", "cpu_us": "µs a read", "store_cpu_us": "Redis µs", "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
    },
}  # fmt: skip
"""Scenario → the fields that its table shows; the first is what ratios are of."""
MORE_IS_BETTER = {"answers_s"}
OTHERS = ("nchan", "nchan-redis", "python-sdk", "python-sdk-tuned", "python-sdk-redis", "typescript-sdk")
TITLES = {scenario.name: scenario.title for scenario in catalogue.FULL} | {
    "read": "stored reads on eight connections, beside a static resource of the official SDK"
}


def ratio_table(results: Results) -> list[str]:
    """Return the first table: ours against everybody, in ratios."""
    lines = ["| scenario | ours | " + " | ".join(OTHERS) + " |", "|---|---|" + "---:|" * len(OTHERS)]
    for scenario, columns in COLUMNS.items():
        field, title = next(iter(columns.items()))
        for ours in ("broker", "broker-portable", "broker-handshake"):
            pairs = ((ours, other) if field in MORE_IS_BETTER else (other, ours) for other in OTHERS)
            against = [median(ratios(results, scenario, *pair, field)) for pair in pairs]
            if any(one is not None for one in against):
                shown = " | ".join(times(one) for one in against)
                lines.append(f"| {TITLES[scenario]}: {title} | {ours} | {shown} |")
    return lines


def goal_table(results: Results) -> list[str]:
    """Return every goal with what was measured, and why those that were missed were."""
    lines = ["| what | goal | measured | |", "|---|---|---:|---|"]
    missed: list[str] = []
    for goal in goals.GOALS:
        for bound in goal.bounds:
            found, is_met = bound.verdict(results)
            word = {True: "met", False: "**missed**", None: "not measured"}[is_met]
            lines.append(f"| {goal.what} | {bound.text} | {found} | {word} |")
            if is_met is False and goal.name not in missed:
                missed.append(goal.name)
    lines.append("")
    lines += [f"- *{name}*: {goals.REASONS.get(name, 'no reason is known yet.')}" for name in missed]
    return lines


def figure_tables(results: Results) -> list[str]:
    """Return the medians of each scenario."""
    lines: list[str] = []
    for scenario, columns in COLUMNS.items():
        rows = (row for row in results.rows if row["scenario"] == scenario)
        systems = list(dict.fromkeys(row["system"] for row in rows))
        lines += ["", f"### {TITLES[scenario][:1].upper()}{TITLES[scenario][1:]}", ""]
        lines.append("| | runs | " + " | ".join(columns.values()) + " |")
        lines.append("|---|---:|" + "---:|" * len(columns))
        for system in systems:
            exact = results.of(scenario, system)
            if not exact:
                lines.append(f"| {system} | 0 |" + f" {NONE} |" * len(columns))
                continue
            shown = " | ".join(
                number(median(values(results, scenario, system, field)), 4 if "core" in field else 2)
                for field in columns
            )
            lines.append(f"| {system} | {len(exact)} | {shown} |")
    return lines[1:]


def _line(
    results: Results, scenario: str, field: str, label: str, *, system: str = "broker", factor: float = 1
) -> dict[str, Any]:
    xs = sorted({float(row["x"]) for row in results.of(scenario, system)})
    ys = [(median(values(results, scenario, system, field, x)) or 0) * factor for x in xs]
    return {"label": label, "x": xs, "y": ys}


def figures(results: Results) -> list[dict[str, Any]]:
    """Return what is plotted: how each figure grows."""

    def one(name: str, title: str, x: str, y: str, *lines: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "title": title, "x": x, "y": y, "lines": list(lines)}

    per_publish = "store_cpu_us_per_publish"
    return [
        one("streams", "One publish, one watcher, and other streams", "open streams", "µs a publish",
            _line(results, "lone-by-streams", "cpu_us_per_publish", "replica"),
            _line(results, "lone-by-streams", per_publish, "Redis")),
        one("watchers", "A cue, by the streams on one URI", "streams on the URI", "µs a cue",
            _line(results, "cue-by-streams", "cpu_us", "replica"),
            _line(results, "cue-by-streams", "store_cpu_us", "Redis")),
        one("uris", "A cue, by the URIs that 2,000 streams watch", "watched URIs", "µs a cue",
            _line(results, "cue-by-uris", "cpu_us", "replica"),
            _line(results, "cue-by-uris", "store_cpu_us", "Redis")),
        one("tenants", "A cue, by the tenants of 2,000 streams", "tenants", "µs a cue",
            _line(results, "cue-by-tenants", "cpu_us", "replica"),
            _line(results, "cue-by-tenants", "store_cpu_us", "Redis")),
        one("replicas", "A cue, by the replicas that share 2,000 streams", "replicas", "µs a cue",
            _line(results, "cue-by-replicas", "cpu_us", "replicas, all together"),
            _line(results, "cue-by-replicas", "store_cpu_us", "Redis")),
        one("tailing", "Redis' share of a change at 2,000 a second", "replicas that tail", "µs a change",
            _line(results, "tailing", "rate_store_cpu_us_per_publish", "coalescing"),
            _line(results, "tailing", "rate_store_cpu_us_per_publish", "without", system="broker-unpaced")),
        one("pages", "A page of 100, by the resources there are", "resources of the tenant", "ms a page",
            _line(results, "page", "cpu_us", "replica", factor=0.001),
            _line(results, "page", "store_cpu_us", "Redis", factor=0.001)),
    ]  # fmt: skip


def growth(results: Results) -> list[str]:
    """Return the plots, each with its figures for those who cannot see it."""
    lines: list[str] = []
    for figure in figures(results):
        lines += [f"![{figure['title']}](performance/{figure['name']}.svg)", ""]
        xs = figure["lines"][0]["x"]
        lines.append(f"| {figure['x']} | " + " | ".join(f"{x:,.0f}" for x in xs) + " |")
        lines.append("|---|" + "---:|" * len(xs))
        for line in figure["lines"]:
            shown = " | ".join(number(y, 2) for y in line["y"])
            lines.append(f"| {figure['y']}, {line['label']} | {shown} |")
        lines.append("")
    return lines[:-1]


def machine(results: Results) -> list[str]:
    """Return on what all this was measured."""
    about = results.machine
    measured = (
        f"{about['cores']} cores of {about['cpu']}, {about['memory_gb']} GB, Linux {about['kernel']}; commit "
        f"{about['commit']}. Python {about['python']}, uvicorn {about['uvicorn']}, uvloop {about['uvloop']}, "
        f"httptools {about['httptools']}, redis-py {about['redis']} with hiredis {about['hiredis']}; "
        f"{about['server']}."
    )
    beside = (
        f"Beside: the official Python SDK {about['mcp']}, the TypeScript SDK {about['typescript_sdk']}, "
        f"{about['nginx']} with nchan {about['nchan']}."
    )
    return [measured, beside]


BLOCKS: dict[str, Callable[[Results], Sequence[str]]] = {
    "ratios": ratio_table,
    "goals": goal_table,
    "figures": figure_tables,
    "growth": growth,
    "model": lambda results: model.lines(results, model.CELLS),
    "machine": machine,
}


def page(results: Results, before: str) -> str:
    """Return the page with its blocks written anew."""
    for name, make in BLOCKS.items():
        begin, end = BLOCK.format(name=name), END.format(name=name)
        assert begin in before, f"docs/performance.md has no {begin}"
        text = "\n".join([begin, *make(results), end])
        before = re.sub(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, text=text: text, before, flags=re.DOTALL
        )
    return before


def draw(results: Results) -> None:
    """Draw the plots."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(figures(results), file)
        file.flush()
        python = str(install.PLOTS / "bin" / "python")
        subprocess.run([python, str(install.HERE / "plots.py"), file.name, str(FOLDER)], check=True)


def main() -> int:
    """Write the page, or compare it."""
    words = sys.argv[1:]
    if "--check" in words:
        results = load(KEPT)
        if PAGE.read_text() == page(results, PAGE.read_text()):
            return 0
        print("docs/performance.md is not what its results say: run make bench-report.", file=sys.stderr)  # noqa: T201 # a script
        return 1
    source = Path(words[0]) if words else newest()
    FOLDER.mkdir(exist_ok=True)
    if source.resolve() != KEPT.resolve():
        shutil.copyfile(source, KEPT)
    results = load(KEPT)
    install.install()
    PAGE.write_text(page(results, PAGE.read_text()))
    draw(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
