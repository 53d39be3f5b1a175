"""Reports which watched URIs a worker wants to know of (design section 6, "Demand").

Looks at the hub several times a second for what is watched anew, and repeats all of it every few seconds, so
that what this replica watches ends to count when the replica does. Rules:

1. What is watched is the hub's business and who wants to know the templates'; here they are only compared.
2. Nothing is said of what no worker asked for.
3. Whoever stops watching is not reported: nobody repeats it any more, and the linger ends it.
"""

import asyncio
import logging
from typing import Any

from broker.callbacks.templates import Templates, TemplateSet
from broker.core.errors import BrokerError
from broker.core.hub import Hub
from broker.core.identity import ResourceKey, TenantId
from broker.store import demand
from broker.store.client import Client
from broker.store.keys import Keys

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25

_Wish = tuple[TenantId, str]
"""A tenant's worker group that wants to know."""


class Demand:
    """The reports of one replica. `repeat` is in seconds."""

    def __init__(self, redis: Client, keys: Keys, hub: Hub[Any], templates: Templates, repeat: float) -> None:
        self._redis = redis
        self._keys = keys
        self._hub = hub
        self._templates = templates
        self._repeat = repeat
        self._known: dict[int, set[ResourceKey]] = {log: set() for log in range(keys.logs)}
        self._wishes: dict[int, dict[_Wish, set[str]]] = {log: {} for log in range(keys.logs)}
        self._seen = (-1, self._known)
        """What was watched at the last look, and the hub's generation then."""
        self._repeat_at = dict.fromkeys(range(keys.logs), 0.0)
        """When, in loop time, all is said again; like the others by log."""

    def __repr__(self) -> str:
        wished = sum(len(uris) for wishes in self._wishes.values() for uris in wishes.values())
        return f"<Demand {wished} of {sum(map(len, self._known.values()))} watched>"

    async def run(self) -> None:
        """Report for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # Together: on a cluster a node that is silent must not hold up what others are told.
            await asyncio.gather(*(self._report(*each) for each in self._watched().items()))

    async def _report(self, log: int, watched: set[ResourceKey]) -> None:
        now = asyncio.get_running_loop().time()
        try:
            if now >= self._repeat_at[log]:
                await self._report_all(log, watched)
                self._repeat_at[log] = now + self._repeat
            else:
                await self._report_new(log, watched)
        except BrokerError as error:
            _log.debug("demand_not_reported", extra={"log": log, "error": str(error)})
        except Exception:  # a bug here must not end the replica
            _log.exception("demand_failed")

    async def _report_new(self, log: int, now: set[ResourceKey]) -> None:
        if now is self._known[log]:
            return
        fresh = now - self._known[log]
        if fresh:
            found = await self._wanted(fresh)
            for wish, uris in found.items():
                await self._say(wish, uris, is_new=True)
                self._wishes[log].setdefault(wish, set()).update(uris)
        # Only now: what could not be said is looked at again.
        self._known[log] = now

    async def _report_all(self, log: int, now: set[ResourceKey]) -> None:
        found = await self._wanted(now)
        for wish, uris in found.items():
            # A worker that declares its wish late hears of what is watched already.
            await self._say(wish, uris, is_new=not uris <= self._wishes[log].get(wish, set()))
        self._known[log], self._wishes[log] = now, found

    def _watched(self) -> dict[int, set[ResourceKey]]:
        if self._seen[0] == self._hub.generation:
            # Four looks a second over ten thousand keys cost 4 % of a core.
            return self._seen[1]
        watched: dict[int, set[ResourceKey]] = {log: set() for log in self._known}
        for topic in self._hub:
            if not topic.key.is_list:
                watched[self._keys.log_number(topic.key.tenant)].add(topic.key)
        self._seen = (self._hub.generation, watched)
        return watched

    async def _wanted(self, keys: set[ResourceKey]) -> dict[_Wish, set[str]]:
        sets = await self._templates.of_all(list({key.tenant for key in keys}))
        found: dict[_Wish, set[str]] = {}
        for key in keys:
            group = _asked_by(sets[key.tenant], key.uri)
            if group is not None:
                found.setdefault((key.tenant, group), set()).add(key.uri)
        return found

    async def _say(self, wish: _Wish, uris: set[str], *, is_new: bool) -> None:
        await demand.report(self._redis, self._keys, *wish, sorted(uris), is_new=is_new)


def _asked_by(templates: TemplateSet, uri: str) -> str | None:
    """Return the group that wants to know whether `uri` is watched."""
    declared = templates.fixed.get(uri)
    if declared is None:
        declared, bad = templates.match(uri) or (None, None)
        if bad is not None:
            return None
    return declared.group if declared is not None and declared.declaration.wants_demand else None
