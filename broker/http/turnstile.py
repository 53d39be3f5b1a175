"""Refuses over-limit publishes before anything is done for them: no routing, no body, no Redis.

A publisher that hammers costs its neighbours what each of its refusals costs: through FastAPI, the decoding
and the script that was several times what it is here. The caller is looked up as always, which a replica
remembers for a moment, so an unknown one is never told of anybody's limits; whatever else is wrong with the
request is the router's to say.
"""

from typing import Any

from broker.core.access import PUBLISH
from broker.core.errors import BrokerError, LimitReached
from broker.http import answers
from broker.http.auth.gate import Gate
from broker.http.exchange import joined
from broker.telemetry.metrics import Metrics
from broker.tenants.publishes import Publishes
from broker.wire.headers import Perimeter

CHARGED = frozenset(
    {("PUT", "/v1/resources"), ("POST", "/v1/publish"), ("POST", "/v1/touch")},
)
"""What the rates of publishing are charged for."""


class Turnstile:
    """Stands before the publishing API."""

    def __init__(self, gate: Gate, publishes: Publishes, perimeter: Perimeter, metrics: Metrics) -> None:
        self._gate = gate
        self._publishes = publishes
        self._perimeter = perimeter
        self._metrics = metrics

    async def refuses(self, scope: Any, receive: Any, send: Any) -> bool:
        """Answer a request that is over a limit that is known to be reached; False lets it pass."""
        if not self._publishes.has_closed or (scope["method"], scope["path"]) not in CHARGED:
            return False
        headers = joined(scope["headers"])
        if not self._perimeter.has_host(headers.get("host", "")) or "origin" in headers:
            return False
        try:
            self._publishes.check(await self._gate.admit(headers, PUBLISH))
        except LimitReached as error:
            self._metrics.request_refused(error.reason)
            await answers.refused(error)(scope, receive, send)
            return True
        except BrokerError:
            pass
        return False
