"""Serves the handshake era (2025-03-26 to 2025-11-25): sessions that answer on every replica.

Inside a live session each well-formed request is answered with HTTP 200, errors too; see wire/handshake.py.
While Redis cannot say whether a session lives, a POST waits a moment and gets a retryable error; a GET is
opened provisionally and ended cleanly if the session proves unknown (design section 5, decision 12).
"""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from broker.core.errors import (
    BrokerError,
    LimitReached,
    Overloaded,
    SessionNotFound,
    StoreUnavailable,
    Unavailable,
)
from broker.core.identity import LIST, Principal, SessionId, is_session_id, new_session_id
from broker.core.revision import ABSENT
from broker.http.catalog import Attend, Catalog
from broker.http.exchange import Exchange
from broker.http.renderers import GetRenderer
from broker.http.streams import Opened
from broker.replica import Replica
from broker.sessions.ownership import Sessions
from broker.store.sessions import NO_PROOF, Proof, SessionStore
from broker.streams.connection import CloseReason, Connection
from broker.tenants.quotas import Quotas
from broker.wire import eventid, handshake, headers, sse
from broker.wire.cue import Cue
from broker.wire.encoding import RequestId
from broker.wire.era import SESSION_HEADER, VERSION_HEADER
from broker.wire.headers import Form
from broker.wire.jsonrpc import Message, Request
from broker.wire.operations import (
    Complete,
    Initialize,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    Operation,
    Ping,
    Read,
    SetLevel,
    Subscribe,
    Unsubscribe,
)
from broker.wire.refusal import Refusal
from broker.wire.server import Offers

T = TypeVar("T")
UNAVAILABLE = 503
TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class SessionRules:
    """How sessions are treated; `wait` is how many seconds a request waits for Redis to know a session."""

    idle_ms: int
    max_uris: int
    wait: float
    retry_ms: int


class HandshakeEra:
    """The session side of the MCP endpoint."""

    def __init__(
        self,
        replica: Replica[Cue],
        sessions: Sessions[Cue],
        store: SessionStore,
        catalog: Catalog,
        quotas: Quotas,
        *,
        offers: Offers,
        rules: SessionRules,
    ) -> None:
        self._replica = replica
        self._sessions = sessions
        self._store = store
        self._catalog = catalog
        self._quotas = quotas
        self._offers = offers
        self._rules = rules

    # -- POST ----------------------------------------------------------------------------------------------

    async def post(self, exchange: Exchange, who: Principal, message: Message | list[Message]) -> None:
        """Answer one POST.

        Raises:
            Refusal: the answer is an error.
        """
        form = headers.answer_form(exchange.headers)
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(exchange, who, message, form)
            return
        request_id = message.id if isinstance(message, Request) else None
        session = _session(exchange, request_id)
        handshake.check_version_header(exchange.headers.get(VERSION_HEADER), request_id)
        if isinstance(message, list):
            await self._batch(exchange, who, session, message, form)
        elif isinstance(message, Request):
            await exchange.json(200, await self._answer(who, session, message, exchange.attended), form)
        else:
            await self._note(who, session)
            await exchange.nothing(202)

    async def _initialize(self, exchange: Exchange, who: Principal, message: Request, form: Form) -> None:
        operation = handshake.decode(message, handshake.LATEST_VERSION, self._offers)
        assert isinstance(operation, Initialize)
        version = handshake.negotiate(operation.version)
        session = new_session_id()
        try:
            self._replica.shedding.check()
            await self._in_time(self._quotas.open_session(who, session, self._rules.idle_ms))
            await self._in_time(self._store.open(who, session, version, self._rules.idle_ms))
        except LimitReached as error:
            raise _status(TOO_MANY, handshake.refused(message.id, error)) from error
        except Unavailable as error:
            # Before there is a session a status loses nothing, and tells balancers and clients to retry.
            raise _status(503, handshake.refused(message.id, error)) from error
        except BrokerError as error:
            raise _status(500, handshake.refused(message.id, error)) from error
        # On this answer only: some clients adopt it from any.
        exchange.extra.append((b"mcp-session-id", session.encode()))
        await exchange.json(200, handshake.initialized(message.id, version, offers=self._offers), form)

    async def _batch(
        self, exchange: Exchange, who: Principal, session: SessionId, messages: list[Message], form: Form
    ) -> None:
        try:
            version = await self._in_time(self._store.check(who, session))
        except BrokerError as error:
            raise handshake.refused(None, error) from error
        handshake.check_batch(messages, version)
        answers: list[bytes] = []
        for message in messages:
            if isinstance(message, Request):
                try:
                    answers.append(await self._answer(who, session, message, exchange.attended))
                except Refusal as refusal:
                    answers.append(refusal.body())
        if answers:
            await exchange.json(200, b"[" + b",".join(answers) + b"]", form)
        else:
            await exchange.nothing(202)

    async def _note(self, who: Principal, session: SessionId) -> None:
        """Check the session of a notification; with Redis away it is accepted, since it changes nothing."""
        try:
            await self._in_time(self._store.check(who, session))
        except Unavailable:
            return
        except BrokerError as error:
            raise handshake.refused(None, error) from error

    async def _answer(self, who: Principal, session: SessionId, message: Request, attend: Attend) -> bytes:
        try:
            # The session before the method: what is gone is gone whatever is asked of it.
            version = await self._in_time(self._store.check(who, session))
            operation = handshake.decode(message, version, self._offers)
            return await self._perform(who, session, message.id, operation, attend)
        except BrokerError as error:
            raise handshake.refused(message.id, error) from error

    async def _perform(
        self,
        who: Principal,
        session: SessionId,
        request_id: RequestId,
        operation: Operation,
        attend: Attend,
    ) -> bytes:
        match operation:
            case Ping() | SetLevel():
                return handshake.empty(request_id)
            case Subscribe(uri):
                subscribe = partial(self._store.subscribe, who, session, uri)
                await self._quotas.subscribe(who, self._rules.max_uris, subscribe)
                return handshake.empty(request_id)
            case Unsubscribe(uri):
                await self._quotas.read(who)
                await self._store.unsubscribe(who, session, uri)
                return handshake.empty(request_id)
            case Read(uri):
                read = await self._catalog.read(who, uri, attend)
                await self._store.prove(who, session, uri, read.stamp.revision)
                # What was never touched has no revision.
                stamp = read.stamp if read.stamp.revision != ABSENT else None
                return handshake.read(request_id, read.contents, stamp)
            case ListResources(cursor):
                return await self._list(who, session, request_id, cursor, attend)
            case ListTemplates(cursor):
                page = await self._catalog.templates(who, cursor)
                return handshake.listed(request_id, "resourceTemplates", page.items, page.next_cursor)
            case ListTools():
                return handshake.listed(request_id, "tools", ())
            case ListPrompts():
                return handshake.listed(request_id, "prompts", ())
            case Complete():
                found = await self._catalog.complete(who, operation, attend)
                return handshake.completed(request_id, found.values, found.total, found.has_more)
            case _:
                raise AssertionError(f"no answer to {operation!r}")

    async def _list(
        self,
        who: Principal,
        session: SessionId,
        request_id: RequestId,
        cursor: str | None,
        attend: Attend,
    ) -> bytes:
        # Before the page, so that what is proven to have been seen is never newer than what was.
        revision = await self._replica.list_revision(who.tenant) if cursor is None else None
        page = await self._catalog.page(who, cursor, attend)
        if revision is not None:
            await self._store.prove(who, session, LIST, revision)
        return handshake.listed(request_id, "resources", page.items, page.next_cursor)

    async def _in_time(self, asked: Awaitable[T]) -> T:
        """Wait for what decides about a session, but not long.

        Raises:
            StoreUnavailable: Redis did not say in time.
        """
        try:
            async with asyncio.timeout(self._rules.wait):
                return await asked
        except TimeoutError:
            raise StoreUnavailable("Redis does not answer in time; send the request again shortly.") from None

    # -- DELETE --------------------------------------------------------------------------------------------

    async def delete(self, exchange: Exchange, who: Principal) -> None:
        """End a session.

        Raises:
            Refusal: 404 for one that is gone already, 503 while Redis is away.
        """
        session = _session(exchange, None)
        handshake.check_version_header(exchange.headers.get(VERSION_HEADER))
        try:
            await self._store.end(who, session)
            await self._quotas.close_session(who, session)
        except Unavailable as error:
            raise _status(503, handshake.refused(None, error)) from error
        except BrokerError as error:
            raise handshake.refused(None, error) from error
        await exchange.nothing(204)

    # -- GET -----------------------------------------------------------------------------------------------

    async def get(self, exchange: Exchange, who: Principal) -> Opened[Cue]:
        """Open the stream that delivers for a session, until it ends.

        Raises:
            Refusal: no such session, or the stream cannot be accepted.
        """
        headers.check_stream(exchange.headers)
        session = _session(exchange, None)
        handshake.check_version_header(exchange.headers.get(VERSION_HEADER))
        proof = _proof(exchange, session)
        try:
            connection = self._replica.connection(who, GetRenderer(session))
        except Overloaded as error:
            raise _status(UNAVAILABLE, handshake.refused(None, error)) from error
        try:
            await self._quotas.open(connection, 0)
        except BrokerError as error:
            self._replica.leave(connection)
            status = TOO_MANY if isinstance(error, LimitReached) else UNAVAILABLE
            raise _status(status, handshake.refused(None, error)) from error
        opening = asyncio.ensure_future(self._open(connection, who, session, proof))

        def undo() -> None:
            opening.cancel()
            self._sessions.detach(connection, who, session)
            self._replica.leave(connection)

        try:
            await asyncio.wait({opening}, timeout=self._rules.wait)
            version = ""
            if opening.done():
                try:
                    version = opening.result()
                except BrokerError as error:
                    raise handshake.refused(None, error) from error
            else:
                opening.add_done_callback(lambda done: _end_if_unknown(done, connection))
        except BaseException:
            undo()
            raise
        return Opened(connection, self._first(session, version, proof), undo)

    async def _open(
        self, connection: Connection[Cue], who: Principal, session: SessionId, proof: Proof
    ) -> str:
        """Attach the stream, however long Redis is away.

        Raises:
            SessionNotFound: once Redis knows.
        """
        pause = 0.05
        while True:
            try:
                return await self._sessions.attach(connection, who, session, proof)
            except Unavailable:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(1.0, pause * 2)

    def _first(self, session: SessionId, version: str, proof: Proof) -> bytes:
        """The first bytes of a stream: a comment at once, and for the newest revision a priming event."""
        retry_ms = self._rules.retry_ms
        if version < handshake.PRIMING_VERSION:
            return sse.comment() + sse.retry(retry_ms)
        # It proves no more than the client has proven itself.
        epoch = proof.epoch or "0"
        event_id = eventid.format(eventid.tag(session), epoch, proof.n)
        return sse.comment() + sse.priming(event_id, retry_ms)


def _session(exchange: Exchange, request_id: RequestId | None) -> SessionId:
    """Return the session that the request names; what is none of our ids is unknown without asking Redis.

    Raises:
        Refusal: 404.
    """
    named = exchange.headers[SESSION_HEADER].strip(" \t")
    if not is_session_id(named):
        raise handshake.refused(request_id, SessionNotFound())
    return SessionId(named)


def _proof(exchange: Exchange, session: SessionId) -> Proof:
    """Return what the Last-Event-ID proves; anything that is not this session's proves nothing."""
    text = exchange.headers.get("last-event-id", "").strip(" \t")
    found = eventid.parse(text, eventid.tag(session))
    return Proof(*found) if found is not None else NO_PROOF


def _end_if_unknown(opening: "asyncio.Future[str]", connection: Connection[Cue]) -> None:
    if not opening.cancelled() and opening.exception() is not None:
        connection.end(CloseReason.SESSION_ENDED)


def _status(status: int, refusal: Refusal) -> Refusal:
    """Return `refusal` with another status, for where no live session can be lost by it."""
    refusal.status = status
    if status in (UNAVAILABLE, TOO_MANY) and not refusal.headers:
        refusal.headers = ((b"retry-after", b"1"),)
    return refusal
