"""What workers answer, as a principal sees it: reads of callbacks and templates, instances, completions.

Decides who is asked and what is shared; calls.py and sharing.py do it. Rules:

1. What stands under the exact URI comes before any template, published or not; forbidden is like unknown, and
   costs the same.
2. A result that depends on the caller (`is_personal`) is shared only between requests of that very caller.
3. A worker that is gone or fails does not take the tenant's list with it: its instances are left out.
"""

import asyncio
import dataclasses
import json
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from broker.callbacks.calls import Calls, contents
from broker.callbacks.sharing import Answer, Ask
from broker.callbacks.templates import Templates
from broker.core.access import may_read
from broker.core.declaration import CallRequest, Failure, Instances, Kind, Values
from broker.core.errors import BadRequest, BrokerError, WorkerFailed
from broker.core.identity import LIST, Principal, ResourceKey
from broker.core.revision import ABSENT, Stamp
from broker.store.log import LogStore
from broker.store.registry import Declared
from broker.store.resources import Callback, Found

_log = logging.getLogger(__name__)

NOWHERE = Stamp("", *ABSENT)
"""Where completions stand: they have no revision and are never kept."""
NOTHING = Values(())


@dataclass(frozen=True, slots=True)
class Reading:
    """What a read is answered with. `contents` is a JSON array; `ttl_ms` is what is left of it."""

    contents: bytes
    stamp: Stamp
    ttl_ms: int
    cache_scope: Literal["public", "private"]


class Callbacks:
    """The worker side of the catalog. Methods raise StoreUnavailable and WrongStore from the store."""

    def __init__(self, calls: Calls, templates: Templates, log: LogStore) -> None:
        self._calls = calls
        self._templates = templates
        self._log = log

    async def find(self, who: Principal, uri: str, found: Found) -> Callback | None:
        """Return what answers for `uri`, where nothing that `who` may read is stored; None for nothing.

        Raises:
            BadRequest: a template's value in it cannot be decoded.
        """
        if found.callback is not None and may_read(who, found.callback.scopes):
            return found.callback
        match = (await self._templates.of(who.tenant)).match(uri)
        is_taken = found.stored is not None or found.callback is not None
        if is_taken or match is None:
            return None
        declared, bad = match
        declaration = declared.declaration
        if not may_read(who, declaration.scopes):
            return None
        if bad is not None:
            raise BadRequest(f"In {uri!a}, {bad}.")
        return Callback(
            group=declared.group,
            declared=declaration.uri,
            is_personal=declaration.is_personal,
            ttl_ms=declaration.ttl_ms,
            cache_scope=declaration.cache_scope,
            scopes=declaration.scopes,
        )

    async def read(self, who: Principal, uri: str, callback: Callback, stamp: Stamp) -> Reading:
        """Return what the worker answers; `stamp` is where `uri` stood when the request had come.

        Raises:
            ResourceNotFound, BadRequest, WorkerFailed: as calls.contents.
            WorkerUnavailable, WorkerLate, LimitReached: as Calls.
        """
        key = ("read", who.tenant, uri, *_whose(who, is_personal=callback.is_personal))
        request = _request("read", callback.declared, uri, who)
        ttl_ms = callback.ttl_ms or 0
        answer = await self._calls.shared.answer(Ask(key, who.tenant, callback.group, request, stamp, ttl_ms))
        is_public = callback.cache_scope == "public" and not (callback.is_personal or callback.scopes)
        return Reading(
            contents=contents(uri, answer.result),
            stamp=answer.stamp,
            ttl_ms=max(0, ttl_ms - answer.age_ms),
            cache_scope="public" if is_public else "private",
        )

    async def templates(self, who: Principal) -> list[tuple[str, bytes]]:
        """Return the text and description of each template that `who` may see, by text."""
        shown = [
            (declared.declaration.uri, declared.declaration.meta)
            for _, declared in (await self._templates.of(who.tenant)).ordered
            if may_read(who, declared.declaration.scopes)
        ]
        return sorted(shown)

    async def listing(self, who: Principal) -> list[Declared]:
        """Return the templates whose instances resources/list shows to `who`."""
        return [
            declared
            for _, declared in (await self._templates.of(who.tenant)).ordered
            if declared.declaration.has_list and may_read(who, declared.declaration.scopes)
        ]

    async def instances(self, who: Principal, listing: Sequence[Declared]) -> dict[str, bytes]:
        """Return the instances of these templates: URI → description. Of two that name one URI, the first."""
        stamp = (await self._log.stamps([ResourceKey(who.tenant, LIST)]))[0]
        answers = await asyncio.gather(*(self._instances(who, one, stamp) for one in listing))
        found: dict[str, bytes] = {}
        for metas in answers:
            for meta in metas:
                found.setdefault(json.loads(meta)["uri"], meta)
        return found

    async def _instances(self, who: Principal, declared: Declared, stamp: Stamp) -> Sequence[bytes]:
        declaration = declared.declaration
        request = _request("list", declaration.uri, declaration.uri, who)
        try:
            answer = await self._ask(who, declared, request, stamp, ttl_ms=declaration.ttl_ms or 0)
            if isinstance(answer.result, Instances):
                return answer.result.metas
            failure = answer.result.id if isinstance(answer.result, Failure) else "no instances"
            raise WorkerFailed(failure)
        except BrokerError as error:
            _log.warning(
                "instances_left_out",
                extra={"group": declared.group, "template": declaration.uri, "error": str(error)},
            )
            return ()

    async def complete(
        self, who: Principal, template: str, argument: str, value: str, arguments: dict[str, str]
    ) -> Values:
        """Return completions of a template's variable; none for what is unknown, forbidden or not completed.

        Raises:
            WorkerFailed, WorkerUnavailable, WorkerLate, LimitReached: as `read`.
        """
        declared = (await self._templates.of(who.tenant)).get(template)
        if declared is None or not may_read(who, declared.declaration.scopes):
            return NOTHING
        if argument not in declared.declaration.completes:
            return NOTHING
        request = dataclasses.replace(
            _request("complete", template, template, who), argument=argument, value=value, arguments=arguments
        )
        answer = await self._ask(who, declared, request, NOWHERE, ttl_ms=0)
        match answer.result:
            case Values():
                return answer.result
            case Failure("internal"):
                raise WorkerFailed(answer.result.id)
            case _:
                return NOTHING

    async def _ask(
        self, who: Principal, declared: Declared, request: CallRequest, stamp: Stamp, *, ttl_ms: int
    ) -> Answer:
        key = (
            request.kind,
            who.tenant,
            request.uri,
            request.argument,
            request.value,
            *sorted(request.arguments.items()),
            *_whose(who, is_personal=declared.declaration.is_personal),
        )
        return await self._calls.shared.answer(Ask(key, who.tenant, declared.group, request, stamp, ttl_ms))


def _whose(who: Principal, *, is_personal: bool) -> tuple[Hashable, ...]:
    """Return what a key has besides, so that it is shared with nobody else (rule 2)."""
    return (who.subject, who.scopes) if is_personal else ()


def _request(kind: Kind, declared: str, uri: str, who: Principal) -> CallRequest:
    """Return the request of `who`; how long it may take is for calls.py to say."""
    return CallRequest(kind, declared, uri, who.tenant, who.subject, who.scopes, deadline=0.0)
