"""Each mechanism of repair is needed: switched off, a fault that it is for leaves somebody untold.

The same small storm, the same fault, twice: as it is nothing is lost, and with the mechanism off the harness
must say that something is. A control that found nothing would mean that the harness sees nothing.
"""

import asyncio
import random

import pytest

from tests.chaos.fault import Fault
from tests.chaos.ledger import Key, Ledger
from tests.chaos.plan import exactly
from tests.chaos.run import Runner
from tests.chaos.shape import Standalone, keys_of
from tests.chaos.storm import TENANTS, URIS, Storm, storm
from tests.support.fault_proxy import READERS
from tests.support.mcp import Handshake, Modern
from tests.support.rollback import Snapshot
from tests.support.wait import until
from tests.support.without import MECHANISMS

ENOUGH = 5.5
"""Seconds to be told in: the 4 s that are promised after a silent loss, and some for a busy machine."""
WATCHED, TOO, OTHER = ((TENANTS[0], uri) for uri in URIS[:3])
"""Two resources that a client of each era watches, and one that nobody does."""


async def trim_one(storm: Storm, rng: random.Random) -> None:
    """Trim a change away before it is read; another follows, so that the sequence has a hole."""
    del rng
    await _trim(storm, [OTHER, WATCHED, TOO], kept=1)


async def trim_all(storm: Storm, rng: random.Random) -> None:
    """Trim the log to nothing before a change is read, and let nothing follow."""
    del rng
    await _trim(storm, [OTHER, WATCHED], kept=0)


async def _trim(storm: Storm, keys: list[Key], *, kept: int) -> None:
    """Keep back what the reader is told, publish, and trim; the first of the changes is in that reply."""
    assert isinstance(storm.shape, Standalone)
    [proxy] = storm.shape.proxies
    proxy.hold(b"XREAD")
    await until(lambda: proxy.held == READERS, "the log's reader held back")
    for key in keys:
        assert await storm.publish(key)
    with storm.shape.redis.client() as client:
        client.xtrim(keys_of(storm.shape, TENANTS[0])[0], maxlen=kept, approximate=False)
    proxy.release()


async def go_back(storm: Storm, rng: random.Random) -> None:
    """Take Redis back to before a change that was told, and let nothing follow."""
    del rng
    await _go_back(storm, None)


async def go_back_and_grow(storm: Storm, rng: random.Random) -> None:
    """Take Redis back to before a change that was told; one of another resource takes its number."""
    del rng
    await _go_back(storm, TOO)


async def _go_back(storm: Storm, then: Key | None) -> None:
    assert isinstance(storm.shape, Standalone)
    with storm.shape.redis.client() as client:
        snapshot = Snapshot(client, storm.fleet.prefix)
        cues = [follower.cues[WATCHED[1]] for follower in storm.followers]
        assert await storm.publish(WATCHED)
        await until(lambda: _is_told(storm, cues), "the change that will be lost was told")
        snapshot.restore()
    if then is not None:
        assert await storm.publish(then)


def _is_told(storm: Storm, cues: list[int]) -> bool:
    told = [follower.cues[WATCHED[1]] for follower in storm.followers]
    return storm.is_quiet() and all(now > then for now, then in zip(told, cues, strict=True))


CONTROLS = {
    "resync": go_back,
    "heartbeat": go_back,
    "sequence": trim_one,
    "fork": go_back_and_grow,
    "deafness": trim_all,
}


@pytest.mark.parametrize("mechanism", CONTROLS)
async def test_a_mechanism_that_is_switched_off_is_missed(mechanism: str) -> None:
    assert set(CONTROLS) == set(MECHANISMS)
    fault = Fault("control", CONTROLS[mechanism])
    off = {"MODULE": "tests.support.without", "WITHOUT": mechanism}
    whole, broken = await asyncio.gather(_run(fault, {}), _run(fault, off))
    assert (whole.owed, whole.lost) == (whole.cued, [])
    assert whole.owed > 0
    assert broken.lost, f"without {mechanism} nothing was lost: {broken}"


async def _run(fault: Fault, settings: dict[str, str]) -> Ledger:
    """Inject one fault into one replica that a client of each era watches; returns what came of it."""
    shape = await asyncio.to_thread(Standalone, "chaos", 1)
    try:
        async with storm(shape, 1, replicas=1, workers=0, settings=settings) as made:
            for era in (Handshake, Modern):
                made.follow(era, TENANTS[0], [WATCHED[1], TOO[1]], random.Random(1))
            await made.until_quiet(10)
            await Runner(made, {fault.name: fault}, quiet=ENOUGH).run(exactly(1, [fault.name]))
            return made.ledger
    finally:
        await asyncio.to_thread(shape.close)
