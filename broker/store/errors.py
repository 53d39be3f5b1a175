"""Redis' errors as ours, translated once.

What a later attempt may cure is `StoreUnavailable`; what only an operator can is `WrongStore`. Cluster and
pool errors are not all RedisErrors (SlotNotCoveredError is a RedisClusterException), so the table is by
what they mean, not by their tree.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from redis import exceptions as rx

from broker.core.errors import BrokerError, LimitReached, SessionNotFound, StoreUnavailable, WrongStore

_RETRYABLE_REPLIES = (
    "LOADING",
    "READONLY",
    "NOREPLICAS",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "BUSY",
    "OOM",
    "MISCONF",
    "UNKILLABLE",
    "UNBLOCKED",
)
"""Error codes that pass: restart, failover, full memory, a disk that is full, a script that runs too long."""


class Ours(rx.RedisError):
    """One of our errors, raised inside of the client, where only its own are cleaned up after."""

    def __init__(self, error: BrokerError) -> None:
        cast("Any", super()).__init__(str(error))  # its keyword arguments are untyped
        self.error = error


class OursForNow(Ours, rx.ConnectionError):
    """The same, which the client is to try again: the next connection may fare better."""


def ours(error: BrokerError) -> Ours:
    """Return `error` as the client may be handed it."""
    return OursForNow(error) if error.retryable else Ours(error)


_PASSING = (rx.ReadOnlyError, rx.ClusterDownError, rx.TryAgainError)
"""The same where the client has taken the code away. (Its BusyLoadingError is a ConnectionError.)"""


def meaning(error: Exception) -> Exception:
    """Return our error for one of the client's, or the error itself if it is not about Redis."""
    # The async client wraps what it does not know in an error of its own.
    for one in (error, error.__cause__):
        if isinstance(one, Ours):
            return one.error
    if isinstance(error, rx.OutOfMemoryError):
        return StoreUnavailable(
            "Redis is out of memory, so nothing can be written; raise maxmemory or remove data, then retry."
        )
    if isinstance(error, rx.AuthenticationError):
        return StoreUnavailable(
            f"Redis refused our credentials; check user and password in BROKER_REDIS_URL or "
            f"BROKER_REDIS__PASSWORD_FILE ({_short(error)})."
        )
    if isinstance(error, rx.ResponseError):
        return _reply_meaning(error)
    if isinstance(error, rx.RedisError | rx.RedisClusterException | OSError | TimeoutError) or is_cut(error):
        return StoreUnavailable(f"Redis cannot be reached now; retry shortly ({_short(error)}).")
    return error


def is_split(error: Exception) -> bool:
    """Whether an error of ours says that the keys are on two nodes of a cluster: their slot is on its way."""
    return isinstance(error.__cause__, rx.TryAgainError)


def is_cut(error: Exception) -> bool:
    """Whether uvloop says that a connection was closed before it was written to.

    asyncio raises a ConnectionError there, uvloop a bare RuntimeError, which the client takes for a bug.
    """
    return isinstance(error, RuntimeError) and "the handler is closed" in str(error)


_DEMOTED = ("READONLY", "UNBLOCKED", "MASTERDOWN")
_CUT_OFF = "NOREPLICAS"


def is_demotion(error: Exception) -> bool:
    """Whether the server says that it is the primary no more, by itself or from inside of a script."""
    text = str(error)
    # redis-py drops the code of those that it knows; 6.2 puts its own words before what a script raised.
    return isinstance(error, rx.ReadOnlyError | rx.MasterDownError) or (
        isinstance(error, rx.ResponseError) and (text.startswith(_DEMOTED) or "-READONLY" in text)
    )


def is_cut_off(error: Exception) -> bool:
    """Whether the server says that too few replicas follow it: perhaps they follow another one by now."""
    return isinstance(error, rx.ResponseError) and _CUT_OFF in str(error)


def _reply_meaning(error: rx.ResponseError) -> Exception:
    if isinstance(error, rx.TryAgainError | rx.AskError | rx.ClusterDownError | rx.MasterDownError):
        # What a cluster says of a slot that moves, or that nobody serves; it passes.
        return StoreUnavailable(f"The Redis Cluster cannot answer now; retry shortly ({_short(error)}).")
    text = str(error)
    word, _, rest = text.partition(" ")
    if isinstance(error, _PASSING) or word in _RETRYABLE_REPLIES or is_demotion(error):
        return StoreUnavailable(f"Redis cannot write now; retry shortly ({_short(error)}).")
    if word == "WRONGTYPE" or "WRONGTYPE" in text:
        return WrongStore(
            f"A key of ours has another type ({_short(error)}); something else writes to this Redis under "
            "our prefix. Remove that key or choose another BROKER_PREFIX."
        )
    # Redis 7.0 says it in its own words when a command inside a script is refused.
    if (
        isinstance(error, rx.NoPermissionError)
        or word == "NOPERM"
        or "user executing the script can't" in text
    ):
        return WrongStore(f"The Redis user lacks a permission that we need ({_short(error)}).")
    ours = _script_meaning(word, rest)
    if ours is not None:
        return ours
    return WrongStore(f"Redis answered with an error that we do not know ({_short(error)}).")


def _script_meaning(word: str, rest: str) -> Exception | None:
    """What one of our scripts refused, by its first word; None for what is not theirs."""
    match word:
        case "NOSESSION":
            return SessionNotFound()
        case "LATE":
            return StoreUnavailable("Redis got this too late to be done; retry.")
        case "LIMIT":
            return LimitReached(f"The limit of {rest} is reached; remove something, or ask for more.")
        case "QUOTA":
            return _quota_meaning(*rest.split(" "))
        case "RATE":
            name, milliseconds = rest.split(" ")
            return rate_reached(name, int(milliseconds) / 1000)
        case "SCHEMA":
            return WrongStore(
                f"This Redis holds schema {rest} and this program speaks another; run brokers and workers of "
                "neighbouring releases, or choose another BROKER_PREFIX."
            )
        case "SHARDS":
            return WrongStore(
                f"This Redis holds an installation with {rest} shards; this program has another number."
            )
        case _:
            return None


_QUOTAS = {
    "resources": "has {limit} resources, which is its limit: remove some",
    "content_bytes": "would store more than {limit} bytes of contents: remove some, or publish less",
    "resource_bytes": "may publish {limit} bytes as one resource (encoded): publish less, or several",
    "streams": "has {limit} open streams, which is its limit: close some",
    "stream_uris": "may watch {limit} resources on one stream: name fewer, or open several",
    "uris": "watches {limit} resources on its streams and in its sessions, which is its limit: watch fewer",
    "sessions": "has {limit} sessions, which is its limit: end some with DELETE",
    "calls": "has {limit} calls to workers under way, which is its limit: wait for some",
    "principal_streams": "has {limit} open streams, which is the limit of one caller: close some",
    "principal_sessions": "has {limit} sessions, which is the limit of one caller: end some with DELETE",
}
_RATES = {
    "principal_publishes": "publishes more changes",
    "principal_publish_bytes": "publishes more bytes",
    "publishes": "publishes more changes",
    "publish_bytes": "publishes more bytes",
    "reads": "reads more",
    "principal_reads": "reads more",
}


def quota_reached(name: str, limit: int) -> LimitReached:
    """Return the refusal of what a tenant or a caller has too much of."""
    whom = "This credential's holder" if name.startswith("principal_") else "This tenant"
    return LimitReached(f"{whom} {_QUOTAS[name].format(limit=limit)}, or ask for a higher limit.", limit=name)


def rate_reached(name: str, seconds: float) -> LimitReached:
    """Return the refusal of what comes too fast; `seconds` from now it may come."""
    whom = "This credential's holder" if name.startswith("principal_") else "This tenant"
    return LimitReached(f"{whom} {_RATES[name]} than it may; try again in a moment.", seconds, name)


def _quota_meaning(name: str, limit: str) -> LimitReached:
    return quota_reached(name, int(limit))


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


@contextmanager
def translated() -> Generator[None]:
    """Raise our errors instead of the client's.

    Raises:
        StoreUnavailable: retry later.
        WrongStore: an operator must act.
    """
    try:
        yield
    except Exception as error:
        ours = meaning(error)
        if ours is error:
            raise
        raise ours from error
