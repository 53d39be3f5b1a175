"""A client that gives up takes nobody's answer with it: no aborted request hands its reply to another."""

import asyncio
import random

import httpx

from tests.replicas.conftest import TENANT, Bench
from tests.support.mcp import Handshake, Modern
from tests.support.wait import until

RESOURCES = 12
REQUESTS = 400
MOST_SECONDS = 0.03
"""A request is given up within this time; an answer takes about 20 ms, by the proxy's delay."""


async def test_every_answer_is_its_own_while_other_clients_abort_their_requests(bench: Bench) -> None:
    """Reads of both eras on few connections to a slow Redis; half of the clients hang up at any moment."""
    fleet = bench.fleet(BROKER_REDIS__POOL_SIZE="4")
    for number in range(RESOURCES):
        await bench.publisher.publish(f"docs://{number}", f"contents of {number}")
    session = Handshake(fleet[0].url, TENANT, bench.http)
    await session.initialize()
    bench.proxy.delay(0.005)
    rng = random.Random(1)
    answered = [0, 0]

    async def read(number: int, *, is_impatient: bool) -> None:
        reader = session if number % 2 else Modern(fleet[0].url, TENANT, bench.http)
        patience = rng.uniform(0, MOST_SECONDS) if is_impatient else None
        async with asyncio.timeout(patience):
            text = (await reader.read(f"docs://{number}"))[0]["text"]
        assert text == f"contents of {number}"
        answered[is_impatient] += 1

    async def client(is_impatient: bool) -> None:  # noqa: FBT001 - one of two kinds
        for _ in range(REQUESTS // 40):
            try:
                await read(rng.randrange(RESOURCES), is_impatient=is_impatient)
            except (TimeoutError, httpx.TransportError):
                assert is_impatient, "a patient client got no answer"

    await asyncio.gather(*(client(number % 2 == 1) for number in range(40)))
    patient, impatient = answered
    assert patient == REQUESTS // 2
    assert impatient < REQUESTS // 2, "nobody ever gave up"
    bench.proxy.pass_all()
    await until(lambda: asyncio.to_thread(fleet[0].is_ready), "the replica is as before")
    await read(0, is_impatient=False)
