"""Demand in Redis: which URIs are watched anywhere, and which worker tends each.

A level, not a message: replicas repeat what is watched with them, and a URI is watched until nobody has said
so for the linger; a worker's claim is a lease that ends by itself.
"""

from collections.abc import Sequence
from typing import Any, Literal, cast

from broker.core.identity import TenantId
from broker.store.calls import NOTES_LENGTH
from broker.store.client import Client
from broker.store.clock import clock
from broker.store.errors import translated
from broker.store.keys import Keys
from broker.store.registry import STREAM_MS
from broker.store.scripts import Call, Value, run, script

AT_ONCE = 100
"""URIs in one script call."""
KEPT_MS = 10 * 60 * 1000
"""How long a URI that nobody reports stays known; far longer than any linger."""

Tended = Literal["new", "held", "over", "none"]


async def report(
    redis: Client, keys: Keys, tenant: TenantId, group: str, uris: Sequence[str], *, is_new: bool
) -> None:
    """Say that these URIs are watched; `is_new` wakes the group's workers.

    Raises:
        StoreUnavailable, WrongStore: as scripts.run.
    """
    names = [keys.watched(tenant, group), keys.notes(tenant, group)]
    for start in range(0, len(uris), AT_ONCE):
        args: list[Value] = [
            STREAM_MS, NOTES_LENGTH, int(is_new), KEPT_MS, *uris[start : start + AT_ONCE],
        ]  # fmt: skip
        call: Call[int] = Call(script("demand_report"), names, args, int)
        await run(redis, call)


class DemandStore:
    """Demand as one worker process of a group sees it.

    Every method raises StoreUnavailable or WrongStore as store/errors.py says.
    """

    def __init__(self, redis: Client, keys: Keys, group: str, worker: str) -> None:
        self._redis = redis
        self._keys = keys
        self._group = group
        self._worker = worker

    async def watched(self, tenant: TenantId, linger_ms: int) -> list[tuple[str, str | None]]:
        """Return the URIs that are watched, each with the worker that tends it."""
        untyped = cast("Any", self._redis)
        name = self._keys.watched(tenant, self._group)
        since = await run(self._redis, clock(name)) - linger_ms
        with translated():
            found = await untyped.zrangebyscore(name, since, "+inf")
            uris = [each.decode() for each in found]
            holders: list[bytes | None] = []
            for start in range(0, len(uris), AT_ONCE):
                holders += await untyped.mget(self._claims(tenant, uris[start : start + AT_ONCE]))
        return [(uri, holder.decode() if holder else None) for uri, holder in zip(uris, holders, strict=True)]

    async def tend(
        self, tenant: TenantId, uris: Sequence[str], *, lease_ms: int, linger_ms: int
    ) -> list[Tended]:
        """Take, keep or let go of these URIs; the answer says what became of each."""
        answers: list[Tended] = []
        for start in range(0, len(uris), AT_ONCE):
            some = uris[start : start + AT_ONCE]
            names = [self._keys.watched(tenant, self._group), *self._claims(tenant, some)]
            args: list[Value] = [self._worker, lease_ms, linger_ms, *some]
            call: Call[list[Tended]] = Call(script("demand_tend"), names, args, _tended)
            answers += await run(self._redis, call)
        return answers

    async def release(self, tenant: TenantId, uris: Sequence[str]) -> None:
        """Let go of these, for another process to take at once."""
        for start in range(0, len(uris), AT_ONCE):
            claims = self._claims(tenant, uris[start : start + AT_ONCE])
            names = [self._keys.notes(tenant, self._group), *claims]
            args = (self._worker, NOTES_LENGTH, STREAM_MS)
            await run(self._redis, Call(script("demand_release"), names, args, int))

    def _claims(self, tenant: TenantId, uris: Sequence[str]) -> list[str]:
        return [self._keys.claim(tenant, self._group, uri) for uri in uris]


def _tended(reply: list[bytes]) -> list[Tended]:
    return [cast("Tended", each.decode()) for each in reply]
