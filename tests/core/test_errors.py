"""The tree of errors is the one printed at the top of its module."""

import inspect
import re

from broker.core import errors
from broker.core.errors import BrokerError, InvalidUri, Unavailable


def _classes() -> dict[str, type[BrokerError]]:
    members = inspect.getmembers(errors, inspect.isclass)
    return {name: each for name, each in members if issubclass(each, BrokerError)}


def _printed() -> dict[str, str]:
    """Return child → parent as the charter draws them."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([ │├└─]*)([A-Z]\w+)", line)
        if not found:
            continue
        depth, name = len(found[1]), found[2]
        while path and path[-1][0] >= depth:
            path.pop()
        parents[name] = path[-1][1] if path else "Exception"
        path.append((depth, name))
    return parents


def test_the_tree_in_the_charter_is_the_tree() -> None:
    assert _printed() == {name: each.__mro__[1].__name__ for name, each in _classes().items()}


def test_every_reason_is_a_metric_label_of_its_own() -> None:
    reasons = [each.reason for each in _classes().values()]
    assert len(set(reasons)) == len(reasons)
    assert all(re.fullmatch(r"[a-z_]+", reason) for reason in reasons)


def test_only_what_is_unavailable_may_be_sent_again_as_it_is() -> None:
    assert all(each.retryable == issubclass(each, Unavailable) for each in _classes().values())


def test_a_long_uri_is_not_repeated_in_full() -> None:
    assert len(str(InvalidUri("x" * 100_000, "it is too long"))) < 200
