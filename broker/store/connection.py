"""What our connections do beyond the client library's: each is a small class that is put before its own.

- They never lose a cancellation. On Python 3.11 `asyncio.wait_for` returns its result instead of its
  cancellation when both come at the same moment, and the client sends each command through it. A loop that
  was cancelled there went on, and whoever waited for its end waited for ever; a timeout that came there never
  was. So after each send we look whether somebody has cancelled meanwhile, and do what it should have done.
- One that is closed while a command is being sent says so, and is not a bug in the client.
- They follow the primary. One that says it is the primary no more is left at once, with every other
  connection that was opened before (a later promotion must not find one that never saw the new log); where
  there are sentinels, connecting begins with asking them, and a connection to another place is replaced.
- They check certificates by tls.py, which reads renewed files again.

The async and the sync classes differ in `await` only; what is decided is decided outside of both.
"""

import asyncio
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import redis.asyncio as aio
from redis import Connection as SyncTcp
from redis import UnixDomainSocketConnection as SyncUnix
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from broker.core.errors import BrokerError, StoreUnavailable
from broker.store import tls
from broker.store.address import Address, Host, Shape, Tls
from broker.store.errors import is_cut_off, is_demotion, ours

if TYPE_CHECKING:

    class Base:
        """What is known of the client's connections here; they are of several classes."""

        host: str
        port: int
        is_connected: bool
        _sock: Any
        _writer: Any

        async def connect(self) -> None: ...
        async def _connect(self) -> None: ...
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None: ...  # noqa: FBT001, FBT002 - the client's own signature
        async def read_response(self, *args: Any, **options: Any) -> Any: ...
        async def disconnect(self, *, nowait: bool = False) -> None: ...
        def mark_for_reconnect(self) -> None: ...
        def _connection_arguments(self) -> Any: ...

    class SyncBase:
        """The same of the sync ones."""

        host: str
        port: int
        _sock: Any

        def connect(self) -> None: ...
        def _connect(self) -> Any: ...
        def read_response(self, *args: Any, **options: Any) -> Any: ...
        def disconnect(self) -> None: ...
        def mark_for_reconnect(self) -> None: ...
else:
    Base = SyncBase = object


RECHECK_SECONDS = 0.5
"""How long a client without a watch of its own (store/sentinel.py) goes on without asking the sentinels."""


class Asks(Protocol):
    """Where the primary is, by the sentinels (store/sentinel.py)."""

    async def primary(self) -> Host:
        """Return its host and port."""
        ...


class SyncAsks(Protocol):
    """The same for plain scripts."""

    def primary(self) -> Host:
        """Return its host and port."""
        ...


class Course:
    """Where the connections of one client belong, shared by all of them.

    `turn` counts how often it was found that connections made until then are good for nothing.
    """

    def __init__(self) -> None:
        self.turn = 0
        self._due = 0.0
        self.host: Host | None = None
        """Where the sentinels last said that the primary is; None without sentinels."""

    def __repr__(self) -> str:
        return f"<Course {self.host} turn={self.turn}>"

    def to(self, host: Host) -> bool:
        """Go to `host` from now on; whether that is another than before."""
        self._due = time.monotonic() + RECHECK_SECONDS
        if host == self.host:
            return False
        if self.host is not None:
            self.turn += 1
        self.host = host
        return True

    def is_due(self) -> bool:
        """Whether the sentinels have not been asked for a while; who is told so asks them."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + RECHECK_SECONDS
        return True

    def turned(self) -> None:
        """Find that the primary is another one, without knowing where."""
        self.turn += 1


class _Cancellable(Base):
    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - the client's own signature
        task = asyncio.current_task()
        asked = task.cancelling() if task is not None else 0
        try:
            await super().send_packed_command(command, check_health)
        except AttributeError as error:
            # Somebody disconnected between the client's look at its writer and its use (while it connects).
            if self._writer is not None:
                raise
            raise RedisConnectionError("Connection closed while a command was being sent.") from error
        if task is not None and task.cancelling() > asked:
            # Its reply would be read by the next one who gets this connection.
            await self.disconnect(nowait=True)
            raise asyncio.CancelledError


class _Following(Base):
    course: Course
    asks: Asks | None
    _turn = 0

    @property
    def is_outdated(self) -> bool:
        """Whether it was found since that connections made until then are good for nothing."""
        return self._turn != self.course.turn

    async def connect(self) -> None:
        # Called for each command that takes this connection from its pool. After a plain SENTINEL FAILOVER
        # the old primary takes writes for some ten seconds, and all of them are lost.
        if self.asks is not None and self.course.is_due():
            with suppress(RedisError):
                self.course.to(await self.asks.primary())
        if self.is_connected and self.is_outdated:
            await self.disconnect(nowait=True)
        await super().connect()

    async def _connect(self) -> None:
        if self.asks is not None:
            self.host, self.port = place = await self.asks.primary()
            self.course.to(place)
        self._turn = self.course.turn
        await super()._connect()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)
        except Exception as error:
            if is_demotion(error):
                if self._turn == self.course.turn:
                    self.course.turned()
                await self.disconnect(nowait=True)
                # The client's own retries connect again.
                raise ours(StoreUnavailable(f"This Redis is the primary no more ({error}).")) from error
            if self.asks is not None and is_cut_off(error):
                self.mark_for_reconnect()
            raise


class _SyncFollowing(SyncBase):
    course: Course
    asks: SyncAsks | None
    _turn = 0

    def connect(self) -> None:
        if self.asks is not None and self.course.is_due():
            with suppress(RedisError):
                self.course.to(self.asks.primary())
        if self._sock is not None and self._turn != self.course.turn:
            self.disconnect()
        super().connect()

    def _connect(self) -> Any:
        if self.asks is not None:
            self.host, self.port = place = self.asks.primary()
            self.course.to(place)
        self._turn = self.course.turn
        return super()._connect()

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)
        except Exception as error:
            if is_demotion(error):
                if self._turn == self.course.turn:
                    self.course.turned()
                self.disconnect()
                raise ours(StoreUnavailable(f"This Redis is the primary no more ({error}).")) from error
            if self.asks is not None and is_cut_off(error):
                self.mark_for_reconnect()
            raise


class _Secured(Base):
    tls: Tls

    async def _connect(self) -> None:
        try:
            await super()._connect()
        except (ssl.SSLError, TimeoutError) as error:
            raise ours(tls.meaning(error)) from error
        except BrokerError as error:
            raise ours(error) from error

    def _connection_arguments(self) -> Any:
        return {**super()._connection_arguments(), "ssl": tls.context(self.tls)}


class _SyncSecured(SyncBase):
    tls: Tls

    def _connect(self) -> Any:
        plain = super()._connect()
        try:
            return tls.context(self.tls).wrap_socket(plain, server_hostname=self.host)
        except (ssl.SSLError, TimeoutError) as error:
            plain.close()
            raise ours(tls.meaning(error)) from error
        except BrokerError as error:
            plain.close()
            raise ours(error) from error
        except OSError:
            plain.close()
            raise


def connection_class(address: Address, course: Course, asks: Asks | None = None) -> Any:
    """Return the class of the async connections to `address`, which stay on `course`."""
    base: Any = aio.UnixDomainSocketConnection if address.socket is not None else aio.Connection
    parents: tuple[Any, ...] = (_Cancellable, _Following, *((_Secured,) if address.tls else ()), base)
    return type("Connection", parents, {"course": course, "asks": asks, "tls": address.tls})


def sync_connection_class(address: Address, course: Course, asks: SyncAsks | None = None) -> Any:
    """Return the class of the sync connections to `address`, which stay on `course`."""
    base: Any = SyncUnix if address.socket is not None else SyncTcp
    parents: tuple[Any, ...] = (_SyncFollowing, *((_SyncSecured,) if address.tls else ()), base)
    return type("Connection", parents, {"course": course, "asks": asks, "tls": address.tls})


def needs_sentinels(address: Address) -> bool:
    """Whether connecting begins with asking where the primary is."""
    return address.shape is Shape.SENTINEL
