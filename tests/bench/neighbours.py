"""What a quiet tenant notices of a loud one: p99 of cue and read, at the loud one's limits and at ten times.

    .venv/bin/python -m tests.bench.neighbours [pairs] [seconds]

Two replicas ask for API keys. The loud tenant offers publishes, reads, listens (each a new connection) and
subscribes, each at its limit ("inside") or at ten times that ("over"); the quiet one publishes on one
replica, hears of it on the other, and reads there. Pairs alternate, since times drift; printed are the ratios
over ÷ inside, whose median should be below 1.5, and what each process took of a core. The load comes from a
process of its own at the lowest priority (loud.py), so what is measured is the broker's queue and not ours;
a run in which it could not offer what it should is no run.
"""

import asyncio
import json
import os
import secrets
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.core.access import PUBLISH, READ
from broker.core.identity import TenantId
from broker.core.tenancy import Limits
from broker.store.client import Connect, commands
from broker.store.control import Control
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.tenants.yard import Caller

LOUD = Limits(publishes=10, reads=20, streams=4, principal_streams=4, sessions=20)
OFFERED = {"publish": 10.0, "read": 20.0, "listen": 2.0, "subscribe": 2.0}
"""A second, inside the limits; ten times as much is over them."""
FACTOR = 10
EVERY = 0.04
URI = "bench://quiet"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Found:
    """One run: times in ms, shares of one core."""

    cue: float
    read: float
    cue_median: float
    read_median: float
    shares: dict[str, float]
    answered: dict[str, int]

    def __str__(self) -> str:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return (
            f"cue {self.cue:6.1f} ms (median {self.cue_median:.1f}), read {self.read:6.1f} ms (median "
            f"{self.read_median:.1f}); {shares}"
        )


class Meter:
    """How much of a core some processes take; `pids` by name, equal names are summed."""

    def __init__(self, pids: list[tuple[str, int]]) -> None:
        self._pids = pids
        self._before = self._read()
        self._began = time.monotonic()

    def _read(self) -> dict[str, float]:
        spent: dict[str, float] = {}
        for name, pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent[name] = spent.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS
        spent["machine"] = sum(map(int, Path("/proc/stat").read_text().split()[1:4])) / TICKS
        return spent

    def shares(self) -> dict[str, float]:
        """Return the share of one core that each took since the beginning, and all of the machine."""
        passed = time.monotonic() - self._began
        return {name: (spent - self._before[name]) / passed for name, spent in self._read().items()}


async def quiet(here: Caller, there: Caller, seconds: float) -> tuple[list[float], list[float]]:
    """Return how long cues and reads took, in ms: published here, heard and read there."""
    cues: list[float] = []
    reads: list[float] = []
    client = there.modern()
    async with await client.listen([URI]) as stream:
        for turn in range(int(seconds / EVERY)):
            began = time.perf_counter()
            await here.publish(URI, f"{turn} {began}")
            while len(stream.cues) <= turn:
                stream.stream.news.clear()
                if len(stream.cues) <= turn:
                    await stream.stream.news.wait()
            cued = time.perf_counter()
            await client.read(URI)
            cues.append((cued - began) * 1000)
            reads.append((time.perf_counter() - cued) * 1000)
            await asyncio.sleep(max(0.0, began + EVERY - time.perf_counter()))
    return cues, reads


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


@dataclass
class Bench:
    """A fleet with a loud and a quiet tenant."""

    fleet: Fleet
    redis_pid: int
    loud_key: str
    here: Caller
    there: Caller

    async def run(self, factor: float, seconds: float) -> Found:
        """Measure the quiet tenant while the loud one offers `factor` times its limits."""
        urls = [replica.url for replica in self.fleet.replicas]
        rates = {name: rate * factor for name, rate in OFFERED.items()}
        said = json.dumps([urls, self.loud_key, rates])
        load = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.loud",
            said,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await asyncio.sleep(2)
            pids = [("replicas", replica.process.pid) for replica in self.fleet.replicas]
            meter = Meter([*pids, ("redis", self.redis_pid), ("loud", load.pid), ("quiet", os.getpid())])
            cues, reads = await quiet(self.here, self.there, seconds)
            shares = meter.shares()
            told: dict[str, Any] = json.loads((await load.communicate(b""))[0])
        finally:
            if load.returncode is None:
                load.kill()
                await load.wait()
        offered, answered = sum(told["offered"].values()), sum(told["answered"].values())
        assert answered > 0.9 * offered, f"the load was not what it should be: {told}"
        medians = statistics.median(cues), statistics.median(reads)
        return Found(_p99(cues), _p99(reads), *medians, shares, told["answered"])


async def measure(fleet: Fleet, redis_pid: int, pairs: int, seconds: float) -> None:
    """Run the pairs and print them."""
    redis = commands(Connect(fleet.redis_url, Keys(fleet.prefix)))
    control = Control(redis, Keys(fleet.prefix))
    texts: dict[str, str] = {}
    for name, limits in (("loud", LOUD), ("quiet", Limits())):
        await control.create("bench", name, limits)
        texts[name] = (await control.new_key("bench", TenantId(name), "both", [READ, PUBLISH]))[0].text
    here, there = (Caller(replica.url, texts["quiet"]) for replica in fleet.replicas)
    bench = Bench(fleet, redis_pid, texts["loud"], here, there)
    await quiet(here, there, 2)
    ratios: list[tuple[float, float]] = []
    for pair in range(pairs):
        found: dict[int, Found] = {}
        for factor in (1, FACTOR) if pair % 2 else (FACTOR, 1):
            found[factor] = await bench.run(factor, seconds)
            print(f"{factor:3} x: {found[factor]}\n       {found[factor].answered}")  # noqa: T201 # a benchmark's answer
        ratios.append((found[FACTOR].cue / found[1].cue, found[FACTOR].read / found[1].read))
        print(f"ratios: cue {ratios[-1][0]:.2f}, read {ratios[-1][1]:.2f}")  # noqa: T201 # a benchmark's answer
    print(  # noqa: T201 # a benchmark's answer
        f"median ratios: cue {statistics.median(r[0] for r in ratios):.2f}, "
        f"read {statistics.median(r[1] for r in ratios):.2f} (bound 1.5)"
    )
    await redis.aclose()


def main() -> None:
    """Run the benchmark."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    prefix = f"bench{secrets.token_hex(3)}"
    with RedisServer() as server, Fleet(server.url, prefix, BROKER_AUTH__MODE="keys") as fleet:
        fleet.add(2)
        asyncio.run(measure(fleet, server.process.pid, pairs, seconds))


if __name__ == "__main__":
    main()
