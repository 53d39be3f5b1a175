"""The params that both eras share, read strictly. What an unfit one costs is the dialect's to say."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from broker.core.errors import SHOWN, BrokerError, InvalidUri, LimitReached
from broker.core.identity import check_uri
from broker.wire.operations import Complete

MAX_NAME = 1024
"""Characters of a completion's reference, argument names and values."""


MAX_VALUES = 100
"""Values of one completion (both eras, "CompleteResult")."""


class UnfitParams(ValueError):
    """The params are not what the method takes; the message is a sentence for a person."""


def text(params: Mapping[str, Any], name: str) -> str:
    """Return a required string.

    Raises:
        UnfitParams: missing, or of another type.
    """
    value = params.get(name)
    if not isinstance(value, str):
        raise UnfitParams(f'"{name}" must be a string.')
    return value


def members(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a required object.

    Raises:
        UnfitParams: missing, or of another type.
    """
    value = params.get(name)
    if not isinstance(value, dict):
        raise UnfitParams(f'"{name}" must be an object.')
    return cast("dict[str, Any]", value)


def cursor(params: Mapping[str, Any]) -> str | None:
    """Return the cursor of a list request; an empty one is a cursor, and not one of ours.

    Raises:
        UnfitParams: of another type than string; null is one.
    """
    return text(params, "cursor") if "cursor" in params else None


def uri(params: Mapping[str, Any]) -> str:
    """Return a required URI that can name a resource, exactly as the client wrote it.

    Raises:
        UnfitParams: missing or not a string.
        InvalidUri: a string that cannot name a resource.
    """
    return check_uri(text(params, "uri"))


def uris(values: object, name: str) -> tuple[str, ...]:
    """Return the URIs of a list, each once, in their order.

    Raises:
        UnfitParams: not a list of strings.
        InvalidUri: one of them cannot name a resource.
    """
    if not isinstance(values, list):
        raise UnfitParams(f'"{name}" must be a list of URIs.')
    seen: dict[str, None] = {}
    for value in cast("list[Any]", values):
        if not isinstance(value, str):
            raise UnfitParams(f'"{name}" must be a list of URIs; each must be a string.')
        seen[check_uri(value)] = None
    return tuple(seen)


def complete(params: Mapping[str, Any]) -> Complete:
    """Read completion/complete.

    Raises:
        UnfitParams: a reference, argument or context that is not what the method takes.
    """
    ref = members(params, "ref")
    argument = members(params, "argument")
    kind, name = _reference(ref)
    read = Complete(kind, name, text(argument, "name"), text(argument, "value"), _context(params))
    everything = (read.ref, read.argument, read.value, *read.arguments, *read.arguments.values())
    if any(len(part) > MAX_NAME for part in everything):
        raise UnfitParams(f"Names and values of a completion have at most {MAX_NAME} characters.")
    return read


def _reference(ref: Mapping[str, Any]) -> tuple[Literal["ref/resource", "ref/prompt"], str]:
    kind = text(ref, "type")
    if kind == "ref/resource":
        return "ref/resource", text(ref, "uri")
    if kind == "ref/prompt":
        return "ref/prompt", text(ref, "name")
    raise UnfitParams('"ref" must be of type "ref/resource" or "ref/prompt".')


def _context(params: Mapping[str, Any]) -> dict[str, str]:
    """The values already chosen for other variables; the context and its arguments are optional."""
    if "context" not in params:
        return {}
    context = members(params, "context")
    if "arguments" not in context:
        return {}
    arguments = members(context, "arguments")
    if not all(isinstance(value, str) for value in arguments.values()):
        raise UnfitParams('Each value of "context.arguments" must be a string.')
    return arguments


def shown_uri(problem: InvalidUri) -> dict[str, str] | None:
    """The `data` that names an invalid URI, unless it is too long to be worth sending back."""
    return {"uri": problem.uri} if len(problem.uri) <= MAX_NAME else None


def shown(text: str) -> str:
    """A client's string in a sentence: quoted, ASCII, and not longer than a line."""
    return ascii(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")


def kind(error: BrokerError) -> dict[str, object]:
    """The `data` of an error that is not the request's fault: a machine's word, and whether to try again."""
    said: dict[str, object] = {"reason": error.reason, "retryable": error.retryable}
    if isinstance(error, LimitReached) and error.retry_after is not None:
        said["retryAfterMs"] = int(error.retry_after * 1000)
    return said


def completion(values: Sequence[str], total: int | None, has_more: bool | None) -> dict[str, object]:  # noqa: FBT001 - a member of the result
    """The `completion` object of both eras: at most 100 values, and more where some were left out."""
    body: dict[str, object] = {"values": list(values[:MAX_VALUES])}
    if total is not None:
        body["total"] = total
    if has_more is not None or len(values) > MAX_VALUES:
        body["hasMore"] = bool(has_more) or len(values) > MAX_VALUES
    return body
