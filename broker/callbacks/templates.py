"""The templates of each tenant, parsed, as this replica last saw them.

Kept by the revision of the tenant's templates, which is asked for at each use: a template that any worker
registered or withdrew counts at once on every replica.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.core.errors import BrokerError
from broker.core.identity import TEMPLATES, ResourceKey, TenantId
from broker.core.revision import ABSENT, Stamp
from broker.core.template_index import TemplateIndex
from broker.core.uri_template import BadValue, UriTemplate
from broker.gathering import Gathering
from broker.store import registry
from broker.store.client import Client
from broker.store.keys import Keys
from broker.store.log import LogStore
from broker.store.registry import Declared

MAX_TENANTS = 1000


@dataclass(frozen=True, slots=True)
class TemplateSet:
    """A tenant's templates at one revision, the most specific first."""

    stamp: Stamp
    ordered: tuple[tuple[UriTemplate, Declared], ...] = ()
    fixed: dict[str, Declared] = field(default_factory=dict[str, Declared])
    """Fixed URIs that want demand."""
    index: TemplateIndex = field(default_factory=lambda: TemplateIndex(()))
    """Of `ordered`."""

    def match(self, uri: str) -> tuple[Declared, BadValue | None] | None:
        """Return the template that answers for `uri`, and a value in it that cannot be decoded.

        Of those that match it is the most specific. Whether the caller may see the template must be asked
        before anything is said about the value.
        """
        found = self.index.match(uri)
        if found is None:
            return None
        place, values = found
        return self.ordered[place][1], values if isinstance(values, BadValue) else None

    @property
    def wants_demand(self) -> bool:
        """Whether any group asks who is watched."""
        return bool(self.fixed) or any(one.declaration.wants_demand for _, one in self.ordered)

    def get(self, text: str) -> Declared | None:
        """Return the template with this text."""
        return next((declared for template, declared in self.ordered if template.text == text), None)


class Templates:
    """The template sets that one replica keeps."""

    def __init__(self, redis: Client, keys: Keys, log: LogStore) -> None:
        self._redis = redis
        self._keys = keys
        self._log = log
        self._stamps: Gathering[TenantId, Stamp] = Gathering(self._read_stamps, keys.log_number)
        self._sets: OrderedDict[TenantId, TemplateSet] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Templates of {len(self._sets)} tenants>"

    async def of(self, tenant: TenantId) -> TemplateSet:
        """Return the tenant's templates as they are now.

        Raises:
            StoreUnavailable, WrongStore: from the store.
        """
        return await self._at(tenant, await self._stamps.ask(tenant))

    async def of_all(self, tenants: Sequence[TenantId]) -> dict[TenantId, TemplateSet]:
        """Return the templates of several tenants as they are now.

        Raises:
            StoreUnavailable, WrongStore: from the store.
        """
        stamps = await asyncio.gather(*map(self._stamps.ask, tenants))
        return {tenant: await self._at(tenant, stamp) for tenant, stamp in zip(tenants, stamps, strict=True)}

    async def _read_stamps(self, tenants: Sequence[TenantId]) -> list[Stamp]:
        return await self._log.stamps([ResourceKey(tenant, TEMPLATES) for tenant in tenants])

    async def _at(self, tenant: TenantId, stamp: Stamp) -> TemplateSet:
        kept = self._sets.get(tenant)
        if kept is not None and kept.stamp == stamp:
            self._sets.move_to_end(tenant)
            return kept
        if stamp.revision == ABSENT:
            return TemplateSet(stamp)
        # What changes between the question above and this one has a later revision: it is read again.
        made = _parsed(stamp, await registry.templates(self._redis, self._keys, tenant))
        self._sets[tenant] = made
        self._sets.move_to_end(tenant)
        if len(self._sets) > MAX_TENANTS:
            self._sets.popitem(last=False)
        return made


def _parsed(stamp: Stamp, declared: list[Declared]) -> TemplateSet:
    parsed: list[tuple[UriTemplate, Declared]] = []
    fixed: dict[str, Declared] = {}
    for one in declared:
        if not one.declaration.is_template:
            fixed[one.declaration.uri] = one
            continue
        try:
            parsed.append((UriTemplate.parse(one.declaration.uri), one))
        except BrokerError:
            # A newer release may know shapes that we do not; what it serves, its own replicas answer.
            continue
    parsed.sort(key=lambda pair: pair[0].specificity)
    return TemplateSet(stamp, tuple(parsed), fixed, TemplateIndex([template for template, _ in parsed]))
