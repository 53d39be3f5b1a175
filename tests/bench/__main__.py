"""Measures what is asked for, one row at a time, and says how far it is."""

import argparse
import asyncio
import os
import time
from collections.abc import AsyncGenerator, Sequence

from tests.bench import asking, catalogue, host, install
from tests.bench.measurement import Failed, measure
from tests.bench.results import Row, Writer
from tests.bench.scenario import Entrant, Scenario
from tests.support.redis_server import binary

SHOWN = (
    "cpu_us", "store_cpu_us", "cpu_us_per_publish", "burst_cpu_us", "stream_kb", "open_cpu_us", "idle_core",
    "p50_ms", "p99_ms", "max_ms", "answers_s", "exact",
)  # fmt: skip
TOTALS = (1_000, 10_000, 100_000, 1_000_000)


def say(line: str) -> None:
    """Tell whoever waits."""
    print(line, flush=True)  # noqa: T201 # progress, for a person


class Progress:
    """How far it is, and what was found."""

    def __init__(self, writer: Writer, expected: int) -> None:
        self._writer = writer
        self._expected = expected
        self._began = time.monotonic()
        self._done = 0
        self.failures: list[str] = []

    def add(self, row: Row) -> None:
        """Keep a row and show what it says."""
        self._writer.add(row)
        self._done += 1
        label = f"{row['scenario']} {row['system']}" + (f" {row['x']:g}" if row.get("x") else "")
        if row.get("error") or not row.get("exact"):
            self.failures.append(f"{label}: {row.get('error') or row.get('fault') or 'the books differ'}")
        spent = time.monotonic() - self._began
        found = row.get("error") or "  ".join(f"{key} {_short(row[key])}" for key in SHOWN if key in row)
        say(f"{spent:6.0f} s {self._done:4}/{self._expected}  {label:34} {found}")


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


async def one(scenario: Scenario, number: int, entrant: Entrant) -> Row:
    """Measure one entrant once."""
    system = entrant.system()
    load = (entrant.load or scenario.load).lighter(entrant.lighter)
    row: Row = {
        "scenario": scenario.name, "system": system.name, "round": number, "x": entrant.x,
        "load1": os.getloadavg()[0],
    }  # fmt: skip
    try:
        return {**row, **await measure(system, load)}
    except (Failed, AssertionError, OSError) as error:
        return {**row, "error": str(error)[:1000]}


async def streams(scenarios: Sequence[Scenario]) -> AsyncGenerator[Row]:
    """Yield a row for each turn of each scenario."""
    for scenario in scenarios:
        for number, entrant in scenario.turns():
            yield await one(scenario, number, entrant)


def turns(scenarios: Sequence[Scenario]) -> int:
    return sum(1 for scenario in scenarios for _ in scenario.turns())


async def everything(wanted: Sequence[str], writer: Writer, *, is_smoke: bool, minutes: float) -> Progress:
    """Measure `wanted`, all if there is none; what has begun after `minutes` is finished."""
    began = time.monotonic()
    scenarios = catalogue.smoke() if is_smoke else catalogue.FULL
    chosen = [scenario for scenario in scenarios if not wanted or scenario.name in wanted]
    pairs, rounds, totals = (1, 1, TOTALS[:2]) if is_smoke else (5, 1, TOTALS)
    others = {
        "read": (pairs * 2, lambda: asking.reads(pairs, 500 if is_smoke else 3000)),
        "page": (len(totals) * rounds, lambda: asking.pages(totals, 200 if is_smoke else 500, rounds)),
    }
    taken = {name: other for name, other in others.items() if not wanted or name in wanted}
    progress = Progress(writer, turns(chosen) + sum(count for count, _ in taken.values()))
    table = [scenario for scenario in chosen if not scenario.is_growth]
    growing = [scenario for scenario in chosen if scenario.is_growth]
    # The plots last: if time runs out, the table is whole.
    for source in (streams(table), *(make() for _, make in taken.values()), streams(growing)):
        async for row in source:
            progress.add(row)
            if time.monotonic() - began > minutes * 60:
                await source.aclose()
                progress.failures.append(f"{minutes:g} minutes were over after {row['scenario']}")
                return progress
    return progress


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="only these")
    parser.add_argument("--smoke", action="store_true", help="small and once: does it run, is it exact")
    parser.add_argument("--minutes", type=float, default=40.0, help="begin nothing after so long")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark.

    Raises:
        SystemExit: something failed or was not exact; the sentences say what.
    """
    options = _options()
    if options.list:
        for scenario in catalogue.FULL:
            say(f"{scenario.name:18} {scenario.title}")
        say(f"{'read':18} stored reads beside the official SDK's static resource")
        say(f"{'page':18} a page of 100 out of up to {TOTALS[-1]:,} resources")
        return
    install.install(plots=not options.smoke)
    writer = Writer(host.describe(binary(), install.typescript_version()))
    say(f"results go to {writer.path}; they count only on a machine that has nothing else to do")
    progress = asyncio.run(
        everything(options.scenario, writer, is_smoke=options.smoke, minutes=options.minutes)
    )
    if progress.failures:
        raise SystemExit("\n".join(["These were not measured or not exact:", *progress.failures]))


if __name__ == "__main__":
    main()
