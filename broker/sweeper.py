"""Removes what is over, fleet-wide once: a lease names the replica that does it.

Resources that had a lifetime, and registrations that no worker repeats (callbacks/withdrawal.py).

A Redis TTL would announce nothing; each expired resource is removed by an ordinary call with its entry.
"""

import asyncio
import logging

from broker.callbacks.withdrawal import Withdrawal
from broker.core.errors import BrokerError
from broker.core.identity import ReplicaId
from broker.store import publishing, resources
from broker.store.client import Client
from broker.store.keys import Keys
from broker.store.leases import lease
from broker.store.scripts import run

_log = logging.getLogger(__name__)

INTERVAL = 0.5
LEASE_MS = 3000
WITHDRAWAL_INTERVAL = 2.0


class Sweeper:
    """The sweep of one replica over all logs' expiry sets, while it holds the lease."""

    def __init__(self, redis: Client, keys: Keys, replica: ReplicaId, withdrawal: Withdrawal) -> None:
        self._redis = redis
        self._keys = keys
        self._replica = replica
        self._withdrawal = withdrawal
        self._since: float | None = None
        """Loop time from which on we have had the lease, and with it Redis, without a break."""
        self._withdraw_at = 0.0

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                if await lease(self._redis, self._keys, "sweeper", self._replica, LEASE_MS):
                    for number in range(self._keys.logs):
                        await self._sweep(number)
                    await self._withdraw()
                else:
                    self._since = None
            except BrokerError as error:
                self._since = None
                _log.debug("sweep_postponed", extra={"error": str(error)})
            except Exception:  # a bug here must not end the replica
                _log.exception("sweep_failed")

    async def _sweep(self, number: int) -> None:
        for key in await resources.due(self._redis, self._keys, number):
            await run(self._redis, publishing.expire(self._keys, key))

    async def _withdraw(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        if now - self._since < self._withdrawal.unheard or now < self._withdraw_at:
            return
        self._withdraw_at = now + WITHDRAWAL_INTERVAL
        for number in range(self._keys.logs):
            await self._withdrawal.sweep(number)
