"""The composition root: puts the settings into a replica and its HTTP faces. Sees all; nothing imports it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from broker.calls import CallRules
from broker.core.errors import Misconfigured
from broker.directory import Directory
from broker.guard import Guard
from broker.http.address import endpoint
from broker.http.auth import build as build_auth
from broker.http.auth.metadata import Metadata
from broker.http.catalog import Catalog
from broker.http.handshake import HandshakeEra, SessionRules
from broker.http.health import Health
from broker.http.mcp import McpEndpoint
from broker.http.modern import ModernEra
from broker.http.publish import Limits, router
from broker.http.stream_desk import StreamDesk
from broker.replica import Pace, Replica
from broker.sessions import Sessions
from broker.settings import Settings
from broker.store.client import Connect
from broker.store.control import Control
from broker.store.keys import Keys
from broker.store.sessions import SessionStore
from broker.telemetry.exposition import Exposition
from broker.telemetry.metrics import Metrics
from broker.wire import cue
from broker.wire.cue import Cue
from broker.wire.headers import Perimeter
from broker.wire.server import Offers


class PublicApp:
    """Sends the MCP addresses to their endpoint, the rest to FastAPI, whose wrappers no stream can afford."""

    def __init__(self, mcp: McpEndpoint, metadata: Metadata, rest: FastAPI) -> None:
        self._mcp = mcp
        self._metadata = metadata
        self._rest = rest

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http" and endpoint(scope) is not None:
            await self._mcp(scope, receive, send)
        elif scope["type"] == "http" and self._metadata.is_at(scope):
            await self._metadata(scope, receive, send)
        else:
            await self._rest(scope, receive, send)


@dataclass(frozen=True)
class Broker:
    """What the process serves."""

    public: PublicApp
    internal: Health
    replica: Replica[Cue]

    async def drain(self) -> None:
        """Stop being ready, and end all streams within the drain window."""
        await self.replica.drain()


def build(settings: Settings) -> Broker:
    """Return a broker that is ready to be served; nothing is connected before its lifespan starts.

    Raises:
        Misconfigured: settings that do not fit together.
    """
    if settings.redis_url is None:
        raise Misconfigured("No Redis was given to the broker; set BROKER_REDIS_URL.")
    metrics = Metrics(tenants=settings.metrics.tenants)
    replica: Replica[Cue] = Replica(
        _connect(settings, settings.redis_url), cue.encode, _pace(settings), metrics, _calls(settings)
    )
    catalog = Catalog(
        replica.redis, replica.keys, settings.list.page_size, replica.callbacks, replica.metrics
    )
    directory = Directory(Control(replica.redis, replica.keys))
    auth = build_auth(settings, directory)
    replica.ask(
        Guard(
            directory,
            lambda connection: replica.hub.restrict(connection, connection.topics.values()),
            is_open=settings.auth.mode == "open",
            max_age=settings.stream.max_age_seconds,
            retry_ms=settings.http.retry_ms,
        )
    )
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
        ModernEra(replica, catalog, offers, settings.listen.max_uris),
        HandshakeEra(replica, sessions, store, catalog, offers=offers, rules=rules),
        auth.gate,
        perimeter,
        max_body_bytes=settings.http.max_body_bytes,
        body_seconds=settings.http.body_seconds,
        metrics=replica.metrics,
    )
    rest = FastAPI(
        title="MCP resource broker",
        description="Publish resources; MCP clients that subscribe to them hear of it on /mcp.",
        lifespan=_lifespan(replica),
    )
    rest.include_router(router(replica.redis, replica.keys, auth.gate, _limits(settings), perimeter))
    return Broker(
        PublicApp(mcp, Metadata(auth.challenge), rest),
        Health(
            replica,
            Exposition(replica.metrics).page,
            StreamDesk(replica.connections, replica.jittered_retry),
        ),
        replica,
    )


def _lifespan(replica: Replica[Cue]) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        # A task group: if the replica dies, so does the lifespan, and with it the process, loudly.
        async with asyncio.TaskGroup() as group:
            running = group.create_task(replica.run(), name="replica")
            yield
            running.cancel()

    return lifespan


def _connect(settings: Settings, url: str) -> Connect:
    return Connect(
        url,
        Keys(settings.prefix),
        pool_size=settings.redis.pool_size,
        timeout=settings.redis.timeout_seconds,
        connect_timeout=settings.redis.connect_timeout_seconds,
        log_length=settings.log.length,
    )


def _pace(settings: Settings) -> Pace:
    return Pace(
        keep_alive=settings.http.keepalive_seconds,
        write_deadline=settings.stream.write_deadline_seconds,
        drain=settings.drain_seconds,
        retry_ms=settings.http.retry_ms,
    )


def _calls(settings: Settings) -> CallRules:
    return CallRules(
        deadline=settings.worker.call_seconds,
        running_per_tenant=settings.worker.running_per_tenant,
        kept_bytes=settings.worker.kept_bytes,
        report=settings.worker.demand_seconds,
        unheard=settings.worker.unheard_seconds,
    )


def _limits(settings: Settings) -> Limits:
    return Limits(content_bytes=settings.http.max_content_bytes)
