"""What an author's function takes, held against what its URI gives; checked at import time.

1. The variables of a template and the parameters of its function have the same names, all of them; a
   parameter annotated with `Context` is beside the point. A variable of the query may be missing in a URI,
   so its parameter has a default.
2. A value is converted to the type that its parameter is annotated with, by pydantic. One that does not
   convert names no resource: `users://seven` is unknown where user ids are numbers.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from broker.core.errors import InvalidDeclaration, NotFound
from broker.core.uri_grammar import Variable
from broker.core.uri_template import Value
from workers.context import Context

Function = Callable[..., Any]

_SCALARS = (str, int, float, bool, bytes)
_LISTS = (list, tuple, set, frozenset)


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of one function: its own ones in order, and the one that takes the context."""

    shown: str
    """The function's name, for sentences."""
    parameters: Mapping[str, inspect.Parameter]
    context: str | None

    @classmethod
    def of(cls, function: Function) -> "Signature":
        """Return the signature of `function`.

        Raises:
            InvalidDeclaration: it takes what cannot be given by name, or its annotations cannot be read.
        """
        shown = name_of(function) or repr(function)
        try:
            found = inspect.signature(function, eval_str=True).parameters
        except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
            raise InvalidDeclaration(
                f"The annotations of {shown} cannot be read ({error}); import what they name at run time, "
                "not only for type checkers."
            ) from None
        for each in found.values():
            if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                raise InvalidDeclaration(
                    f"{shown} takes {each}, which cannot be given by name; write the parameters one by one."
                )
        contexts = [name for name, each in found.items() if _is_context(each.annotation)]
        if len(contexts) > 1:
            raise InvalidDeclaration(f"{shown} takes the Context twice, as {' and '.join(contexts)}.")
        rest = {name: each for name, each in found.items() if name not in contexts}
        return cls(shown, rest, contexts[0] if contexts else None)

    def given(self, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Return `arguments` with the context, where the function takes it."""
        return dict(arguments) if self.context is None else {**arguments, self.context: context}

    def positional(self, what: str, least: int, most: int) -> tuple[str, ...]:
        """Return the names of the parameters of a callback that takes `least` to `most` of them.

        Raises:
            InvalidDeclaration: it takes another number.
        """
        names = tuple(self.parameters)
        required = [name for name, each in self.parameters.items() if each.default is each.empty]
        if len(required) > most or len(names) < least:
            raise InvalidDeclaration(
                f"{self.shown} takes {_names(names)}; it is called with {what}, and a Context if it asks."
            )
        return names[:most]


@dataclass(frozen=True, slots=True)
class Binding:
    """How the values in a URI become a function's arguments."""

    signature: Signature
    adapters: Mapping[str, "TypeAdapter[Any] | None"]

    @classmethod
    def of(cls, signature: Signature, uri: str, variables: Iterable[Variable]) -> "Binding":
        """Return the binding of `variables`, which `uri` declares.

        Raises:
            InvalidDeclaration: names, defaults or types do not fit; the sentence names both sides.
        """
        declared = {variable.name: variable for variable in variables}
        taken = signature.parameters
        if declared.keys() != taken.keys():
            raise InvalidDeclaration(
                f"{uri!a} has the variables {_names(declared)}, but the function {signature.shown} takes the "
                f"parameters {_names(taken)}; both must have the same names."
            )
        adapters: dict[str, TypeAdapter[Any] | None] = {}
        for name, variable in declared.items():
            parameter = taken[name]
            if variable.is_optional and parameter.default is parameter.empty:
                raise InvalidDeclaration(
                    f"{uri!a} may be read without {{{variable.operator}{name}}}, but the parameter {name} of "
                    f"{signature.shown} has no default; give it one."
                )
            adapters[name] = _adapter(signature.shown, variable, parameter.annotation)
        return cls(signature, adapters)

    def arguments(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return `values` as the function wants them.

        Raises:
            NotFound: one does not convert (rule 2).
        """
        return {name: _convert(name, value, self.adapters[name]) for name, value in values.items()}


def name_of(function: Function) -> str | None:
    """Return the name that `function` was defined with, None for a lambda and the like."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return None if name == "<lambda>" else name


def doc_of(function: Function) -> str | None:
    """Return the docstring of `function`, None if it has none."""
    while isinstance(function, functools.partial):
        function = function.func
    doc = getattr(function, "__doc__", None) if inspect.isroutine(function) else None
    return inspect.cleandoc(doc) if doc and doc.strip() else None


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return all(each is NoneType or _is_context(each) for each in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, Context)


def _names(names: Iterable[str]) -> str:
    return "{" + ", ".join(names) + "}"


def _adapter(shown: str, variable: Variable, annotation: Any) -> "TypeAdapter[Any] | None":
    """Return what converts to `annotation`, None where text stays text."""
    if annotation is inspect.Parameter.empty or annotation == (list[str] if variable.is_list else str):
        return None
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    kinds = _SCALARS if variable.is_list else _LISTS
    if plain in kinds or get_origin(plain) in kinds:
        raise InvalidDeclaration(
            f"The variable {variable.name} is {'a list' if variable.is_list else 'one text'}, but the "
            f"parameter {variable.name} of {shown} is annotated with {inspect.formatannotation(annotation)}."
        )
    try:
        return TypeAdapter(annotation)
    except (PydanticSchemaGenerationError, PydanticUserError):
        raise InvalidDeclaration(
            f"The parameter {variable.name} of {shown} is annotated with "
            f"{inspect.formatannotation(annotation)}, to which no text converts."
        ) from None


def _convert(name: str, value: Value, adapter: "TypeAdapter[Any] | None") -> Any:
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError:
        pass
    try:
        # Literals and enums of numbers are compared as they are; JSON reads the number first.
        if isinstance(value, str):
            return adapter.validate_json(value)
    except ValidationError:
        pass
    raise NotFound(f"The value of {name} is not of the type that is asked for.")
