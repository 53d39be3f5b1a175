"""Gives sessions back that this replica has no stream for any more.

Redis may take us for a session's deliverer though we are not: its stream has ended, or a take of ours was
executed after its stream had. As long as we live nobody would take the session from us, so its other streams
would stay silent. Giving back is repeated until Redis has answered; and where a take may still be under way
in the network, once more when it cannot be executed any more.
"""

import asyncio
import random
from collections.abc import Callable

from broker.core.errors import Unavailable
from broker.core.identity import ReplicaId, SessionId, TenantId
from broker.store.sessions import SessionStore

TAKE_SECONDS = 3.0
"""How long after it was sent a take may be executed."""


class Releases:
    """The giving back of one replica. `is_open` says whether a session has a stream here (again)."""

    def __init__(
        self, replica: ReplicaId, store: SessionStore, is_open: Callable[[TenantId, SessionId], bool]
    ) -> None:
        self._replica = replica
        self._store = store
        self._is_open = is_open

    async def release(self, tenant: TenantId, session: SessionId, fence: int | None) -> None:
        """Stop being the deliverer with that fence; None: a take of unknown fence may still be executed."""
        await self._now(tenant, session, fence)
        if fence is None:
            await asyncio.sleep(TAKE_SECONDS + 1)
            await self._now(tenant, session, fence)

    async def _now(self, tenant: TenantId, session: SessionId, fence: int | None) -> None:
        pause = 0.05
        while not self._is_open(tenant, session):
            try:
                await self._store.release(tenant, session, self._replica, fence)
            except Unavailable:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(5.0, pause * 2)
            else:
                return
