"""Serves the modern era (2026-07-28): each request alone, and subscriptions/listen as a stream."""

from collections.abc import Mapping
from functools import partial

from broker.core.errors import BrokerError, LimitReached, Overloaded
from broker.core.identity import LIST, Principal, ResourceKey
from broker.core.revision import ABSENT, Revision, Stamp
from broker.http.catalog import Attend, Catalog
from broker.http.exchange import STREAM_HEADERS, Exchange
from broker.http.renderers import ListenRenderer
from broker.http.streams import Opened
from broker.replica import Replica
from broker.streams.connection import Connection
from broker.tenants.quotas import Quotas
from broker.wire import extension, headers, modern, sse
from broker.wire.cue import Cue
from broker.wire.encoding import RequestId
from broker.wire.jsonrpc import Message, Request
from broker.wire.operations import (
    Acknowledge,
    Complete,
    Discover,
    Listen,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    Operation,
    Read,
)
from broker.wire.server import Offers


class ModernEra:
    """The stateless side of the MCP endpoint."""

    def __init__(
        self, replica: Replica[Cue], catalog: Catalog, quotas: Quotas, offers: Offers, max_uris: int
    ) -> None:
        self._replica = replica
        self._catalog = catalog
        self._quotas = quotas
        self._offers = offers
        self._max_uris = max_uris

    async def post(
        self, exchange: Exchange, who: Principal, message: Message | list[Message]
    ) -> Opened[Cue] | None:
        """Answer one POST, or return the stream that it opens.

        Raises:
            Refusal: the answer is an error.
        """
        operation = modern.decode(message, exchange.headers, self._offers)
        if isinstance(operation, Acknowledge):
            await exchange.nothing(202)
            return None
        assert isinstance(message, Request)
        if isinstance(operation, Listen):
            return await self._listen(exchange, who, message.id, operation)
        form = headers.answer_form(exchange.headers)
        try:
            body = await self._answer(who, message.id, operation, exchange.attended)
        except BrokerError as error:
            raise modern.refused(message.id, error) from error
        await exchange.json(200, body, form)
        return None

    async def _answer(
        self, who: Principal, request_id: RequestId, operation: Operation, attend: Attend
    ) -> bytes:
        match operation:
            case Discover():
                return modern.discovered(request_id, offers=self._offers)
            case ListResources(cursor):
                page = await self._catalog.page(who, cursor, attend)
                return modern.listed(request_id, "resources", page.items, page.next_cursor)
            case ListTemplates(cursor):
                page = await self._catalog.templates(who, cursor)
                return modern.listed(request_id, "resourceTemplates", page.items, page.next_cursor)
            case ListTools():
                return modern.listed(request_id, "tools", ())
            case ListPrompts():
                return modern.listed(request_id, "prompts", ())
            case Complete():
                found = await self._catalog.complete(who, operation, attend)
                return modern.completed(request_id, found.values, found.total, found.has_more)
            case Read(uri):
                read = await self._catalog.read(who, uri, attend)
                # What was never touched has no revision.
                stamp = read.stamp if read.stamp.revision != ABSENT else None
                return modern.read(request_id, read.contents, read.ttl_ms, read.cache_scope, stamp)
            case _:
                raise AssertionError(f"no answer to {operation!r}")

    async def _listen(
        self, exchange: Exchange, who: Principal, request_id: RequestId, listen: Listen
    ) -> Opened[Cue] | None:
        headers.check_stream(exchange.headers)
        if listen.is_empty:
            await self._end_at_once(exchange, request_id)
            return None
        keys = [ResourceKey(who.tenant, uri) for uri in listen.uris]
        if listen.wants_list:
            keys.append(ResourceKey(who.tenant, LIST))
        try:
            connection = self._replica.connection(who, ListenRenderer(request_id))
        except Overloaded as error:
            raise modern.refused(request_id, error, is_listen=True) from error
        try:
            self._check_limits(listen)
            await self._quotas.open(connection, len(listen.uris))
            stamps = await self._replica.watch(connection, keys, _known(listen))
            _catch_up(connection, listen, stamps)
            token = extension.token(who.tenant, stamps)
            acknowledgement = modern.acknowledged(request_id, listen.uris, listen.wants_list, stamps, token)
        except BaseException as error:
            self._replica.leave(connection)
            if isinstance(error, BrokerError):
                raise modern.refused(request_id, error, is_listen=True) from error
            raise
        return Opened(connection, sse.event(acknowledgement), partial(self._replica.leave, connection))

    def _check_limits(self, listen: Listen) -> None:
        if len(listen.uris) > self._max_uris:
            raise LimitReached(
                f"A listen may name {self._max_uris} resources; this one names {len(listen.uris)}. "
                "Name fewer, or spread them over several listens."
            )

    async def _end_at_once(self, exchange: Exchange, request_id: RequestId) -> None:
        """Acknowledge a filter of which nothing can be honoured, and end (design section 5, decision 8)."""
        frames = sse.event(modern.acknowledged(request_id, (), wants_list=False)) + sse.event(
            modern.finished(request_id)
        )
        await exchange.start(200, STREAM_HEADERS)
        await exchange.send({"type": "http.response.body", "body": frames})


def _catch_up(connection: Connection[Cue], listen: Listen, stamps: Mapping[str, Stamp]) -> None:
    """Let everything wait that the token of an earlier acknowledgement, if there is one, does not cover."""
    if listen.covered is None or listen.known is not None:
        return
    tenant = connection.principal.tenant
    for uri, topic in connection.topics.items():
        stamp = stamps[uri]
        if extension.fingerprint(tenant, uri, stamp) not in listen.covered:
            connection.backlog.add(topic, stamp.n)


def _known(listen: Listen) -> dict[str, Revision]:
    """Return the revisions that the client says to have seen (the catch-up extension); empty without it.

    What its map leaves out had never been published when it looked.
    """
    if listen.known is None:
        return {}
    asked = (*listen.uris, LIST) if listen.wants_list else listen.uris
    return {uri: listen.known[uri].revision if uri in listen.known else ABSENT for uri in asked}
