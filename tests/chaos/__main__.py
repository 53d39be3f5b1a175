"""`make chaos`: plans against every shape, and one table at the end; the exit code is 1 if anything was lost.

`--faults` runs exactly these faults, in this order, instead of a plan made from the seed.
"""

import argparse
import asyncio
import platform
import sys

from tests.chaos import faults
from tests.chaos.plan import exactly, plan, shown
from tests.chaos.report import Run, by_fault, table, verdict
from tests.chaos.run import run
from tests.chaos.shape import SHAPES


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program's answer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="which shapes of Redis")
    parser.add_argument("--seeds", default="1", help="one run a shape for each")
    parser.add_argument("--steps", type=int, default=60, help="how many faults a run has in all")
    parser.add_argument("--faults", default="", help="exactly these faults, each judged by itself")
    how = parser.parse_args()
    most = max(len(faults.of(shape)) for shape in how.shapes.split(","))
    if not how.faults and how.steps < most:
        parser.error(f"each fault has its turn, so --steps is {most} at least; --faults runs some of them")
    return how


async def _main(how: argparse.Namespace) -> int:
    runs: list[Run] = []
    failed = False
    for shape in how.shapes.split(","):
        for seed in map(int, how.seeds.split(",")):
            kinds = [fault.kind for fault in faults.of(shape)]
            names: list[str] = how.faults.split(",") if how.faults else []
            groups = exactly(seed, names) if names else plan(seed, kinds, how.steps, is_complete=True)
            _say(f"{shape}, seed {seed}: {shown(groups)}")
            try:
                done = await run(shape, seed, groups)
            except AssertionError as error:
                _say(f"{shape}, seed {seed} broke off: {error}")
                failed = True
                continue
            runs.append(done)
            said = verdict(done)
            failed |= bool(said)
            _say(said or f"all told, in {done.seconds:.0f} s")
    servers = ", ".join(sorted({run.server for run in runs}))
    _say(f"\n{servers}, Python {platform.python_version()}\n\n{table(runs)}\n\n{by_fault(runs)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(arguments())))
