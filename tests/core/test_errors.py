"""The tree of errors is the one printed at the top of its module."""

import inspect
import re

import pytest

from broker.core import errors
from broker.core.errors import (
    BrokerError,
    InvalidUri,
    Misconfigured,
    StoreUnavailable,
    Unavailable,
    WrongStore,
)
from broker.wire import handshake, modern


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


@pytest.mark.parametrize("kind", [StoreUnavailable, WrongStore, Misconfigured])
def test_what_names_the_installation_is_not_told_to_clients(kind: type[BrokerError]) -> None:
    """Both eras told clients "Error 111 connecting to 10.0.0.5:6379", and names of keys."""
    secret = "Error 111 connecting to 10.0.0.5:6379, key mrb:{8.20}:res:acme"
    error = kind(secret)
    assert str(error) == secret
    for answer in (modern.refused(1, error), handshake.refused(1, error)):
        assert b"10.0.0.5" not in answer.body()
        assert b"mrb:" not in answer.body()
        assert error.public.encode() in answer.body()
        assert error.public.endswith(".")
