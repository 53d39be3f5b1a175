"""What a worker declares: a function under a URI or a template, and the callbacks beside it.

Everything is checked when it is declared, so a mistake ends the import and not a client's read. A function
runs when its resource is read, never when it is listed.
"""

import inspect
import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict, cast

from broker.core.declaration import MAX_COMPLETIONS, Contents, Declaration, Instances, Values
from broker.core.errors import BadRequest, BrokerError, InvalidContents, InvalidDeclaration, NotFound
from broker.core.identity import check_uri
from broker.core.publication import CacheScope, check_rule, encode_contents, encode_meta
from broker.core.uri_template import BadValue, UriTemplate, is_template
from workers.context import Context
from workers.paths import refusal
from workers.signature import Binding, Function, Signature, doc_of, name_of

log = logging.getLogger(__name__)

MAX_INSTANCES = 100_000
"""How many instances a list callback may return; pages of resources/list are cut from all of them."""
MAX_COUNTED = 100_000
"""How many values a completion callback may return to be counted; clients get the first hundred."""


class About(TypedDict, total=False):
    """What lists show of a resource; name and description come from the function where they are left out."""

    name: str | None
    title: str | None
    description: str | None
    mime_type: str | None
    annotations: Any
    icons: Any
    size: int | None


@dataclass(frozen=True, slots=True)
class Terms:
    """How a resource may be read, cached and shared."""

    ttl: timedelta | float | None = None
    cache_scope: CacheScope | None = None
    scopes: Iterable[str] = ()
    subjects: Iterable[str] | None = None
    personal: bool | None = None
    safe: bool = True
    exempt: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """One resource of a template, for resources/list; what is left out is as the template says.

    The title is not inherited: it would be the same for all.
    """

    uri: str
    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Any = None
    icons: Any = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Values for a variable, where there are more than are given."""

    values: Iterable[str]
    total: int | None = None
    has_more: bool | None = None


@dataclass
class Resource:
    """One declared URI or template, with its functions."""

    uri: str
    template: UriTemplate | None
    function: Function
    about: About
    terms: Terms
    binding: Binding
    lister: "Callback | None" = None
    completers: "dict[str, Callback]" = field(default_factory=dict[str, "Callback"])
    watchers: "dict[bool, Callback]" = field(default_factory=dict[bool, "Callback"])
    """By True for the first watcher's coming, False for the last one's leaving."""
    is_enabled: bool = True
    declaration: Declaration = field(init=False)
    """What brokers are told; made anew by `settle`, since it is asked for at every call."""

    @classmethod
    def of(
        cls, uri: str, function: Function, about: About, terms: Terms, lister: Function | None
    ) -> "Resource":
        """Return the resource that `function` serves as `uri`.

        Raises:
            BadRequest: something of it cannot be; the sentence says what to change.
        """
        template = UriTemplate.parse(uri) if is_template(uri) else None
        if template is None:
            check_uri(uri)
        signature = Signature.of(function)
        binding = Binding.of(signature, uri, template.variables if template else ())
        made = cls(uri, template, function, _about(uri, function, about), terms, binding)
        if lister is not None:
            made.lister = Callback.of(lister, "nothing", 0)
        made.settle()
        return made

    def settle(self) -> None:
        """Make the declaration, and refuse what contradicts itself.

        Raises:
            BadRequest: as `of`.
        """
        variables = {variable.name for variable in self.template.variables} if self.template else set[str]()
        unknown = set(self.terms.exempt) - variables
        if unknown:
            raise InvalidDeclaration(
                f"{self.uri!a} exempts {', '.join(sorted(unknown))}, but has no such variable."
            )
        if self.template is not None and self.about.get("size") is not None:
            raise InvalidDeclaration(f"{self.uri!a} is a template: each of its instances has its own size.")
        if self.template is None and self.lister is not None:
            raise InvalidDeclaration(
                f"{self.uri!a} is one resource; only a template has a list of instances."
            )
        declared = self._declared()
        if declared.is_personal and declared.cache_scope == "public":
            raise InvalidDeclaration(
                f"{self.uri!a} takes the Context, so its result may depend on the caller; it cannot be "
                "cached for all (cache_scope public) unless you say personal=False."
            )
        self.declaration = declared

    def _declared(self) -> Declaration:
        is_personal = self.terms.personal
        if is_personal is None:
            callbacks = (self.lister, *self.completers.values())
            signatures = [self.binding.signature, *(each.signature for each in callbacks if each)]
            is_personal = any(each.context is not None for each in signatures)
        return Declaration(
            uri=self.uri,
            is_template=self.template is not None,
            meta=encode_meta(
                self.uri, self.about.get("mime_type"), self.about, is_template=self.template is not None
            ),
            ttl_ms=_milliseconds(self.terms.ttl),
            cache_scope=self.terms.cache_scope or ("private" if is_personal else None),
            scopes=frozenset(check_rule(self.terms.scopes, self.terms.subjects)),
            is_personal=is_personal,
            has_list=self.lister is not None,
            completes=tuple(sorted(self.completers)),
            wants_demand=bool(self.watchers),
        )

    def arguments(self, uri: str) -> dict[str, Any]:
        """Return the function's arguments for a read of `uri`.

        Raises:
            NotFound: `uri` does not belong here, is no safe path, or does not convert.
            BadRequest: a value in it is no text.
        """
        if self.template is None:
            if uri != self.uri:
                raise NotFound(f"{uri!a} is not {self.uri!a}.")
            return {}
        values = self.template.match(uri)
        if values is None:
            raise NotFound(f"{uri!a} does not fit {self.uri!a}.")
        if isinstance(values, BadValue):
            raise BadRequest(f"In {uri!a}, {values}.")
        if self.terms.safe:
            for variable in self.template.variables:
                self._check_path(
                    variable.name, values.get(variable.name, ()), is_path=not variable.is_optional
                )
        return self.binding.arguments(values)

    def _check_path(self, name: str, value: str | Iterable[str], *, is_path: bool) -> None:
        if name in self.terms.exempt:
            return
        for text in [value] if isinstance(value, str) else value:
            why = refusal(text, is_path=is_path)
            if why is not None:
                log.warning("path_refused", extra={"template": self.uri, "variable": name, "why": why})
                raise NotFound(f"The value of {name} is no safe path: {why}.")

    def contents(self, uri: str, result: Any, limit: int) -> Contents:
        """Return what a read of `uri` shows of the function's result.

        Raises:
            InvalidContents, TooLarge: the result cannot be shown.
        """
        return Contents(encode_contents(uri, result, self.about.get("mime_type"), limit)[0])

    def instances(self, result: Any) -> Instances:
        """Return what resources/list shows of the list callback's result.

        One bad instance is logged and left out; it does not take the list away from everybody.
        """
        metas: dict[str, bytes] = {}
        for each in _at_most(result, MAX_INSTANCES, f"The list of {self.uri!a}"):
            try:
                instance = _instance(each)
                self.arguments(instance.uri)
                metas.setdefault(instance.uri, self._instance_meta(instance))
            except BrokerError as error:
                log.error(  # noqa: TRY400 # the sentence says it; there is nothing to trace
                    "instance_left_out", extra={"template": self.uri, "why": str(error)}
                )
        return Instances(tuple(metas.values()))

    def _instance_meta(self, instance: Instance) -> bytes:
        about = {
            name: getattr(instance, name)
            for name in About.__annotations__
            if getattr(instance, name) is not None
        }
        inherited = {
            name: value for name, value in self.about.items() if name not in ("name", "title", "size")
        }
        shown: dict[str, Any] = {**inherited, **about}
        return encode_meta(check_uri(instance.uri), shown.get("mime_type"), shown)


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback beside a resource, called by position."""

    function: Function
    signature: Signature
    names: tuple[str, ...]

    @classmethod
    def of(cls, function: Function, what: str, most: int, least: int = 0) -> "Callback":
        """Return the callback, which is called with `what`.

        Raises:
            InvalidDeclaration: it takes something else.
        """
        signature = Signature.of(function)
        return cls(function, signature, signature.positional(what, least, most))

    def given(self, arguments: Iterable[Any], context: Context) -> dict[str, Any]:
        """Return the arguments by name: as many of `arguments` as it takes, and the context."""
        return self.signature.given(dict(zip(self.names, arguments, strict=False)), context)


def completion(result: Any) -> Values:
    """Return what a completion callback's result comes to: at most 100 values, and how many there are."""
    found = result if isinstance(result, Completion) else Completion(cast("Iterable[str]", result))
    values = tuple(_shown(each) for each in _at_most(found.values, MAX_COUNTED, "A completion"))
    total = found.total
    if total is None and not found.has_more:
        total = len(values)
    has_more = found.has_more
    if has_more is None:
        has_more = len(values) > MAX_COMPLETIONS or (total is not None and total > len(values))
    return Values(values[:MAX_COMPLETIONS], total, has_more or len(values) > MAX_COMPLETIONS)


def _at_most(found: Iterable[Any], most: int, what: str) -> list[Any]:
    """Return all of `found`, which may be a generator that never ends.

    Raises:
        InvalidContents: there are more than `most`.
    """
    taken = list(itertools.islice(found, most + 1))
    if len(taken) > most:
        raise InvalidContents(f"{what} returned more than {most} values; return fewer.")
    return taken


def _shown(value: Any) -> str:
    text = str(value)
    if not _is_text(text):
        raise InvalidContents(f"A completion returned {text!a}, half of a surrogate pair; return real text.")
    return text


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _about(uri: str, function: Function, about: About) -> About:
    name = about.get("name") or name_of(function)
    if name is None:
        raise InvalidDeclaration(f"The function of {uri!a} has no name of its own; declare it with name=…")
    said: dict[str, Any] = {**about, "name": name}
    if about.get("description") is None:
        said["description"] = doc_of(function)
    return cast("About", said)


def _instance(each: Any) -> Instance:
    if isinstance(each, Instance):
        return each
    if isinstance(each, str):
        return Instance(each)
    if isinstance(each, Mapping):
        try:
            return Instance(**cast("Mapping[str, Any]", each))
        except TypeError as error:
            raise InvalidDeclaration(f"{each!a} is no instance: {error}.") from None
    raise InvalidDeclaration(f"{each!a} is no instance: return URIs, Instance objects or mappings like them.")


def _milliseconds(ttl: timedelta | float | None) -> int | None:
    if ttl is None:
        return None
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidDeclaration(f"ttl is a time of 0 or more seconds, not {ttl}.")
    return math.ceil(seconds * 1000)


def is_awaited(function: Callable[..., Any]) -> bool:
    """Whether `function` is async, so that it may run on the event loop."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 # an object with an async __call__
    )
