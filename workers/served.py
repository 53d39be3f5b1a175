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

    def on_change(self, callback: Callable[[], None]) -> Callable[[], object]:
        """Call `callback` whenever `declarations` may have changed."""
        ...

    def call(self, request: CallRequest) -> Awaitable[CallResult]:
        """Return what a declared function answers; never raises."""
        ...
