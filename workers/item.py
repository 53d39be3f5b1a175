"""What is said about a publish, and what became of it: the words of `Publisher` for its callers."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from broker.core.errors import BrokerError
from broker.core.publication import Description
from broker.store.publishing import Expect, Outcome

Progress = Callable[[int, int | None], None]
"""Called with how many items are done and how many there are, None where that is unknown."""


class Terms(TypedDict, total=False):
    """Under which conditions, and for how long, something is published; all of it optional.

    `version` is your own number, 0 to 2^53 - 1: older and equal ones are superseded. `idempotency_key` makes
    a repeated call answer "replayed" for 24 hours. `expires_in` is a lifetime, in seconds if it is a number.
    `expect` is the revision that must be there (`Outcome.stamp`), "exists" or "absent"; else Conflict.
    `wait_replicas` waits until that many replicas of Redis have it as well, for at most `wait_ms` (1000);
    else NotReplicated, and the same call may be repeated.
    """

    version: int | None
    idempotency_key: str | None
    expires_in: timedelta | float | None
    expect: Expect | None
    wait_replicas: int | None
    wait_ms: int | None


class How(Description, Terms, total=False):
    """Everything that may be said about a publish beside its URI and contents."""


class Item:
    """One resource for `publish_many`; the arguments of `publish`."""

    __slots__ = ("contents", "how", "uri")

    def __init__(self, uri: str, contents: Any, **how: Unpack[How]) -> None:
        self.uri = uri
        self.contents = contents
        self.how = how

    def __repr__(self) -> str:
        return f"<Item {self.uri!a}>"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one item: an outcome, or the error that refused it."""

    uri: str
    outcome: Outcome | None
    error: BrokerError | None
