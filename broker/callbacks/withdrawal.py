"""Withdraws what no worker declares any more: of groups that died, and what a group's next release dropped.

Workers repeat their registrations (workers/registration.py); what nobody repeated for a while goes, each by
an ordinary call with its entry. After an outage of Redis nobody could repeat anything, so the sweep begins
only once the sweeper has had Redis without a break for as long.
"""

import logging

from broker.core.identity import TenantId
from broker.store import registry
from broker.store.client import Client
from broker.store.keys import Keys
from broker.store.scripts import run

_log = logging.getLogger(__name__)


class Withdrawal:
    """The sweep over the registrations of all groups. `unheard` is in seconds."""

    def __init__(self, redis: Client, keys: Keys, unheard: float) -> None:
        self._redis = redis
        self._keys = keys
        self.unheard = unheard

    async def sweep(self, number: int) -> None:
        """Withdraw what is due in one log's tenants.

        Raises:
            StoreUnavailable, WrongStore: from the store; the rest is done next time.
        """
        for tenant, group in await registry.groups(self._redis, self._keys, number):
            await self._sweep_group(tenant, group)

    async def _sweep_group(self, tenant: TenantId, group: str) -> None:
        unheard_ms = int(self.unheard * 1000)
        due, is_all = await registry.unheard(self._redis, self._keys, tenant, group, unheard_ms)
        gone = 0
        for is_template, text in due:
            decide = registry.unregister_template if is_template else registry.unregister
            call = decide(self._keys, tenant, group, text, unheard_ms=unheard_ms)
            if await run(self._redis, call) > 0:
                gone += 1
        if gone:
            _log.info("registrations_withdrawn", extra={"tenant": tenant, "group": group, "count": gone})
        if is_all and not (await registry.live(self._redis, self._keys, [(tenant, group)]))[0]:
            await registry.forget_group(self._redis, self._keys, tenant, group)
