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
        self._since: dict[int, float] = {}
        """Loop time from which on we have had the lease, and each log's Redis, without a break."""
        self._withdraw_at = dict.fromkeys(range(keys.logs), 0.0)

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                if await lease(self._redis, self._keys, "sweeper", self._replica, LEASE_MS):
                    # Together: on a cluster a node that is silent must not hold up what is due on others.
                    await asyncio.gather(*(self._sweep(number) for number in range(self._keys.logs)))
                else:
                    self._since.clear()
            except BrokerError as error:
                self._since.clear()
                _log.debug("sweep_postponed", extra={"error": str(error)})
            except Exception:  # a bug here must not end the replica
                _log.exception("sweep_failed")

    async def _sweep(self, number: int) -> None:
        try:
            for key in await resources.due(self._redis, self._keys, number):
                await run(self._redis, publishing.expire(self._keys, key))
            await self._withdraw(number)
        except BrokerError as error:
            self._since.pop(number, None)
            _log.debug("sweep_postponed", extra={"log": number, "error": str(error)})

    async def _withdraw(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        due = max(self._since.setdefault(number, now) + self._withdrawal.unheard, self._withdraw_at[number])
        if now >= due:
            self._withdraw_at[number] = now + WITHDRAWAL_INTERVAL
            await self._withdrawal.sweep(number)
