"""Refuses new streams and sessions before this process runs out of memory or descriptors (promise 10).

Rules:

1. What is open goes on, and so do requests that end at once: only what stays is refused, with an error that
   says to try again, and the replica is not ready meanwhile, so that balancers look elsewhere.
2. The limits are those of the process: its descriptors, and the memory of its container. Where there is none,
   nothing is shed for it.
3. It begins at a share of a limit and ends five hundredths below it: at the edge it must not flicker.

The last descriptors are kept for Redis and the internal port by the HTTP server (`most_connections`): a
connection above that is told so and closed.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker.core.errors import Overloaded

_log = logging.getLogger(__name__)

INTERVAL = 0.5
"""Seconds between two looks; even a storm of streams, 12 KB each, needs longer for a tenth of anything."""
CALM = 0.05
"""How far below its beginning shedding ends, as a share of the limit."""
KEPT_DESCRIPTORS = 64
"""For logs, the internal port, and what the interpreter opens; connections to Redis come on top."""
_DESCRIPTORS = Path("/proc/self/fd")
_PAGES = Path("/proc/self/statm")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Resources:
    """Descriptors and bytes of memory that a process has in use, or may have; None is unknown or no limit."""

    descriptors: int | None
    memory: int | None


def in_use() -> Resources:
    """Return what this process has in use now, at the cost of some microseconds; known on Linux only."""
    try:
        # Since Linux 6.2 the size of this directory is their number; before, it is 0.
        descriptors = _DESCRIPTORS.stat().st_size or sum(1 for _ in _DESCRIPTORS.iterdir())
        memory = int(_PAGES.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return Resources(None, None)
    return Resources(descriptors, memory)


def limits(memory_bytes: int) -> Resources:
    """Return what this process may have: `memory_bytes`, or with 0 what its container allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = None if soft == resource.RLIM_INFINITY else soft
    return Resources(descriptors, memory_bytes or container_memory(_CGROUPS))


def container_memory(cgroups: Path) -> int | None:
    """Return the limit of our control group in bytes (v2, then v1); None without one."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (cgroups / name).read_text().strip()
        except OSError:
            continue
        # v1 says "none" as the largest number of whole pages.
        return int(text) if text.isdecimal() and int(text) < 1 << 60 else None
    return None


def most_connections(limit: int | None, redis: int) -> int | None:
    """Return how many connections may be open, so that `redis` more and our own files still can."""
    return None if limit is None else max(1, limit - redis - KEPT_DESCRIPTORS)


@dataclass(frozen=True, slots=True)
class Bounds:
    """From which share of its limit on, 0 to 1, each resource is too scarce for what stays."""

    limit: Resources
    descriptors: float = 0.9
    memory: float = 0.85


class Shedding:
    """Whether this process has room for what stays open. Looks by itself while `run` runs."""

    def __init__(self, bounds: Bounds, usage: Callable[[], Resources] = in_use) -> None:
        self.why: str | None = None
        """What is scarce, as a sentence; None while there is room."""
        self._bounds = bounds
        self._usage = usage

    def __repr__(self) -> str:
        return f"<Shedding {self.why or 'nothing'}>"

    def check(self) -> None:
        """Let something in that stays.

        Raises:
            Overloaded: there is no room for it here.
        """
        if self.why is not None:
            raise Overloaded

    def look(self) -> None:
        """Look at what is in use, and decide."""
        before, self.why = self.why, self._judge(self._usage())
        if self.why is not None and before is None:
            _log.warning("shedding_began", extra={"why": self.why})
        elif self.why is None and before is not None:
            _log.info("shedding_ended")

    async def run(self) -> None:
        """Look for ever."""
        limit = self._bounds.limit
        _log.info("limits", extra={"descriptors": limit.descriptors, "memory_bytes": limit.memory})
        while True:
            self.look()
            await asyncio.sleep(INTERVAL)

    def _judge(self, used: Resources) -> str | None:
        bounds, limit = self._bounds, self._bounds.limit
        calm = CALM if self.why is not None else 0.0
        if _is_over(used.descriptors, limit.descriptors, bounds.descriptors - calm):
            return (
                f"{used.descriptors} of {limit.descriptors} descriptors are open; add replicas, or raise the "
                "limit (LimitNOFILE of the container runtime)."
            )
        if _is_over(used.memory, limit.memory, bounds.memory - calm):
            return (
                f"{used.memory} of {limit.memory} bytes of memory are used; add replicas, or raise the limit "
                "of the container (or BROKER_SHED__MEMORY_BYTES)."
            )
        return None


def _is_over(used: int | None, limit: int | None, share: float) -> bool:
    return used is not None and limit is not None and used >= limit * share
