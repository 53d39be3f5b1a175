"""Runs a soak and prints one table: what was done, and whether anything grew.

    python -m tests.soak [--minutes 20] [--publishes 1000000] [--connects 20000]

Two replicas and a Redis are started here and ended by their ids. It ends with 1 if something grew, failed
or was not told. A short run shows that the load works, not that nothing grows: tokens alone fill up for ten
minutes.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from tests.soak import load
from tests.soak.samples import Watch
from tests.support.mcp import new_http
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet

PREFIX = "soak"
EVERY = 5.0
"""Seconds between two samples; a line of progress each."""
SETTINGS = {"BROKER_SESSION__IDLE_SECONDS": "60", "BROKER_LOG__LENGTH": "20000"}
"""Short enough that whatever is left behind is gone again within the run."""
RESULT = Path("build") / "soak.json"


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program's answer


async def run(seconds: float, publishes: int, connects: int) -> tuple[Watch, load.Counts]:
    """Soak, and return what was seen."""
    with RedisServer() as server, Fleet(server.url, PREFIX, **SETTINGS) as fleet, server.client() as client:
        await asyncio.to_thread(fleet.add, 2)
        watch, counts = Watch(fleet.replicas, client), load.Counts()
        async with new_http() as http, asyncio.TaskGroup() as group:
            done = asyncio.Event()
            publishing = load.Pace(publishes // load.BATCH, seconds, until=done)
            visiting = load.Pace(connects, seconds)
            urls = [replica.url for replica in fleet.replicas]
            work = [
                group.create_task(load.publish(server.url, PREFIX, publishing, counts), name="publish"),
                group.create_task(load.visit(urls, http, visiting, counts, done), name="visit"),
            ]
            await _watch(watch, counts, work, seconds)
        return watch, counts


async def _watch(watch: Watch, counts: load.Counts, work: list["asyncio.Task[None]"], seconds: float) -> None:
    begun = time.monotonic()
    while not all(task.done() for task in work):
        at = time.monotonic() - begun
        await asyncio.to_thread(watch.sample, at)
        last = {name: series.values[-1] for name, series in watch.series.items()}
        memory = ", ".join(f"{name} {value:.0f}" for name, value in last.items() if "memory" in name)
        say(
            f"{at:5.0f} of {seconds:.0f} s: {counts.published} published, {counts.connects} connects, "
            f"{counts.failed} failed; MB: {memory}; {last['Redis keys']:.0f} keys"
        )
        await asyncio.sleep(EVERY)


def report(watch: Watch, counts: load.Counts, begin: float) -> bool:
    """Print the table and keep it in build/; whether all is well."""
    say("")
    say(
        f"{counts.published:,} publishes, {counts.connects:,} connects, {counts.told:,} told, "
        f"{counts.refused} refused for a moment, {counts.failed} failed"
    )
    for why, times in counts.failures.most_common():
        say(f"{times} x {why}")
    say(f"from {begin:.0f} s on:")
    say("| what | mean | rise over the run | scatter | grows |")
    say("|---|---|---|---|---|")
    trends = {name: series.trend(begin) for name, series in watch.series.items()}
    for name, trend in trends.items():
        unit = watch.series[name].unit
        grows = "**yes**" if trend.grows else "no"
        say(f"| {name} {unit} | {trend.level:.1f} | {trend.rise:+.2f} | {trend.scatter:.2f} | {grows} |")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(
        json.dumps({name: [series.times, series.values] for name, series in watch.series.items()})
    )
    return counts.failed == 0 and not any(trend.grows for trend in trends.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long, in minutes (%(default)s)")
    parser.add_argument("--publishes", type=int, default=1_000_000, help="over the whole run (%(default)s)")
    parser.add_argument("--connects", type=int, default=20_000, help="over the whole run (%(default)s)")
    parser.add_argument(
        "--warm", type=float, default=0.55, help="the share of the run that is left out (%(default)s)"
    )
    told = parser.parse_args()
    seconds = told.minutes * 60
    watch, counts = asyncio.run(run(seconds, told.publishes, told.connects))
    return 0 if report(watch, counts, told.warm * seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
