"""One run: a fresh target, the load generator against it, and the books of both sides compared."""

import asyncio
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bench import install, plan
from tests.bench.plan import Record
from tests.bench.scenario import WARM, Load
from tests.bench.target import WARM_STREAMS, Books, System, Target

SECONDS = 150.0
"""The most that one run may take."""


class Failed(Exception):
    """The load generator gave up; the message is its own."""


async def measure(system: System, load: Load) -> dict[str, Any]:
    """Run `load` against a fresh `system` and return what the load generator found, and `books`.

    Raises:
        Failed: nothing was measured; the message says why.
    """
    async with system.running(load.audience) as target:
        with tempfile.TemporaryDirectory(prefix="mrb-bench-") as folder:
            await target.prepares(sorted(set(load.topics())))
            arguments = await asyncio.to_thread(write_plans, target, load, Path(folder))
            before = await asyncio.to_thread(target.books)
            found = await run(arguments)
            after = await asyncio.to_thread(target.books)
    found["books"] = compare(before, after, found, load)
    found["exact"] = found["exact"] and found["books"] != "wrong"
    return found


def write_plans(target: Target, load: Load, folder: Path) -> list[str]:
    """Write what will be sent, and return the load generator's arguments."""
    audience = load.audience
    streams = (target.opens(number, -1) for number in range(audience.streams))
    # Those that warm up watch the URI of their own that `Load.topics` begins with.
    warm = (
        target.opens(number, audience.uris)
        for number in range(audience.streams, audience.streams + WARM_STREAMS)
    )
    publishes = (target.publishes(topic) for topic in load.topics())
    ready = {"acknowledged": "a", "head": "h", "body": "b"}[target.ready]
    arguments = [
        "--doors", ",".join(target.doors), "--publisher", target.publisher,
        "--streams", _written(folder / "streams", streams),
        "--warm-streams", _written(folder / "warm", warm), "--warm", str(WARM),
        "--publishes", _written(folder / "publishes", publishes),
        "--topics", str(audience.topics), "--ready", ready, "--coalesces", str(int(target.coalesces)),
        "--servers", ",".join(map(str, target.servers)),
    ]  # fmt: skip
    if target.stores:
        arguments += ["--stores", ",".join(map(str, target.stores))]
    for name, value in load.options().items():
        arguments += [f"--{name}", f"{value:g}"]
    return arguments


def _written(path: Path, records: Iterable[Record]) -> str:
    return str(plan.write(path, records))


async def run(arguments: list[str], seconds: float = SECONDS) -> dict[str, Any]:
    """Run the load generator and return its answer.

    Raises:
        Failed: it ended with an error, or not in time.
    """
    process = await asyncio.create_subprocess_exec(
        str(install.LOADGEN), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        raise Failed(f"the load generator was not done after {seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise Failed(err.decode(errors="replace").strip()[-800:] or f"it ended with {process.returncode}")
    found: dict[str, Any] = json.loads(out)
    if err:
        found["notes"] = err.decode(errors="replace").strip()[-800:]
    return found


def compare(before: Books, after: Books, found: dict[str, Any], load: Load) -> str:
    """Say whether what a server counted is what its clients counted: "" if it counts nothing."""
    if not before:
        return ""
    is_right = after["told"] - before["told"] == found["told"] + found["warm_told"]
    if "changes" in before:
        is_right = is_right and after["changes"] - before["changes"] == sum(1 for _ in load.topics())
    found["coalesced"] = after["coalesced"] - before["coalesced"]
    return "right" if is_right else "wrong"
