"""Several decided calls in one round trip, each with its own answer.

Not atomic: each call is all or nothing by itself, and one that is refused does not hold up the rest. The
client resends the whole batch if its reply is lost; writing calls carry tokens, so nothing happens twice.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError

from broker.core.errors import BrokerError
from broker.store.errors import meaning, translated
from broker.store.scripts import Call, run, run_sync

if TYPE_CHECKING:
    from redis import Redis as SyncRedis
    from redis.asyncio import Redis

T = TypeVar("T")


async def run_batch(redis: "Redis", calls: Sequence[Call[T]]) -> list[T | BrokerError]:
    """Send `calls` and return the answer or the refusal of each, in their order."""
    try:
        with translated():
            replies = await _queued(redis, calls).execute(raise_on_error=False)
    except BrokerError as error:
        return [error] * len(calls)
    answers: list[T | BrokerError] = []
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, NoScriptError):
            try:
                answers.append(await run(redis, call))
            except BrokerError as error:
                answers.append(error)
        else:
            answers.append(_answer(call, reply))
    return answers


def run_batch_sync(redis: "SyncRedis", calls: Sequence[Call[T]]) -> list[T | BrokerError]:
    """Do what `run_batch` does, for plain scripts."""
    try:
        with translated():
            replies = _queued(redis, calls).execute(raise_on_error=False)
    except BrokerError as error:
        return [error] * len(calls)
    answers: list[T | BrokerError] = []
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, NoScriptError):
            try:
                answers.append(run_sync(redis, call))
            except BrokerError as error:
                answers.append(error)
        else:
            answers.append(_answer(call, reply))
    return answers


def _queued(redis: Any, calls: Sequence[Call[Any]]) -> Any:
    pipeline = redis.pipeline(transaction=False)
    for call in calls:
        pipeline.execute_command("EVALSHA", *call.command)
    return pipeline


def _answer(call: Call[T], reply: Any) -> T | BrokerError:
    if isinstance(reply, Exception):
        error = meaning(reply)
        if isinstance(error, BrokerError):
            return error
        raise error
    try:
        return call.read(reply)
    except BrokerError as error:
        return error


def size(call: Call[Any]) -> int:
    """Return about how many bytes `call` sends."""
    return sum(len(arg) if isinstance(arg, str | bytes) else 20 for arg in call.args)
