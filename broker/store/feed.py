"""Where a group of jobs stands in its tenant's log, and which process of it follows (ADR 0004)."""

from dataclasses import dataclass

from broker.core.identity import TenantId
from broker.core.log import Head
from broker.store.client import Client
from broker.store.keys import Keys
from broker.store.scripts import Call, Value, run, script

HOLD_MS = 8000
"""How long a process that says nothing still has the place."""
PLACE_MS = 7 * 24 * 60 * 60 * 1000
"""How long a place is kept that nobody follows from; a log does not reach back so far."""


@dataclass(frozen=True, slots=True)
class PlaceStore:
    """The place of one group, as one process of it sees it.

    Methods raise StoreUnavailable or WrongStore as store/errors.py says.
    """

    redis: Client
    keys: Keys
    tenant: TenantId
    group: str
    process: str

    async def take(self) -> Head | None:
        """Take or keep the place and return it (with an empty epoch if there never was one), or None."""
        return await self._run(HOLD_MS)

    async def move(self, to: Head) -> bool:
        """Move the place on; False if another process has it now."""
        return await self._run(HOLD_MS, to.epoch, to.n, to.mark) is not None

    async def leave(self) -> None:
        """Give the place up, for another process to take at once."""
        await self._run(0)

    async def _run(self, hold_ms: int, *place: Value) -> Head | None:
        name = self.keys.place(self.tenant, self.group)
        args: tuple[Value, ...] = (self.process, hold_ms, PLACE_MS, *place)
        call: Call[Head | None] = Call(script("follow"), (name,), args, _place)
        return await run(self.redis, call)


def _place(reply: list[bytes]) -> Head | None:
    if int(reply[0]) == 0:
        return None
    _, epoch, n, mark = reply
    return Head(epoch.decode(), int(n), mark.decode())
