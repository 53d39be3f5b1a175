"""Runs a plan against a storm: hurt, wait until everybody knows, count.

A group's end is the judgement: nothing is published any more, Redis answers, and within `QUIET` each client
must know what Redis holds, woken by nothing but cues. It reads the truth past all replicas and caches.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import redis

from broker.core.errors import BrokerError
from tests.chaos import worker
from tests.chaos.fault import Fault
from tests.chaos.faults import FAULTS
from tests.chaos.ledger import Key
from tests.chaos.plan import Group, shown
from tests.chaos.report import Run
from tests.chaos.shape import SHAPES, command, probe, version
from tests.chaos.storm import LIVE, REPLICAS, TENANTS, URIS, Storm, logs, now, populate, storm
from tests.support.follower import Follower
from tests.support.redis_server import NoServer
from tests.support.wait import until, within

QUIET = 25.0
"""Seconds until everybody must know: dead replicas lapse after 5, clients come back, reads follow."""
POLL = 0.05
"""Seconds between two looks at what Redis holds and everybody knows."""
STEP = 90.0
"""Longest any single fault may take, its healing included: a split election is tried again after 10 s."""

Truth = dict[Key, str | None]


@dataclass
class Before:
    """When a group began, and how much everybody had learned of each URI by then."""

    at: float
    lessons: list[tuple[Follower, dict[str, int]]]


@dataclass(frozen=True)
class Settled:
    """What Redis held in the end, since when it answered with that, and whether everybody knows it."""

    truth: Truth
    answered_at: float
    is_told: bool


class Runner:
    """Runs groups of `faults` on one storm.

    `quiet` is how many seconds everybody has to come to know, `slack` what is allowed above what is promised.
    """

    def __init__(
        self,
        storm: Storm,
        faults: Mapping[str, Fault] = FAULTS,
        *,
        quiet: float = QUIET,
        slack: float = 0.0,
    ) -> None:
        self.storm = storm
        self._faults = faults
        self.ledger = storm.ledger
        self._quiet = quiet
        self._slack = slack

    async def run(self, groups: Sequence[Group]) -> None:
        """Run a plan to its end; what is lost is in the ledger, and the run goes on."""
        for group in groups:
            await self._probe()
            await self._run_group(group)

    async def _probe(self) -> None:
        """Publish while nothing is wrong, and time the cues."""
        began: dict[Key, float] = {}
        for key in self.storm.keys(self.storm.rng, 4):
            began[key] = now()
            await self.storm.publish(key)
        if not (await self._settle(now())).is_told:
            return  # the group that comes is judged all the same
        for follower in self.storm.followers:
            for uri in follower.uris:
                told = follower.told_at.get(uri)
                start = began.get((follower.tenant, uri))
                if start is not None and told is not None and follower.stands_since < start <= told:
                    self.ledger.calm.append(told - start)

    async def _run_group(self, group: Group) -> None:
        faults = [self._faults[step.fault] for step in group]
        before = Before(now(), [(follower, dict(follower.lessons)) for follower in self.storm.followers])
        repeats = self._repeats()
        for step, fault in zip(group, faults, strict=True):
            if fault.loses:
                await self.storm.until_quiet(self._quiet)
            self.ledger.faults[step.fault] += 1
            await within(fault.run(self.storm, step.rng), f"the end of {step}", STEP)
        await until(self._answers, f"Redis answers after {shown([group])}", STEP)
        settled = await self._settle(now())
        self._judge(group, faults, before, settled)
        assert settled.is_told or self.ledger.lost, (
            f"{shown([group])}: somebody is not idle: {self.storm.followers}"
        )
        self.ledger.repeated += max(0, self._repeats() - repeats)
        await within(asyncio.to_thread(self.storm.shape.heal), f"healing after {shown([group])}", STEP)

    def _judge(self, group: Group, faults: Sequence[Fault], before: Before, settled: Settled) -> None:
        """Count what was owed, told and lost, and how long it took."""
        truth = settled.truth
        worst = 0.0
        for follower, lessons in before.lessons:
            if follower not in self.storm.followers:
                continue
            for uri in follower.uris:
                key = (follower.tenant, uri)
                if follower.known.get(uri) != truth[key]:
                    self.ledger.missed(f"{shown([group])}: {follower!r} should know {truth[key]!r} of {uri}")
                elif follower.lessons[uri] != lessons[uri]:
                    stood = follower.stands_since < before.at
                    cued_at = follower.told_at.get(uri) if stood else None
                    worst = max(worst, self.ledger.told(key, cued_at, settled.answered_at))
        name = " ".join(step.fault for step in group)
        self.ledger.recovered(name, worst, max(fault.bound for fault in faults) + self._slack)

    def _repeats(self) -> int:
        return sum(follower.repeats for follower in self.storm.followers)

    async def _settle(self, answered_at: float) -> Settled:
        """Wait until everybody knows what Redis holds.

        That may change once more by itself: sentinels that learn late that their primary came back empty put
        another in its place. Then it is from there that everybody has time to come to know.
        """
        settled = Settled(await self._truth(), answered_at, is_told=False)
        end = now() + self._quiet
        while now() < end:
            truth = await self._truth()
            if truth != settled.truth:
                settled, end = Settled(truth, now(), is_told=False), now() + self._quiet
            if not await self._is_touch_said():
                continue
            if all(_knows(follower, truth) for follower in self.storm.followers):
                return Settled(truth, settled.answered_at, is_told=True)
            await asyncio.sleep(POLL)
        return settled

    async def _answers(self) -> bool:
        """Whether the server that has the keys takes a write."""
        shape = self.storm.shape
        try:
            await asyncio.to_thread(lambda: command(shape.server(LIVE), *probe(shape, LIVE)))
        except (redis.RedisError, NoServer):
            return False
        return True

    async def _is_touch_said(self) -> bool:
        """Repeat a touch that was refused or lost; whether none is owed any more."""
        if self.storm.is_touch_owed:
            await self.storm.say_touched()
        return not self.storm.is_touch_owed

    async def _truth(self) -> Truth:
        """Return what Redis holds, past caches and replicas, and what the worker's file holds."""
        truth: Truth = {(LIVE, worker.URI): self.storm.file.read_text()}
        for key in ((tenant, uri) for tenant in TENANTS for uri in URIS):
            (truth[key],) = await until(lambda key=key: self._held(*key), "Redis answers", 30)
        return truth

    async def _held(self, tenant: str, uri: str) -> tuple[str | None] | None:
        """Return what Redis holds in a tuple, None while it does not answer."""
        try:
            stored = await self.storm.publishers[tenant].read(uri)
        except BrokerError:
            return None
        return (None if stored is None else json.loads(stored.contents)[0]["text"],)


async def run(
    shape_name: str,
    seed: int,
    groups: Sequence[Group],
    *,
    slack: float = 0.0,
    prefix: str = "chaos",
) -> Run:
    """Start a shape and a storm, run a plan on it, and end everything; `slack` as in `Runner`.

    Raises:
        AssertionError: something is wrong that is not a lost cue, which is in the run's ledger.
    """
    began = time.monotonic()
    shape = await asyncio.to_thread(SHAPES[shape_name], prefix, REPLICAS)
    try:
        server = await asyncio.to_thread(lambda: version(shape.server(LIVE)))
        async with storm(shape, seed) as made:
            try:
                await populate(made)
                await Runner(made, slack=slack).run(groups)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{_evidence(made, groups, seed)}") from error
            return Run(shape_name, server, seed, shown(groups), made.ledger, time.monotonic() - began)
    finally:
        await asyncio.to_thread(shape.close)


def _evidence(made: Storm, groups: Sequence[Group], seed: int) -> str:
    tails = [f"log of {name}\n{text}" for name, text in made.fleet.logs()]
    return "\n".join([f"seed {seed}, plan {shown(groups)}", *tails, logs(made.workers)])


def _knows(follower: Follower, truth: Truth) -> bool:
    follower.check()
    for text in follower.known.values():
        is_own = text is None or text.startswith(f"{follower.tenant}|")
        assert is_own, f"{follower!r} read another's {text}"
    expected = {uri: truth[follower.tenant, uri] for uri in follower.uris}
    return follower.is_idle and follower.known == expected
