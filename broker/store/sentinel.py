"""Where the primary is, by its sentinels.

Rules:

1. All sentinels are asked at once, and the highest configuration epoch among a majority's answers wins: one
   sentinel that was cut off would send us to a primary that is none any more, and we would write there.
2. It is asked on connecting, so no answer is older than the connection; and again all the time, by `Watch` in
   brokers and workers, by whoever takes a connection elsewhere: a primary that hangs closes nothing, and one
   that was replaced by a plain SENTINEL FAILOVER goes on taking writes, which are lost, for some ten seconds.
3. Asked, not listened to: the sentinel that leads a failover answers with the new primary as soon as that has
   been promoted, and publishes +switch-master when everything is over; and a subscription may go deaf.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import ConnectionPool as SyncConnectionPool
from redis import Redis as SyncRedis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse, RedisError, ResponseError
from redis.retry import Retry as SyncRetry

from broker.core.errors import StoreUnavailable
from broker.store.address import MAX_PORT, Address, Host, Shape, shown
from broker.store.connection import Course, connection_class, sync_connection_class
from broker.store.errors import meaning, ours
from broker.store.login import provider

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
ANSWER_SECONDS = 1.0
"""How long a sentinel may take; one that takes longer is not waited for once a majority has answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One sentinel's answer: the primary, None if it knows no such service; and since which epoch."""

    epoch: int
    host: Host | None


def best(answers: Iterable[Answer]) -> Host | None:
    """Return the primary by the newest configuration that anybody knows."""
    known = [answer for answer in answers if answer.host is not None]
    return max(known, key=lambda answer: answer.epoch).host if known else None


def is_enough(answers: int, sentinels: int) -> bool:
    """Whether a majority has answered."""
    return answers > sentinels // 2


def unknown(address: Address, answers: Sequence[Answer], errors: Sequence[Exception]) -> StoreUnavailable:
    """Return what to say when nobody told us where the primary is."""
    names = ", ".join(shown(host) for host in address.hosts)
    if answers:
        return StoreUnavailable(
            f"The sentinels {names} know no service {address.service}; check the name in BROKER_REDIS_URL."
        )
    why = str(meaning(errors[-1])) if errors else "none answers"
    return StoreUnavailable(f"No sentinel of {names} says where {address.service} is: {why}")


def _commands(service: str) -> tuple[tuple[str, ...], ...]:
    return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service), ("SENTINEL", "MASTER", service)


def _answer(place: Any, details: Any) -> Answer:
    """Read the replies to `_commands`."""
    for reply in (place, details):
        if isinstance(reply, ResponseError) and "No such master" not in str(reply):
            raise reply
    if not place or isinstance(place, Exception) or isinstance(details, Exception):
        return Answer(0, None)
    try:
        fields = dict(zip(details[::2], details[1::2], strict=True))
        answer = Answer(int(fields.get(b"config-epoch", 0)), (place[0].decode(), int(place[1])))
        if not 0 < int(place[1]) <= MAX_PORT:
            raise ValueError("no port")
    except (ValueError, TypeError, LookupError, AttributeError):
        # Of whatever stands at a sentinel's address; the others' answers count all the same.
        raise InvalidResponse("what it answers is not what a sentinel does") from None
    return answer


def _options(address: Address, host: Host, connect_timeout: float) -> dict[str, Any]:
    return {
        "host": host[0],
        "port": host[1],
        "protocol": 2,
        "credential_provider": provider(address.sentinel_login),
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": min(connect_timeout, ANSWER_SECONDS),
        # Sentinels know no CLIENT SETINFO.
        "driver_info": None,
    }


def _plain(address: Address, host: Host) -> Address:
    """Return the address of one sentinel, itself a server like another."""
    return Address(Shape.STANDALONE, (host,), login=address.sentinel_login, tls=address.tls)


class Sentinels:
    """The sentinels of one service, asked by asyncio."""

    def __init__(self, address: Address, connect_timeout: float) -> None:
        self._address = address
        self._clients = [self._client(host, connect_timeout) for host in address.hosts]
        self._asking: asyncio.Task[Host] | None = None

    def _client(self, host: Host, connect_timeout: float) -> Redis:
        pool = cast("Any", ConnectionPool)(
            connection_class=connection_class(_plain(self._address, host), Course()),
            retry=Retry(NoBackoff(), 0),
            **_options(self._address, host, connect_timeout),
        )
        return Redis.from_pool(pool)

    async def primary(self) -> Host:
        """Return where the primary is. Who asks meanwhile joins, so a lost primary is one question.

        Raises:
            Ours: nobody says.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            # Whoever asked may have been cancelled.
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Host:
        answers: list[Answer] = []
        errors: list[Exception] = []
        loop = asyncio.get_running_loop()
        waiting = {loop.create_task(self._ask_one(client)) for client in self._clients}
        try:
            while waiting and not (is_enough(len(answers), len(self._clients)) and best(answers)):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        answers.append(task.result())
                    except (RedisError, OSError, RuntimeError) as error:
                        errors.append(error)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        host = best(answers)
        if host is None:
            raise ours(unknown(self._address, answers, errors))
        return host

    async def _ask_one(self, client: Redis) -> Answer:
        pipeline: Any = cast("Any", client).pipeline(transaction=False)
        for command in _commands(self._address.service):
            pipeline.execute_command(*command)
        return _answer(*await pipeline.execute(raise_on_error=False))

    async def aclose(self) -> None:
        """Close the connections to the sentinels."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        for client in self._clients:
            await client.aclose()


class SyncSentinels:
    """The same for plain scripts: one sentinel after the other, until a majority has answered."""

    def __init__(self, address: Address, connect_timeout: float) -> None:
        self._address = address
        self._clients = [self._client(host, connect_timeout) for host in address.hosts]

    def _client(self, host: Host, connect_timeout: float) -> SyncRedis:
        pool = cast("Any", SyncConnectionPool)(
            connection_class=sync_connection_class(_plain(self._address, host), Course()),
            retry=SyncRetry(NoBackoff(), 0),
            **_options(self._address, host, connect_timeout),
        )
        return SyncRedis.from_pool(pool)

    def primary(self) -> Host:
        """Return where the primary is.

        Raises:
            Ours: nobody says.
        """
        answers: list[Answer] = []
        errors: list[Exception] = []
        for client in self._clients:
            pipeline: Any = cast("Any", client).pipeline(transaction=False)
            for command in _commands(self._address.service):
                pipeline.execute_command(*command)
            try:
                answers.append(_answer(*pipeline.execute(raise_on_error=False)))
            except (RedisError, OSError) as error:
                errors.append(error)
            if is_enough(len(answers), len(self._clients)) and best(answers):
                break
        host = best(answers)
        if host is None:
            raise ours(unknown(self._address, answers, errors))
        return host

    def close(self) -> None:
        """Close the connections to the sentinels."""
        for client in self._clients:
            client.close()


class Watch:
    """Takes the clients of one process along when the primary moves, whatever their connections wait for."""

    def __init__(self, sentinels: Sentinels, moved: Callable[[Host], Any]) -> None:
        self._sentinels = sentinels
        self._moved = moved
        self._host: Host | None = None

    async def run(self) -> None:
        """Watch for ever."""
        failures = 0
        while True:
            try:
                host = await self._sentinels.primary()
                failures = 0
            except RedisError as error:
                failures += 1
                if failures == 1:
                    _log.warning("sentinels_unreachable", extra={"error": str(error)})
            except Exception:  # a bug here must not leave the clients behind
                _log.exception("sentinel_watch_failed")
            else:
                if host != self._host:
                    if self._host is not None:
                        _log.warning(
                            "redis_primary_moved", extra={"from": shown(self._host), "to": shown(host)}
                        )
                    self._host = host
                    await self._moved(host)
            await asyncio.sleep(POLL_SECONDS)


async def drop(connections: Iterable[Any], host: Host) -> None:
    """Close the connections that are in use to another place: whoever waits on one fails, and tries again."""
    for connection in [each for each in connections if (each.host, each.port) != host]:
        with contextlib.suppress(RedisError, OSError):
            await connection.disconnect(nowait=True)
