"""The MCP endpoint: Streamable HTTP in both eras, on one path.

Each request is judged alone: Host and Origin, caller, method and media types, body, era; then the era's
module answers. A refusal raised anywhere becomes one JSON-RPC error with its status. Everything is decided
before the status line: a 200 event stream is sent only for an accepted request.
"""

import logging
import time
from typing import Any

from broker.core.access import READ
from broker.core.errors import (
    BadRequest,
    BrokerError,
    Forbidden,
    Misconfigured,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from broker.core.identity import Principal
from broker.http.address import endpoint
from broker.http.auth.gate import Gate
from broker.http.exchange import ClientGoneError, Exchange
from broker.http.handshake import HandshakeEra
from broker.http.modern import ModernEra
from broker.http.streams import Opened, carry
from broker.http.writer import MakeWriter
from broker.replica import Replica
from broker.telemetry import logging as events
from broker.telemetry import request, tracing
from broker.telemetry.catalogue import METHODS
from broker.telemetry.metrics import Metrics
from broker.telemetry.tracing import Tracing
from broker.wire import headers, jsonrpc
from broker.wire.cue import Cue
from broker.wire.era import SESSION_HEADER, Era, choose
from broker.wire.headers import Perimeter
from broker.wire.refusal import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Refusal,
)

_log = logging.getLogger(__name__)

SHOWN_OF_SESSION = 6
"""Characters of a session's id that events show: enough to follow one, too few to use it."""

LISTEN = "subscriptions/listen"
"""A stream, not a request that is answered."""

REASONS = {
    PARSE_ERROR: "parse_error",
    INVALID_REQUEST: "invalid_request",
    METHOD_NOT_FOUND: "method_not_found",
    INVALID_PARAMS: "invalid_params",
    INTERNAL_ERROR: "internal",
}
"""JSON-RPC's codes as words; a dialect's own codes are "protocol"."""

_REFUSED: tuple[tuple[type[BrokerError], int, int], ...] = (
    (BadRequest, 400, INVALID_REQUEST),
    (Unauthenticated, 401, INVALID_REQUEST),
    (Forbidden, 403, INVALID_REQUEST),
    (NotFound, 404, INVALID_REQUEST),
    (Unavailable, 503, INTERNAL_ERROR),
)
"""How a caller is refused at the gate, before any era is known."""


class McpEndpoint:
    """An ASGI app for the MCP addresses (address.py)."""

    def __init__(
        self,
        replica: Replica[Cue],
        modern: ModernEra,
        handshake: HandshakeEra,
        gate: Gate,
        perimeter: Perimeter,
        *,
        max_body_bytes: int,
        body_seconds: float,
        make_writer: MakeWriter,
        metrics: Metrics,
        traces: Tracing,
    ) -> None:
        self._replica = replica
        self._modern = modern
        self._handshake = handshake
        self._gate = gate
        self._perimeter = perimeter
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds
        self._make_writer = make_writer
        self._metrics = metrics
        self._traces = traces

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        exchange = Exchange(scope, receive, send, self._make_writer)
        exchange.extra.extend(headers.cors(exchange.headers, self._perimeter))
        try:
            opened = await self._serve(exchange)
            if opened is not None:
                await carry(exchange, self._replica, opened)
        except Refusal as refusal:
            self._metrics.request_refused(_reason(refusal))
            if isinstance(refusal.__cause__, Misconfigured):
                _log.error("store_misconfigured", extra={"why": str(refusal.__cause__)})
            _name_request(exchange)
            await exchange.refuse(refusal)
        except ClientGoneError:
            return
        except Exception:
            self._metrics.request_failed()
            if exchange.is_started:
                raise
            _log.exception("request_failed", extra={"method": exchange.method})
            _name_request(exchange)
            why = f"The broker failed; its log says why, under the request's id {request.current()}."
            await exchange.refuse(Refusal(500, INTERNAL_ERROR, why))

    async def _serve(self, exchange: Exchange) -> Opened[Cue] | None:
        headers.check_host(exchange.headers, self._perimeter)
        headers.check_origin(exchange.headers, self._perimeter)
        if exchange.method == "OPTIONS":
            exchange.extra.clear()
            await exchange.nothing(204, headers.preflight(exchange.headers, self._perimeter))
            return None
        who = await self._principal(exchange)
        session = exchange.headers.get(SESSION_HEADER, "")[:SHOWN_OF_SESSION]
        events.bind(tenant=who.tenant, **({"session": session} if session else {}))
        if exchange.method == "POST":
            return await self._post(exchange, who)
        choose(exchange.method, exchange.headers)
        if exchange.method == "GET":
            return await self._handshake.get(exchange, who)
        await self._handshake.delete(exchange, who)
        return None

    async def _principal(self, exchange: Exchange) -> Principal:
        address = endpoint(exchange.scope)
        tenant = None if address is None else address.tenant
        try:
            return await self._gate.admit(exchange.headers, READ, tenant)
        except BrokerError as error:
            status, code = next(
                ((status, code) for kind, status, code in _REFUSED if isinstance(error, kind)),
                (500, INTERNAL_ERROR),
            )
            challenge = self._gate.challenge(error, tenant)
            with_it = () if challenge is None else ((b"www-authenticate", challenge),)
            if isinstance(error, Unavailable):
                with_it = ((b"retry-after", b"1"),)
            raise Refusal(status, code, error.public, headers=with_it) from error

    async def _post(self, exchange: Exchange, who: Principal) -> Opened[Cue] | None:
        headers.check_content_type(exchange.headers)
        message = jsonrpc.parse(await exchange.body(self._max_body_bytes, self._body_seconds))
        era = choose("POST", exchange.headers, message)
        method = message.method if isinstance(message, jsonrpc.Request) else ""
        serve = self._modern.post if era is Era.MODERN else self._handshake.post
        if method == LISTEN:
            # It lives for hours: no span, and no time to be compared with others'.
            return await serve(exchange, who, message)
        started = time.perf_counter()
        meta = message.params.get("_meta") if isinstance(message, jsonrpc.Request) else None
        context = tracing.carried(exchange.headers, meta) if self._traces.is_on else {}
        name = method if method in METHODS else era.value
        with self._traces.span(name, context, mcp_era=era.value, broker_tenant=who.tenant):
            await serve(exchange, who, message)
        if method:
            self._metrics.request_answered(era.value, method, time.perf_counter() - started)
        return None


def _name_request(exchange: Exchange) -> None:
    """Give the request's id to whoever is refused, so that they can tell us which it was."""
    exchange.extra.append((request.HEADER.encode(), request.current().encode()))


def _reason(refusal: Refusal) -> str:
    """Return why a request was refused, as a metric label: the broker's own error, else JSON-RPC's."""
    cause = refusal.__cause__
    return cause.reason if isinstance(cause, BrokerError) else REASONS.get(refusal.code, "protocol")
