"""So many replicas in one process, without their HTTP: what Redis pays for those that tail.

    python -m tests.bench.programs.readers REDIS_URL PREFIX COUNT READY_FILE [--unpaced]

Each has its own connections and heartbeats, so Redis sees what it would see of so many processes; a fleet of
thirty needs minutes to start on two cores. `--unpaced` ones never wait between two reads of the log.
"""

import asyncio
import sys
from pathlib import Path

import uvloop

from broker.replica import Pace, Replica
from broker.store.client import Connect
from broker.store.keys import Keys
from broker.tailing import tail
from broker.wire import cue
from tests.support.wait import until


def unpace() -> None:
    """Let readers read again at once."""
    assert tail.PACE_MAX > 0, "the reader's pace has another name now"
    tail.PACE_MIN = tail.PACE_MAX = 0.0


async def follow(url: str, prefix: str, count: int, ready: Path) -> None:
    """Run them until this process is ended; `ready` is written when all stand in the log."""
    how = Connect(url, Keys(prefix))
    replicas = [Replica(how, cue.encode, Pace()) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for replica in replicas:
            group.create_task(replica.run())
        await until(lambda: all(one.readiness() is None for one in replicas), "all stand in the log", 60)
        await asyncio.to_thread(ready.touch)


if __name__ == "__main__":
    if "--unpaced" in sys.argv:
        unpace()
    uvloop.run(follow(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
