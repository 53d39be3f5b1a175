"""What both eras ask in the same words: the requests whose params do not depend on the dialect.

A decoder turns params into an operation, or raises `UnfitParams` or `InvalidUri`; what that is answered with
is the dialect's business.
"""

from collections.abc import Callable, Mapping
from typing import Any

from broker.wire import params
from broker.wire.operations import ListPrompts, ListResources, ListTemplates, ListTools, Operation, Read
from broker.wire.server import Offers

Decoder = Callable[[dict[str, Any]], Operation]


def is_offered(method: str, offers: Offers) -> bool:
    """Whether the settings offer `method`; what they say nothing about is."""
    return {
        "tools/list": offers.has_empty_tools,
        "prompts/list": offers.has_empty_prompts,
        "completion/complete": offers.has_completions,
        "logging/setLevel": offers.has_logging,
    }.get(method, True)


def _list_resources(given: dict[str, Any]) -> ListResources:
    return ListResources(params.cursor(given))


def _list_templates(given: dict[str, Any]) -> ListTemplates:
    return ListTemplates(params.cursor(given))


def _list_tools(given: dict[str, Any]) -> ListTools:
    params.cursor(given)
    return ListTools()


def _list_prompts(given: dict[str, Any]) -> ListPrompts:
    params.cursor(given)
    return ListPrompts()


def _read(given: dict[str, Any]) -> Read:
    """An invalid URI cannot be found; it gets the code of one that is not, and says what is wrong."""
    return Read(params.uri(given))


SHARED: Mapping[str, Decoder] = {
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read,
    "completion/complete": params.complete,
    "tools/list": _list_tools,
    "prompts/list": _list_prompts,
}
