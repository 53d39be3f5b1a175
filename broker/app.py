"""The composition root: puts the settings into a replica and its HTTP faces. Sees all; nothing imports it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from broker.callbacks.calls import CallRules
from broker.core import tenancy
from broker.core.errors import Misconfigured
from broker.core.revision import Stamp
from broker.gauges import release
from broker.http import answers, fast_writer
from broker.http.address import endpoint
from broker.http.admin import Admin, eraser
from broker.http.auth import build as build_auth
from broker.http.auth.keys import KeyAuth
from broker.http.auth.metadata import Metadata
from broker.http.catalog import Catalog
from broker.http.handshake import HandshakeEra, SessionRules
from broker.http.health import Health
from broker.http.mcp import McpEndpoint
from broker.http.modern import ModernEra
from broker.http.publish import Limits, router
from broker.http.reception import Reception
from broker.http.stream_desk import StreamDesk
from broker.http.turnstile import Turnstile
from broker.replica import Pace, Replica
from broker.sessions.ownership import Sessions
from broker.settings import Settings
from broker.shedding import Bounds, Shedding, limits
from broker.store import publishing
from broker.store.client import Connect, keys_at
from broker.store.control import Control
from broker.store.quotas import QuotaStore, in_scripts
from broker.store.sessions import SessionStore
from broker.streams.guard import Guard
from broker.streams.recheck import Recheck
from broker.telemetry import request, tracing
from broker.telemetry.exposition import Exposition
from broker.telemetry.metrics import Metrics
from broker.telemetry.tracing import Tracing
from broker.tenants.directory import Directory
from broker.tenants.publishes import Publishes
from broker.tenants.quotas import Quotas
from broker.wire import cue
from broker.wire.cue import Cue
from broker.wire.headers import Perimeter
from broker.wire.server import Offers

PUBLISHING_PATHS = frozenset({"/v1/resources", "/v1/publish", "/v1/touch"})


class PublicApp:
    """Sends the MCP addresses to their endpoint, the rest to FastAPI, whose wrappers no stream can afford."""

    def __init__(
        self,
        mcp: McpEndpoint,
        metadata: Metadata,
        turnstile: Turnstile,
        rest: FastAPI,
        *,
        metrics: Metrics,
        traces: Tracing,
    ) -> None:
        self._traces = traces
        self._reception = Reception(self._other, metrics)
        self._turnstile = turnstile
        self._mcp = mcp
        self._metadata = metadata
        self._rest = rest

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        request.begin(_header(scope, request.HEADER))
        if endpoint(scope) is not None:
            await self._mcp(scope, receive, send)
        else:
            await self._reception(scope, receive, send)

    async def _other(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request that is not MCP's."""
        if self._metadata.is_at(scope):
            await self._metadata(scope, receive, send)
        elif await self._turnstile.refuses(scope, receive, send):
            return
        elif self._traces.is_on:
            context = {name: _header(scope, name) for name in tracing.CARRIED}
            with self._traces.span(f"{scope['method']} {_route(scope)}", context):
                await self._rest(scope, receive, self._noting(send))
        else:
            await self._rest(scope, receive, send)

    def _noting(self, send: Any) -> Any:
        """Return `send`, and let the request's span say which revision its answer names (an ETag of ours)."""

        async def noting(message: Any) -> None:
            for name, value in message.get("headers", ()):
                if name == b"etag":
                    revision = Stamp.parse(value.decode().strip('"')).revision
                    self._traces.note(broker_revision=str(revision))
            await send(message)

        return noting


def _header(scope: Mapping[str, Any], name: str) -> str:
    """Return a request's header, "" without it."""
    wanted = name.encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), "")


def _route(scope: Mapping[str, Any]) -> str:
    """Return what a span is called by: a path of the publishing API, and nothing that a stranger made up."""
    return scope["path"] if scope["path"] in PUBLISHING_PATHS else "/"


class InternalApp:
    """Sends the administrators' API to its endpoint and the rest to health."""

    def __init__(self, admin: Admin, health: Health, metrics: Metrics) -> None:
        self._admin = admin
        self._reception = Reception(admin, metrics)
        self._health = health

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http" and self._admin.is_at(scope):
            request.begin(_header(scope, request.HEADER))
            await self._reception(scope, receive, send)
        else:
            await self._health(scope, receive, send)


@dataclass(frozen=True)
class Broker:
    """What the process serves."""

    public: PublicApp
    internal: InternalApp
    replica: Replica[Cue]

    async def drain(self) -> None:
        """Stop being ready, and end all streams within the drain window."""
        await self.replica.drain()

    def turned_away(self) -> None:
        """Count a connection that was one too many."""
        self.replica.metrics.connection_refused()


def build(settings: Settings) -> Broker:
    """Return a broker that is ready to be served; nothing is connected before its lifespan starts.

    Raises:
        Misconfigured: settings that do not fit together.
    """
    if settings.redis_url is None:
        raise Misconfigured("No Redis was given to the broker; set BROKER_REDIS_URL.")
    metrics = Metrics(tenants=settings.metrics.tenants)
    replica: Replica[Cue] = Replica(
        _connect(settings, settings.redis_url),
        cue.encode,
        _pace(settings),
        metrics,
        _calls(settings),
        traces=_traces(settings),
        shedding=Shedding(_bounds(settings)),
    )
    control = Control(replica.redis, replica.keys)
    directory = Directory(control)
    quotas = _quotas(settings, replica, directory)
    replica.calls.admit = quotas.call
    catalog = Catalog(
        replica.redis,
        replica.keys,
        settings.list.page_size,
        replica.callbacks,
        metrics=replica.metrics,
        quotas=quotas,
        traces=replica.traces,
    )
    auth = build_auth(settings, directory)
    guard = Guard(
        directory,
        lambda connection: replica.hub.restrict(connection, connection.topics.values()),
        quotas.closed,
        recheck=(
            None if auth.tokens is None else Recheck(auth.tokens.again, settings.oauth.introspection_seconds)
        ),
        is_open=settings.auth.mode == "open",
        max_age=settings.stream.max_age_seconds,
        retry_ms=settings.http.retry_ms,
    )
    if auth.tokens is not None:
        auth.tokens.on_inactive(lambda token: guard.refreshed(token, None))
    replica.ask(guard)
    is_on = settings.list.empty_tools_and_prompts
    offers = Offers(has_empty_tools=is_on, has_empty_prompts=is_on)
    rules = SessionRules(
        idle_ms=settings.session.idle_seconds * 1000,
        max_uris=settings.session.max_uris,
        wait=settings.session.refusal_wait_ms / 1000,
        retry_ms=settings.http.retry_ms,
    )
    store = SessionStore(replica.redis, replica.keys)
    sessions = Sessions(replica, store, rules.idle_ms)
    replica.tell(sessions)
    perimeter = Perimeter(frozenset(settings.http.allowed_hosts), frozenset(settings.http.allowed_origins))
    mcp = McpEndpoint(
        replica,
        ModernEra(replica, catalog, quotas, offers, settings.listen.max_uris),
        HandshakeEra(replica, sessions, store, catalog, quotas, offers=offers, rules=rules),
        auth.gate,
        perimeter,
        max_body_bytes=settings.http.max_body_bytes,
        body_seconds=settings.http.body_seconds,
        make_writer=fast_writer.chosen(settings.stream.writer),
        metrics=replica.metrics,
        traces=replica.traces,
    )
    publishes = Publishes(
        QuotaStore(replica.redis, replica.keys, replica.id),
        directory,
        _defaults(settings),
        is_on=settings.auth.mode != "open",
    )
    limits = _limits(settings, quotas, publishes)
    rest = FastAPI(
        title="MCP resource broker",
        description="Publish resources; MCP clients that subscribe to them hear of it on /mcp.",
        lifespan=_lifespan(replica, quotas),
    )
    for status in (404, 405):
        rest.add_exception_handler(status, answers.nothing_here)
    rest.add_exception_handler(Exception, answers.failed)
    rest.include_router(
        router(replica.redis, replica.keys, auth.gate, limits, perimeter, metrics=replica.metrics)
    )
    health = Health(
        replica,
        Exposition(replica.metrics).page,
        StreamDesk(replica.connections, replica.jittered_retry),
    )
    token = settings.admin.token
    admin = Admin(
        control,
        KeyAuth(directory),
        None if token is None else token.get_secret_value(),
        erased=eraser(replica.redis, replica.keys),
        spawn=replica.spawn,
    )
    return Broker(
        PublicApp(
            mcp,
            Metadata(auth.challenge),
            Turnstile(auth.gate, publishes, perimeter, replica.metrics),
            rest,
            metrics=replica.metrics,
            traces=replica.traces,
        ),
        InternalApp(admin, health, replica.metrics),
        replica,
    )


def _lifespan(replica: Replica[Cue], quotas: Quotas) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        # A task group: if the replica dies, so does the lifespan, and with it the process, loudly.
        async with asyncio.TaskGroup() as group:
            running = group.create_task(replica.run(), name="replica")
            counting = group.create_task(quotas.run(), name="quotas")
            yield
            counting.cancel()
            running.cancel()
        if replica.traces.is_on:
            # It sends what is left, and blocks meanwhile.
            await asyncio.to_thread(replica.traces.close)

    return lifespan


def _connect(settings: Settings, url: str) -> Connect:
    return Connect(
        url,
        keys_at(url, settings.prefix),
        pool_size=settings.redis.pool_size,
        timeout=settings.redis.timeout_seconds,
        connect_timeout=settings.redis.connect_timeout_seconds,
        log_length=settings.log.length,
        access=settings.redis.access,
    )


def _bounds(settings: Settings) -> Bounds:
    shed = settings.shed
    return Bounds(limits(shed.memory_bytes), shed.descriptors_share, shed.memory_share)


def _pace(settings: Settings) -> Pace:
    return Pace(
        keep_alive=settings.http.keepalive_seconds,
        write_deadline=settings.stream.write_deadline_seconds,
        drain=settings.drain_seconds,
        retry_ms=settings.http.retry_ms,
    )


def _traces(settings: Settings) -> Tracing:
    if settings.traces.endpoint is None:
        return tracing.OFF
    return tracing.start(settings.traces.endpoint, socket.gethostname(), release())


def _calls(settings: Settings) -> CallRules:
    return CallRules(
        deadline=settings.worker.call_seconds,
        running_per_tenant=settings.worker.running_per_tenant,
        kept_bytes=settings.worker.kept_bytes,
        report=settings.worker.demand_seconds,
        unheard=settings.worker.unheard_seconds,
    )


def _limits(settings: Settings, quotas: Quotas, publishes: Publishes) -> Limits:
    return Limits(
        content_bytes=settings.http.max_content_bytes,
        body_seconds=settings.http.body_seconds,
        quota=publishing.TRUSTED if settings.auth.mode == "open" else in_scripts(_defaults(settings)),
        read=quotas.read,
        publishes=publishes,
    )


def _quotas(settings: Settings, replica: Replica[Cue], directory: Directory) -> Quotas:
    store = QuotaStore(replica.redis, replica.keys, replica.id)
    # In open mode there are no callers to tell apart.
    return Quotas(store, directory, _defaults(settings), is_on=settings.auth.mode != "open")


def _defaults(settings: Settings) -> tenancy.Limits:
    return tenancy.Limits(**settings.quota.model_dump())
