"""The MCP endpoint: Streamable HTTP in both eras, on one path.

Each request is judged alone: Host and Origin, caller, method and media types, body, era; then the era's
module answers. A refusal raised anywhere becomes one JSON-RPC error with its status. Everything is decided
before the status line: a 200 event stream is sent only for an accepted request.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from broker.core.errors import BadRequest, BrokerError
from broker.core.identity import Principal
from broker.http.exchange import ClientGoneError, Exchange
from broker.http.handshake import HandshakeEra
from broker.http.modern import ModernEra
from broker.telemetry.metrics import Metrics
from broker.wire import headers, jsonrpc
from broker.wire.era import Era, choose
from broker.wire.headers import Perimeter
from broker.wire.refusal import INTERNAL_ERROR, INVALID_REQUEST, Refusal

_log = logging.getLogger(__name__)

Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal]]


class McpEndpoint:
    """An ASGI app for the MCP path."""

    def __init__(
        self,
        modern: ModernEra,
        handshake: HandshakeEra,
        authenticate: Authenticate,
        perimeter: Perimeter,
        *,
        max_body_bytes: int,
        metrics: Metrics,
    ) -> None:
        self._modern = modern
        self._handshake = handshake
        self._authenticate = authenticate
        self._perimeter = perimeter
        self._max_body_bytes = max_body_bytes
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        exchange = Exchange(scope, receive, send)
        exchange.extra.extend(headers.cors(exchange.headers, self._perimeter))
        try:
            await self._serve(exchange)
        except Refusal as refusal:
            self._metrics.request_refused(str(refusal.code))
            await exchange.refuse(refusal)
        except ClientGoneError:
            return
        except Exception:
            if exchange.is_started:
                raise
            _log.exception("request_failed", extra={"method": exchange.method})
            await exchange.refuse(Refusal(500, INTERNAL_ERROR, "The broker failed; its log says why."))

    async def _serve(self, exchange: Exchange) -> None:
        headers.check_host(exchange.headers, self._perimeter)
        headers.check_origin(exchange.headers, self._perimeter)
        if exchange.method == "OPTIONS":
            exchange.extra.clear()
            await exchange.nothing(204, headers.preflight(exchange.headers, self._perimeter))
            return
        who = await self._principal(exchange)
        if exchange.method == "POST":
            await self._post(exchange, who)
            return
        choose(exchange.method, exchange.headers)
        if exchange.method == "GET":
            await self._handshake.get(exchange, who)
        else:
            await self._handshake.delete(exchange, who)

    async def _principal(self, exchange: Exchange) -> Principal:
        try:
            return await self._authenticate(exchange.headers)
        except BadRequest as error:
            raise Refusal(400, INVALID_REQUEST, str(error)) from error
        except BrokerError as error:
            raise Refusal(503, INTERNAL_ERROR, str(error)) from error

    async def _post(self, exchange: Exchange, who: Principal) -> None:
        headers.check_content_type(exchange.headers)
        message = jsonrpc.parse(await exchange.body(self._max_body_bytes))
        if choose("POST", exchange.headers, message) is Era.MODERN:
            await self._modern.post(exchange, who, message)
        else:
            await self._handshake.post(exchange, who, message)
