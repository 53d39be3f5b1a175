"""Whether the benchmark would notice: each fault that a server can have makes a run not exact.

The server here is a few lines that answer listens and tell what its control connection publishes; one cue of
it is lost, told twice, told to a stranger, or told under a wrong id.
"""

import asyncio
import contextlib
import functools
import json
import shutil
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.bench import install
from tests.bench.measurement import Failed, compare, measure
from tests.bench.peers import sdk_opens
from tests.bench.plan import Audience, Place, Record, uri
from tests.bench.results import Results
from tests.bench.scenario import Load
from tests.bench.table import ratios
from tests.bench.target import Target

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator is compiled by gcc")
STREAMS, URIS, ROUNDS = 6, 3, 4
QUICK = {"rest-ms": 40, "quiet-ms": 200, "stall-ms": 2000}
LOAD = Load(Audience(STREAMS, URIS), published=URIS, flat_count=URIS * ROUNDS, patience=QUICK)
FIRST = 3
"""Those that are published to warm up come before."""


def _event(message: dict[str, Any]) -> bytes:
    data = b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass
class Teller:
    """A listening client of the faulty server."""

    id: int
    uri: str
    writer: asyncio.StreamWriter

    def tell(self, about: str, request_id: int | None = None) -> None:
        label = {"io.modelcontextprotocol/subscriptionId": self.id if request_id is None else request_id}
        params = {"_meta": label, "uri": about}
        self.writer.write(_event({"method": "notifications/resources/updated", "params": params}))


class FaultyServer:
    """Tells what is published to who watches it, but for one fault in its last round."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._tellers: list[Teller] = []
        self._published = 0

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        (watched,) = request["params"]["notifications"]["resourceSubscriptions"]
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(_event({"method": "notifications/subscriptions/acknowledged", "params": {}}))
        teller = Teller(request["id"], watched, writer)
        self._tellers.append(teller)
        await reader.read()
        self._tellers.remove(teller)
        writer.close()

    async def publish(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            about = uri(int(line))
            self._published += 1
            is_last = self._published == FIRST + URIS * ROUNDS
            for number, teller in enumerate([one for one in self._tellers if one.uri == about]):
                self._tell(teller, about, self._fault if is_last and number == 0 else "")
        writer.close()

    def _tell(self, teller: Teller, about: str, fault: str) -> None:
        if fault == "lost":
            return
        teller.tell(about, teller.id + 1 if fault == "wrong id" else None)
        if fault == "twice":
            teller.tell(about)
        if fault == "stray":
            next(one for one in self._tellers if one.uri != about).tell(about)
        if fault == "cut":
            teller.writer.close()
        if fault == "ended":
            teller.writer.write(_event({"id": teller.id, "result": {}}))


@dataclass
class Faulty:
    """The faulty server as a system."""

    fault: str
    coalesces: bool = False
    name: str = "faulty"

    @contextlib.asynccontextmanager
    async def running(self, audience: Audience) -> AsyncGenerator[Target]:
        """Run it in this process."""
        server = FaultyServer(self.fault)
        doors = await asyncio.start_server(server.listen, "127.0.0.1", 0)
        control = await asyncio.start_server(server.publish, "127.0.0.1", 0)
        async with doors, control:
            door, publisher = (f"127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in (doors, control))

            def publishes(topic: int) -> Record:
                number = audience.place(topic).uri
                return Record(topic, number, 1, 0, f"{number}\n".encode())

            opens = functools.partial(sdk_opens, audience, door)
            yield Target([door], publisher, [], [], opens, publishes, coalesces=self.coalesces)


@pytest.fixture(autouse=True, scope="module")
def loadgen() -> None:
    if shutil.which("gcc"):
        install.compile_loadgen()


@needs_gcc
async def test_a_server_that_tells_everybody_once_is_exact() -> None:
    found = await measure(Faulty("nothing"), LOAD)
    assert found["exact"], found
    assert found["told"] == STREAMS * ROUNDS


@needs_gcc
@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ("twice", "wrong_streams"),
        ("stray", "stray"),
        ("wrong id", "wrong_id"),
        ("cut", "ended"),
    ],
)
@pytest.mark.parametrize("coalesces", [False, True])
async def test_one_fault_in_one_cue_makes_a_run_inexact(fault: str, field: str, coalesces: bool) -> None:  # noqa: FBT001 # pytest's parameter
    found = await measure(Faulty(fault, coalesces=coalesces), LOAD)
    assert not found["exact"], found
    assert found[field] == 1, found


@needs_gcc
async def test_a_cue_that_never_comes_is_said_and_nothing_is_measured() -> None:
    with pytest.raises(Failed, match=f"stalled: {STREAMS * ROUNDS - 1} of {STREAMS * ROUNDS} cues"):
        await measure(Faulty("lost"), replace(LOAD, patience={**QUICK, "stall-ms": 200}))


@needs_gcc
async def test_the_last_change_may_not_be_lost_in_those_that_coalesce_either() -> None:
    found = await measure(Faulty("lost", coalesces=True), LOAD)
    assert not found["exact"], found
    assert "not told of the last change" in found["fault"], found


def test_the_books_of_a_server_that_counted_something_else_are_wrong() -> None:
    before = {"told": 10.0, "coalesced": 0.0, "changes": 5.0}
    changes = 5.0 + FIRST + URIS * ROUNDS
    found: dict[str, Any] = {"told": 24, "warm_told": 60}
    right = {"told": 94.0, "coalesced": 0.0, "changes": changes}
    assert compare(before, right, found, LOAD) == "right"
    assert compare(before, {**right, "told": 95.0}, found, LOAD) == "wrong"
    assert compare(before, {**right, "changes": changes - 1}, found, LOAD) == "wrong"
    assert compare({}, {}, found, LOAD) == ""


def test_streams_of_several_tenants_watch_their_own_uris_of_the_same_names() -> None:
    audience = Audience(streams=8, uris=4, each=2, tenants=2)
    assert [audience.watched(stream) for stream in range(4)] == [
        Place(0, 0),
        Place(1, 0),
        Place(0, 2),
        Place(1, 2),
    ]
    assert [audience.topic(audience.watched(stream)) for stream in range(4)] == [0, 4, 2, 6]
    assert [audience.place(topic) for topic in (0, 5, 7)] == [Place(0, 0), Place(1, 1), Place(1, 3)]
    assert audience.place(audience.topics).uri == 4, "what nobody watches has a URI of its own"


def test_a_ratio_is_of_neighbours_in_time_and_of_nothing_else() -> None:
    rows = [
        {"scenario": "s", "system": "ours", "round": 0, "x": 0, "cpu_us": 10.0, "exact": True},
        {"scenario": "s", "system": "nchan", "round": 0, "x": 0, "cpu_us": 20.0, "exact": True},
        {"scenario": "s", "system": "ours", "round": 1, "x": 0, "cpu_us": 30.0, "exact": True},
        {"scenario": "s", "system": "nchan", "round": 1, "x": 0, "cpu_us": 10.0, "exact": False},
        {"scenario": "s", "system": "ours", "round": 2, "x": 0, "cpu_us": 15.0, "exact": True},
        {"scenario": "s", "system": "nchan", "round": 2, "x": 0, "cpu_us": 10.0, "exact": True},
    ]
    assert ratios(Results({}, rows), "s", "ours", "nchan", "cpu_us") == [0.5, 1.5]
