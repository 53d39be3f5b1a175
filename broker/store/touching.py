"""Touching: "it changed", of any URI, told to those who may read it and to nobody else.

What is required of whoever hears of a URI is stored beside it. Where nothing is stored, a template may answer
for it, and then it is the template's rule that counts: it travels in the call, with the revision of the
templates from which it was taken. The script refuses a call that knows other templates than there are, and it
is decided anew; so no cue leaves by a rule that was replaced.
"""

from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from broker.core.declaration import Declaration
from broker.core.errors import BrokerError, Unavailable
from broker.core.identity import TEMPLATES, ResourceKey, TenantId, check_uri
from broker.core.uri_template import UriTemplate
from broker.store import publishing
from broker.store.client import Client
from broker.store.keys import Keys
from broker.store.publishing import Outcome, TemplateRule
from broker.store.scripts import Call, run, run_sync, script

ATTEMPTS = 5
MAX_TENANTS = 1000


@dataclass(frozen=True, slots=True)
class TemplateRules:
    """What a tenant's templates require, the most specific first, as of a revision ("n.mark")."""

    at: str = "."
    ordered: tuple[tuple[UriTemplate, frozenset[str]], ...] = ()

    def of(self, uri: str) -> TemplateRule:
        """Return what is required of whoever hears of `uri`, if a template answers for it."""
        for template, rule in self.ordered:
            if template.match(uri) is not None:
                return TemplateRule(self.at, " ".join(sorted(rule)))
        return TemplateRule(self.at, None)


class Rules:
    """The template rules that one process knows, by tenant; they may be old, and are then read again."""

    def __init__(self) -> None:
        self._known: OrderedDict[TenantId, TemplateRules] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Rules of {len(self._known)} tenants>"

    def touch(
        self, keys: Keys, key: ResourceKey, **how: Any
    ) -> Generator[Call[Outcome | None] | Call[TemplateRules], Any, Outcome]:
        """Yield the calls that touching `key` takes, take the answer of each, and return the outcome.

        Raises:
            BadRequest: not a URI, or a bad idempotency key.
            Unavailable: the templates change all the time.
        """
        check_uri(key.uri)
        for _ in range(ATTEMPTS):
            rules = self._known.get(key.tenant, TemplateRules())
            outcome: Outcome | None = yield publishing.touch(keys, key, rule=rules.of(key.uri), **how)
            if outcome is not None:
                return outcome
            self._learn(key.tenant, (yield template_rules(keys, key.tenant)))
        raise Unavailable("The templates of this tenant change all the time; try again in a moment.")

    def _learn(self, tenant: TenantId, rules: TemplateRules) -> None:
        self._known[tenant] = rules
        self._known.move_to_end(tenant)
        if len(self._known) > MAX_TENANTS:
            self._known.popitem(last=False)


async def touch(redis: Client, rules: Rules, keys: Keys, key: ResourceKey, **how: Any) -> Outcome:
    """Announce that `key` changed; `how` as publishing.touch.

    Raises:
        BadRequest, Conflict, Unavailable: as there and as scripts.run.
    """
    steps = rules.touch(keys, key, **how)
    answer: Any = None
    while True:
        try:
            call: Call[Any] = steps.send(answer)
        except StopIteration as done:
            return done.value
        answer = await run(redis, call)


def touch_sync(redis: Any, rules: Rules, keys: Keys, key: ResourceKey, **how: Any) -> Outcome:
    """Do what `touch` does, in a thread that may block.

    Raises:
        BadRequest, Conflict, Unavailable: as there.
    """
    steps = rules.touch(keys, key, **how)
    answer: Any = None
    while True:
        try:
            call: Call[Any] = steps.send(answer)
        except StopIteration as done:
            return done.value
        answer = run_sync(redis, call)


def template_rules(keys: Keys, tenant: TenantId) -> Call[TemplateRules]:
    """Decide to read what a tenant's templates require."""
    names = (keys.templates(tenant), keys.resource(ResourceKey(tenant, TEMPLATES)))
    return Call(script("template_rules"), names, (), _rules)


def _rules(reply: list[bytes]) -> TemplateRules:
    at, *values = reply
    found: list[tuple[UriTemplate, frozenset[str]]] = []
    for value in values:
        try:
            declaration = Declaration.decode(value.partition(b"\n")[2])
            if declaration.is_template:
                found.append((UriTemplate.parse(declaration.uri), declaration.scopes))
        except (ValueError, BrokerError):
            # Of a newer release, or no template at all: nobody of ours reads by it either.
            continue
    found.sort(key=lambda pair: pair[0].specificity)
    return TemplateRules(at.decode(), tuple(found))
