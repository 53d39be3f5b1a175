"""What has no streams: reads beside the official SDK's, and pages of a list that grows to a million.

Answers are counted by the load generator on eight kept connections, which ask again at once.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from broker.core.identity import ResourceKey, TenantId
from broker.core.publication import describe
from broker.store import publishing
from broker.wire.cursor import CursorCodec
from tests.bench import plan
from tests.bench.host import tree
from tests.bench.measurement import run
from tests.bench.ours import Installation, installation
from tests.bench.peers import PROGRAMS, PYTHON, program
from tests.bench.plan import Record
from tests.bench.results import Row
from tests.support.process import free_port

CONNECTIONS = 8
CONTENTS = "x" * 1000
PAGES = 50
"""Pages that are asked for in turns, all over the list."""

CLONE = """
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local uri = string.format('%s%07d', ARGV[3], i)
  redis.call('HSET', KEYS[1] .. uri, unpack(cjson.decode(ARGV[4])))
  redis.call('ZADD', KEYS[2], 0, uri)
end
"""
"""Stores what the product stored once, under many names: publishing a million takes minutes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom to ask what: `expects` is in every right answer."""

    door: str
    requests: Sequence[bytes]
    expects: str
    servers: Sequence[int]
    stores: Sequence[int] = ()


async def ask(asked: Asked, answers: int) -> Row:
    """Ask so often and return what it cost."""
    with tempfile.TemporaryDirectory(prefix="mrb-bench-") as folder:
        records = (Record(0, 0, 1, 0, request) for request in asked.requests)
        path = plan.write(Path(folder) / "requests", records)
        arguments = [
            "--doors", asked.door, "--streams", str(path), "--ask", str(answers), "--expect", asked.expects,
            "--connections", str(CONNECTIONS), "--servers", ",".join(map(str, asked.servers)),
        ]  # fmt: skip
        if asked.stores:
            arguments += ["--stores", ",".join(map(str, asked.stores))]
        return await run(arguments)


def read_request(uri: str, headers: dict[str, str]) -> bytes:
    return plan.modern("resources/read", {"uri": uri}, 1, {"mcp-name": uri, **headers})


async def reads(pairs: int, answers: int) -> AsyncGenerator[Row]:
    """Yield reads of ours and of the SDK's static resource, in turns."""
    uri = plan.uri(0)
    async with installation() as ours, sdk() as (door, servers):
        call = publishing.publish(ours.keys, describe(ResourceKey(ours.tenants[0], uri), CONTENTS))
        ours.send([plan.resp("EVALSHA", *call.command)])
        entrants = {
            "broker": Asked(
                ours.doors[0], [read_request(uri, ours.credential(0))], CONTENTS, ours.servers, ours.stores
            ),
            "python-sdk": Asked(door, [read_request(uri, {"host": door})], CONTENTS, servers),
        }
        for number in range(pairs):
            for name, asked in entrants.items():
                found = await ask(asked, answers)
                yield {"scenario": "read", "system": name, "round": number, "x": 0, **found}


@contextlib.asynccontextmanager
async def sdk() -> AsyncGenerator[tuple[str, list[int]]]:
    """Run the SDK's server with its one resource; give where it is and its processes."""
    port = free_port()
    argv = [str(PYTHON), str(PROGRAMS / "python_sdk.py"), str(port), "0", "--reads"]
    with tempfile.TemporaryDirectory(prefix="mrb-bench-") as folder:
        async with program("python-sdk", argv, [port], Path(folder)) as process:
            yield f"127.0.0.1:{port}", tree(process.pid)


async def pages(totals: Iterable[int], answers: int, rounds: int) -> AsyncGenerator[Row]:
    """Yield pages of 100 out of ever more resources, begun all over the list."""
    async with installation() as ours:
        tenant = ours.tenants[0]
        stored = 0
        for total in totals:
            await asyncio.to_thread(clone, ours, tenant, stored, total)
            stored = total
            first = plan.modern("resources/list", {}, 1, ours.credential(0))
            # The fleet's secret for cursors is made with the first page that is asked for.
            await ask(Asked(ours.doors[0], [first], '"nextCursor"', ours.servers), CONNECTIONS)
            codec = CursorCodec(await asyncio.to_thread(_secret, ours))
            starts = [(number * total // PAGES) for number in range(PAGES)]
            cursors = [codec.encode(tenant, name(start)) for start in starts if start < total - 100]
            requests = [
                plan.modern("resources/list", {"cursor": cursor}, 1, ours.credential(0)) for cursor in cursors
            ]
            asked = Asked(ours.doors[0], requests, '"nextCursor"', ours.servers, ours.stores)
            for number in range(rounds):
                found = await ask(asked, answers)
                yield {"scenario": "page", "system": "broker", "round": number, "x": total, **found}


def name(number: int) -> str:
    return f"bench://page/{number:07d}"


def clone(ours: Installation, tenant: TenantId, first: int, end: int) -> None:
    """Store the resources from `first` to before `end` as copies of one that was published."""
    key = ResourceKey(tenant, "bench://page/original")
    call = publishing.publish(
        ours.keys, describe(key, CONTENTS, title="A page", description="Of a handbook.")
    )
    ours.send([plan.resp("EVALSHA", *call.command)])
    with ours.redis.client() as client:
        redis = cast("Any", client)
        fields: list[bytes] = [
            part for pair in redis.hgetall(ours.keys.resource(key)).items() for part in pair
        ]
        # What it says of itself would be the original's URI in each; pages are as long as they would be.
        packed = json.dumps([field.decode() for field in fields])
        prefix = ours.keys.resource(ResourceKey(tenant, ""))
        for start in range(first, end, 5000):
            redis.eval(
                CLONE,
                2,
                prefix,
                ours.keys.order(tenant),
                start,
                min(start + 5000, end) - 1,
                name(0)[:-7],
                packed,
            )


def _secret(ours: Installation) -> bytes:
    with ours.redis.client() as client:
        return cast("Any", client).get(ours.keys.secret())
