"""One credential at three replicas at once: a limit is the fleet's, within the slack that is documented."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.support.mcp import Listening, RpcError
from tests.support.redis_server import RedisServer, clear
from tests.support.replica import Fleet
from tests.tenants.yard import Caller, Yard, yard_of

U = "docs://readme"
LIMIT_REACHED = -31429
HAMMERED_SECONDS = 2.0


@pytest.fixture(scope="module")
def three(redis_server: RedisServer) -> Iterator[Fleet]:
    prefix = f"t{secrets.token_hex(4)}"
    with Fleet(redis_server.url, prefix, BROKER_AUTH__MODE="keys") as fleet:
        fleet.add(3)
        yield fleet
    with redis_server.client() as client:
        clear(client, prefix)


@pytest.fixture
async def town(three: Fleet) -> AsyncIterator[Yard]:
    redis = commands(Connect(three.redis_url, Keys(three.prefix)))
    async with yard_of(three, redis) as made:
        yield made
    await redis.aclose()


async def hammered(work: Callable[[int], Awaitable[bool]]) -> tuple[int, float]:
    """Let three workers at each replica do `work` as fast as they can; return how often it was done."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one(replica: int) -> int:
        done = 0
        while loop.time() - began < HAMMERED_SECONDS:
            done += await work(replica)
        return done

    done = sum(await asyncio.gather(*(one(replica) for replica in (0, 1, 2) * 3)))
    return done, loop.time() - began


async def refusal_of(work: Awaitable[object]) -> tuple[int, int] | None:
    """Return status and code of what refused `work`, None if it was done."""
    try:
        await work
    except RpcError as refused:
        return refused.status, refused.code
    return None


async def callers_of(town: Yard, tenant: str, **limits: int) -> list[Caller]:
    await town.control.limit("test", await town.tenant(tenant), limits)
    token = await town.key(tenant)
    return [town.caller(token, replica) for replica in range(3)]


@pytest.mark.parametrize(
    ("name", "slack"),
    [
        # Charged in the script itself.
        ("publishes", 0),
        # Charged in lots of a twentieth of a second, and the last to be admitted may go into debt by one.
        ("principal_publishes", 2),
    ],
)
async def test_publishes_at_three_replicas_keep_to_one_rate(
    town: Yard, tenant: str, name: str, slack: int
) -> None:
    rate = 40
    callers = await callers_of(town, tenant, **{name: rate})

    async def publish(replica: int) -> bool:
        answer = await callers[replica].publish(U, secrets.token_hex(4))
        assert answer.status_code in (200, 429)
        return answer.status_code == 200

    done, passed = await hammered(publish)
    # A second's worth at once, and what comes in meanwhile.
    assert rate <= done <= rate * (passed + 1) + slack + 1


@pytest.mark.parametrize("name", ["reads", "principal_reads"])
async def test_reads_at_three_replicas_keep_to_one_rate(town: Yard, tenant: str, name: str) -> None:
    rate = 40
    callers = await callers_of(town, tenant, **{name: rate})
    await callers[0].publish(U, "x")

    async def read(replica: int) -> bool:
        refused = await refusal_of(callers[replica].modern().read(U))
        assert refused in (None, (200, LIMIT_REACHED))
        return refused is None

    done, passed = await hammered(read)
    assert rate <= done <= rate * (passed + 1) + 1


async def test_streams_at_three_replicas_are_never_more_than_the_limit(town: Yard, tenant: str) -> None:
    callers = await callers_of(town, tenant, streams=7)

    streams: list[Listening] = []

    async def listen(replica: int) -> None:
        async def work() -> None:
            streams.append(await callers[replica].modern().listen([U]))

        assert await refusal_of(work()) in (None, (429, LIMIT_REACHED))

    await asyncio.gather(*(listen(n % 3) for n in range(30)))
    # What one replica has reserved and does not use, another may be refused for a second.
    assert 1 <= len(streams) <= 7
    for stream in streams:
        await stream.close()
