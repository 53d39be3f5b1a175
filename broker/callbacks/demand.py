"""Reports which watched URIs a worker wants to know of (design section 6, "Demand").

Takes from the hub several times a second what is watched anew, and repeats all of it every few seconds, so
that what this replica watches ends to count when the replica does. Rules:

1. What is watched is the hub's business and who wants to know the templates'; here they are only compared.
2. Nothing is said of what no worker asked for.
3. Whoever stops watching is not reported: nobody repeats it any more, and the linger ends it.
4. All that is watched is walked only to repeat it, a slice at a time: 100,000 keys are 0.1 s of CPU.
"""

import asyncio
import logging
from collections.abc import Iterable
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
SLICE = 5000
"""Watched keys that are looked at before the loop runs again: about 2 ms."""

_Wish = tuple[TenantId, str]
"""A tenant's worker group that wants to know."""

_Watched = dict[TenantId, set[ResourceKey]]


class Demand:
    """The reports of one replica. `repeat` is in seconds."""

    def __init__(self, redis: Client, keys: Keys, hub: Hub[Any], templates: Templates, repeat: float) -> None:
        self._redis = redis
        self._keys = keys
        self._hub = hub
        self._templates = templates
        self._repeat = repeat
        self._fresh: dict[int, _Watched] = {log: {} for log in range(keys.logs)}
        """What is watched anew and has not been looked at with success."""
        self._wishes: dict[int, dict[_Wish, set[str]]] = {log: {} for log in range(keys.logs)}
        self._repeat_at = dict.fromkeys(range(keys.logs), 0.0)
        """When, in loop time, all is said again; like the others by log."""

    def __repr__(self) -> str:
        wished = sum(len(uris) for wishes in self._wishes.values() for uris in wishes.values())
        return f"<Demand {wished} of {len(self._hub)} watched>"

    async def run(self) -> None:
        """Report for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._take(self._hub.take_fresh(), self._fresh)
            now = asyncio.get_running_loop().time()
            due = {log for log, at in self._repeat_at.items() if now >= at}
            watched = await self._all_watched() if due else {}
            # Together: on a cluster a node that is silent must not hold up what others are told.
            await asyncio.gather(
                *(self._report(log, watched[log] if log in due else None) for log in self._repeat_at)
            )

    async def _report(self, log: int, watched: _Watched | None) -> None:
        """Repeat all that is `watched`, or say what is new (None)."""
        try:
            if watched is not None:
                await self._report_all(log, watched)
                self._repeat_at[log] = asyncio.get_running_loop().time() + self._repeat
            elif self._fresh[log]:
                await self._report_new(log)
        except BrokerError as error:
            _log.debug("demand_not_reported", extra={"log": log, "error": str(error)})
        except Exception:  # a bug here must not end the replica
            _log.exception("demand_failed")

    async def _report_new(self, log: int) -> None:
        found = await self._wanted(self._fresh[log])
        for wish, uris in found.items():
            await self._say(wish, uris, is_new=True)
            self._wishes[log].setdefault(wish, set()).update(uris)
        # Only now: what could not be said is looked at again.
        self._fresh[log] = {}

    async def _report_all(self, log: int, watched: _Watched) -> None:
        found = await self._wanted(watched)
        for wish, uris in found.items():
            # A worker that declares its wish late hears of what is watched already.
            await self._say(wish, uris, is_new=not uris <= self._wishes[log].get(wish, set()))
        self._fresh[log], self._wishes[log] = {}, found

    async def _all_watched(self) -> dict[int, _Watched]:
        watched: dict[int, _Watched] = {log: {} for log in self._repeat_at}
        keys = [topic.key for topic in self._hub]
        for start in range(0, len(keys), SLICE):
            self._take(keys[start : start + SLICE], watched)
            await asyncio.sleep(0)
        return watched

    def _take(self, keys: Iterable[ResourceKey], into: dict[int, _Watched]) -> None:
        for key in keys:
            if not key.is_list:
                log = self._keys.log_number(key.tenant)
                into[log].setdefault(key.tenant, set()).add(key)

    async def _wanted(self, watched: _Watched) -> dict[_Wish, set[str]]:
        sets = await self._templates.of_all(list(watched))
        found: dict[_Wish, set[str]] = {}
        for tenant, templates in sets.items():
            if not templates.wants_demand:
                continue
            for number, key in enumerate(watched[tenant]):
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                group = _asked_by(templates, key.uri)
                if group is not None:
                    found.setdefault((tenant, group), set()).add(key.uri)
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
