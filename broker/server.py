"""The process around the app: two listeners, signals, and leaving gracefully.

Leaving (promise 9), in this order; the first SIGTERM or SIGINT starts it and a second one ends at once:

1. The app drains: it is not ready any more, and ends its streams spread over the drain window. We go on
   accepting, since balancers take a moment to notice; each answer now closes its connection.
2. The public listener closes, and requests in flight get what is left of the window, at least a second.
3. The app's lifespan ends. 4. The internal listener closes: until then /livez and /readyz answer.

uvicorn would close its listeners with the first signal, so its own signal handling and `serve` are not used.
"""

import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvicorn
import uvloop
from uvicorn.lifespan.off import LifespanOff

from broker.core.errors import Misconfigured
from broker.http.lifespan import App, Lifespan
from broker.http.protocol import LimitedProtocol
from broker.settings import Settings
from broker.shedding import limits, most_connections

log = logging.getLogger(__name__)

_LAST_REQUESTS_SECONDS = 1.0
"""What requests in flight get at least, however long the drain took."""
_SHUTDOWN_SECONDS = 5.0
"""How long the app's lifespan may take to end."""
_DIED = 1
_COLLECT_AFTER = (50_000, 20, 10)
"""Python's own, (700, 10, 10), looks at all open streams again after every few hundred that come."""


class Broker(Protocol):
    """What `app.build` returns."""

    @property
    def public(self) -> App:
        """The ASGI app with its lifespan."""
        ...

    @property
    def internal(self) -> App:
        """The ASGI app of health and metrics, without a lifespan."""
        ...

    async def drain(self) -> None:
        """Stop being ready, and end all streams within the drain window."""
        ...

    def turned_away(self) -> None:
        """Count a connection that was one too many."""
        ...


class Sockets:
    """The two bound sockets: made before anything else is started, so that a port in use ends at once."""

    def __init__(self, settings: Settings) -> None:
        self.public = _bind(settings.host, settings.port, "BROKER_PORT")
        try:
            self.internal = _bind(settings.internal_host, settings.internal_port, "BROKER_INTERNAL_PORT")
        except BaseException:
            self.public.close()
            raise

    @property
    def port(self) -> int:
        return int(self.public.getsockname()[1])

    @property
    def internal_port(self) -> int:
        return int(self.internal.getsockname()[1])

    def close(self) -> None:
        """Close both. Twice is once."""
        self.public.close()
        self.internal.close()


def _bind(host: str, port: int, variable: str) -> socket.socket:
    """Return a socket bound to the address, not listening yet.

    Raises:
        Misconfigured: with what to do.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise Misconfigured(
            f"The address {host} cannot be found ({error.strerror}); check BROKER_HOST."
        ) from None
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        match error.errno:
            case errno.EADDRINUSE:
                why = (
                    f"is in use, perhaps by another broker: stop that, or set {variable} (0 takes a free one)"
                )
            case errno.EACCES | errno.EPERM:
                why = f"may not be used by this user: set {variable} to one above 1023"
            case errno.EADDRNOTAVAIL:
                why = "is not on this machine: set BROKER_HOST to an address that is"
            case _:
                why = f"cannot be used: {error.strerror}"
        raise Misconfigured(f"Port {port} of {host} {why}.") from None
    return listener


class _Signals:
    """The first signal sets `leaving`; a second ends the process."""

    def __init__(self) -> None:
        self.leaving = asyncio.Event()
        self.first: signal.Signals | None = None

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    def _received(self, number: signal.Signals) -> None:
        if self.first is None:
            self.first = number
            log.info("leaving", extra={"signal": number.name})
            self.leaving.set()
            return
        log.warning("ended_at_once", extra={"signal": number.name})
        logging.shutdown()
        # Not sys.exit: a task or thread that hangs is why somebody asks twice. An embedded Redis gets its own
        # SIGTERM by our death, and keeps its data.
        os._exit(128 + number)


_CUT_HEADERS = ((b"content-length", b"0"), (b"retry-after", b"1"), (b"connection", b"close"))


class _Public:
    """The public app; while we leave, every answer closes its connection, so that clients go elsewhere."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.is_leaving = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, self._closing(send) if self.is_leaving else send)
        except asyncio.CancelledError:
            # Nobody else cancels a request: the drain window is over.
            log.warning("request_cut", extra={"method": scope["method"], "path": scope["path"]})
            with contextlib.suppress(RuntimeError):  # where an answer has begun the server just closes
                await send({"type": "http.response.start", "status": 503, "headers": _CUT_HEADERS})
                await send({"type": "http.response.body", "body": b""})

    def _closing(self, send: Any) -> Any:
        """Return `send`, with the header that closes the connection."""

        async def closing(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers: Iterable[tuple[bytes, bytes]] = message.get("headers", ())
                message = {**message, "headers": [*headers, (b"connection", b"close")]}
            await send(message)

        return closing


@dataclass(frozen=True)
class _Room:
    """How many connections a listener may have open, and who is told of one too many."""

    most: int | None = None
    turned_away: Callable[[], None] = lambda: None


def _listener(app: App, settings: Settings, state: dict[str, Any], room: _Room) -> uvicorn.Server:
    protocol = type(
        "Protocol",
        (LimitedProtocol,),
        {
            "most_connections": room.most,
            "on_too_many": staticmethod(room.turned_away),
            "max_head_bytes": settings.http.max_header_bytes,
            "head_seconds": settings.http.head_seconds,
            # A stream's own deadline comes first.
            "unread_seconds": 2 * settings.stream.write_deadline_seconds,
        },
    )
    config = uvicorn.Config(
        app,
        http=protocol,
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        workers=1,
        backlog=settings.http.backlog,
        timeout_keep_alive=settings.http.idle_seconds,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = LifespanOff(config)
    server.lifespan.state = state
    return server


async def _keep_date(*servers: uvicorn.Server) -> None:
    """Renew the Date header that the servers send; uvicorn's main loop would do it by ten ticks a second."""
    while True:
        for server in servers:
            await server.on_tick(0)
        await asyncio.sleep(1)


async def serve(broker: Broker, settings: Settings, sockets: Sockets) -> int:
    """Serve until a signal comes and everything has ended; return the exit code.

    Raises:
        Exception: whatever the app raised when it started.
    """
    return await _Process(broker, settings, sockets).run()


class _Process:
    """One broker from its start to its end."""

    def __init__(self, broker: Broker, settings: Settings, sockets: Sockets) -> None:
        self._broker = broker
        self._settings = settings
        self._sockets = sockets
        self._signals = _Signals()
        self._lifespan = Lifespan(broker.public)
        self._app = _Public(broker.public)
        most = most_connections(limits(0).descriptors, settings.redis.pool_size)
        room = _Room(most, broker.turned_away)
        self._public = _listener(self._app, settings, self._lifespan.state, room)
        self._internal = _listener(broker.internal, settings, {}, _Room())

    async def run(self) -> int:
        self._signals.install()
        dates = asyncio.create_task(_keep_date(self._public, self._internal), name="dates")
        await self._internal.startup(sockets=[self._sockets.internal])
        try:
            code = await self._start()
            if code is None:
                await self._public.startup(sockets=[self._sockets.public])
                _announce(self._settings, self._sockets)
                code = await self._until_leaving()
                await self._leave()
            await self._end_lifespan()
        finally:
            self._internal.config.timeout_graceful_shutdown = 1
            await self._internal.shutdown(sockets=[self._sockets.internal])
            dates.cancel()
        log.info("ended", extra={"code": code})
        return code

    async def _start(self) -> int | None:
        """Run the app's startup; 0 if a signal came meanwhile."""
        starting = asyncio.create_task(self._lifespan.start(), name="startup")
        if await self._is_left_before(starting):
            starting.cancel()
            self._lifespan.cancel()
            return 0
        starting.result()
        return None

    async def _until_leaving(self) -> int:
        """Return 0 once a signal came, or `_DIED` if the app's lifespan ended by itself."""
        died = asyncio.create_task(self._lifespan.died())
        if await self._is_left_before(died):
            died.cancel()
            return 0
        log.error("app_died", exc_info=died.exception())
        return _DIED

    async def _is_left_before(self, task: asyncio.Task[None]) -> bool:
        """Wait for a signal or for `task`; whether the signal came first."""
        leaving = asyncio.create_task(self._signals.leaving.wait())
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        return not task.done()

    async def _leave(self) -> None:
        """Drain, go on serving for a moment, then close the public listener."""
        started = time.monotonic()
        window = self._settings.drain_seconds
        self._app.is_leaving = True
        try:
            async with asyncio.timeout(window):
                await self._broker.drain()
        except TimeoutError:
            log.warning("drain_window_over", extra={"seconds": window})
        except Exception:
            log.exception("drain_failed")
        if self._signals.first is signal.SIGTERM:
            # Somebody at a keyboard need not wait for a balancer to notice.
            linger = min(self._settings.linger_seconds, window)
            await asyncio.sleep(max(0.0, started + linger - time.monotonic()))
        rest = max(_LAST_REQUESTS_SECONDS, started + window - time.monotonic())
        # Typed as int there, but only handed to asyncio.wait_for.
        self._public.config.timeout_graceful_shutdown = rest  # type: ignore[assignment]
        await self._public.shutdown(sockets=[self._sockets.public])

    async def _end_lifespan(self) -> None:
        try:
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await self._lifespan.stop()
        except TimeoutError:
            log.warning("app_shutdown_late", extra={"seconds": _SHUTDOWN_SECONDS})
        except Exception:
            log.exception("app_shutdown_failed")


def _announce(settings: Settings, sockets: Sockets) -> None:
    """Say that we serve, and where: in the log, and in the ready file if there is one."""
    # What was made until now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    log.info("serving", extra={"url": address(settings, sockets), "internal_port": sockets.internal_port})
    if settings.ready_file is not None:
        facts = {"port": sockets.port, "internal_port": sockets.internal_port, "pid": os.getpid()}
        _write_whole(settings.ready_file, json.dumps(facts) + "\n")


def address(settings: Settings, sockets: Sockets) -> str:
    """Return where clients of this machine find the MCP endpoint."""
    # What listens everywhere is reached by the loopback address, too.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 # compared, not bound
    return f"http://{f'[{host}]' if ':' in host and '[' not in host else host}:{sockets.port}/mcp"


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds all of it or none."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise Misconfigured(f"The ready file {path} cannot be written: {error.strerror}.") from None


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run `main` on uvloop and return its exit code."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
