"""Open streams, as an operator at this machine sees them: who watches how much, and ending one.

On the internal port, and for callers of this machine only (`kubectl exec`, a shell on the host): it names
tenants and ends streams, and the internal port asks nobody who he is. Never contents, never session ids.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from broker.streams.connection import CloseReason, Connection


class StreamDesk:
    """Lists and ends the streams of one replica; `connections` gives those that are open."""

    def __init__(
        self, connections: Callable[[], Iterable[Connection[Any]]], retry_ms: Callable[[], int]
    ) -> None:
        self._connections = connections
        self._retry_ms = retry_ms
        self._numbers: WeakKeyDictionary[Connection[Any], int] = WeakKeyDictionary()
        self._last = 0

    def listed(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Return the streams (of one tenant), those that watch most first."""
        found = [
            {
                "stream": self._number(connection),
                "tenant": connection.principal.tenant,
                "subject": connection.principal.subject,
                "watches": len(connection.topics),
                "waiting": len(connection.backlog),
                "blocked": connection.writer is not None and connection.writer.is_blocked,
                "ending": connection.ending,
            }
            for connection in self._connections()
            if tenant is None or connection.principal.tenant == tenant
        ]
        return sorted(found, key=lambda each: (-each["watches"], each["stream"]))

    def cut(self, number: int) -> bool:
        """End a stream cleanly; its client may come back. False if there is none of that number."""
        for connection in self._connections():
            if self._numbers.get(connection) == number:
                connection.end(CloseReason.CUT, self._retry_ms())
                return True
        return False

    def _number(self, connection: Connection[Any]) -> int:
        number = self._numbers.get(connection)
        if number is None:
            self._last += 1
            number = self._numbers[connection] = self._last
        return number


def is_near(client: Any) -> bool:
    """Whether an ASGI scope's client is on this machine."""
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
