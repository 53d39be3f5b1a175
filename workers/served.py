"""What can be served: a `Worker`, or something that behaves like one."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from broker.core.declaration import CallRequest, CallResult, Declaration
from broker.core.identity import TenantId


class Served(Protocol):
    """What is served: a `Worker`, or something that behaves like one."""

    name: str
    tenants: tuple[TenantId, ...]

    def declarations(self) -> list[Declaration]:
        """Return what is served now."""
        ...

    def renewals(self, uri: str) -> int:
        """Return how often `uri` was declared or enabled: each time it is meant, whatever was before."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], object]:
        """Call `callback` whenever `declarations` may have changed."""
        ...

    def route(self, uri: str) -> str | None:
        """Return which declaration answers for `uri`."""
        ...

    def watched(self, declared: str, uri: str, tenant: str) -> Awaitable[None]:
        """Tell that `uri` has a watcher; never raises."""
        ...

    def unwatched(self, declared: str, uri: str, tenant: str) -> Awaitable[None]:
        """Tell that `uri` has no watcher any more; never raises."""
        ...

    def is_crowded(self, request: CallRequest) -> bool:
        """Whether the function that answers would have to wait for a thread."""
        ...

    def call(self, request: CallRequest) -> Awaitable[CallResult]:
        """Return what a declared function answers; never raises."""
        ...
