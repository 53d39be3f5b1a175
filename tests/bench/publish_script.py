"""What publishing costs Redis: the script against a bare HSET and XADD of the same bytes, in one run.

    .venv/bin/python -m tests.bench.publish_script [calls in a round]

Measured is the CPU time of the server's process, since Redis is what all tenants share. Rounds of both kinds
alternate, and only their ratio counts: times drift by 30 % between runs. "alone" waits for each answer,
"piped" sends 16 at once, where the system calls are shared and the commands themselves stand out.
The aim is 4 times at most, and 2 for what is unchanged (docs/adr/0003).
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from broker.core.identity import ResourceKey, TenantId
from broker.core.publication import Publication, describe
from broker.store.client import Connect, commands_sync
from broker.store.keys import Keys
from broker.store.publishing import publish
from broker.store.scripts import script
from tests.support.redis_server import RedisServer

ROUNDS = 9
URIS = 500
BODY = "x" * 1000
TENANT = TenantId("acme")
DESCRIPTION = {"title": "A page of the handbook", "description": "What everybody should know." * 3}

Command = tuple[Any, ...]


class Bench:
    """A server, and the two ways to write to it."""

    def __init__(self, server: RedisServer, calls: int) -> None:
        self.server = server
        self.calls = calls
        self.keys = Keys()
        self.redis: Any = commands_sync(Connect(server.url, self.keys))
        self._n = 0

    def changed(self) -> Publication:
        """Return the next contents of the next URI."""
        self._n += 1
        key = ResourceKey(TENANT, f"docs://handbook/page-{self._n % URIS}.md")
        about: dict[str, Any] = DESCRIPTION
        return describe(key, f"{self._n} {BODY}", mime_type="text/markdown", **about)

    def scripted(self) -> list[Command]:
        return [("EVALSHA", *publish(self.keys, self.changed()).command)]

    def unchanged(self) -> list[Command]:
        key = ResourceKey(TENANT, "docs://handbook/still.md")
        return [("EVALSHA", *publish(self.keys, describe(key, BODY)).command)]

    def bare(self) -> list[Command]:
        what = self.changed()
        uri, n = what.key.uri, str(10**15 + self._n)
        return [
            ("XADD", "bare:log", "MAXLEN", "~", "100000", f"{n}-0", "e", "0a1b2c3d", "m", "0a1b2c3d",
             "p", "0a1b2c3d", "k", "c", "t", TENANT, "u", uri),
            ("HSET", f"bare:{uri}", "e", "0a1b2c3d", "n", n, "m", "0a1b2c3d", "dig", what.digest,
             "meta", what.meta, "body", what.body),
        ]  # fmt: skip

    def cost(self, make: Callable[[], list[Command]], depth: int) -> float:
        """Return µs of the server's CPU for one call of `make`."""
        batches = [[command for _ in range(depth) for command in make()] for _ in range(self.calls // depth)]
        before = self.cpu_us()
        for batch in batches:
            self.send(batch)
        return (self.cpu_us() - before) / (len(batches) * depth)

    def send(self, batch: Sequence[Command]) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        for command in batch:
            pipeline.execute_command(*command)
        pipeline.execute()

    def cpu_us(self) -> float:
        """Return the CPU time of the server's main thread so far, from the kernel's own counter in ns."""
        pid = self.server.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1000

    def lines(self) -> list[str]:
        """Run everything and return the table."""
        self.redis.script_load(script("publish").source)
        for _ in range(URIS):
            self.send([*self.scripted(), *self.bare(), *self.unchanged()])
        lines = [f"{'':8}{'bare µs':>10}{'script µs':>12}{'ratio':>8}{'unchanged µs':>15}"]
        for name, depth in (("alone", 1), ("piped", 16)):
            rounds = [
                (
                    self.cost(self.bare, depth),
                    self.cost(self.scripted, depth),
                    self.cost(self.unchanged, depth),
                )
                for _ in range(ROUNDS)
            ]
            bare, scripted, same = (statistics.median(column) for column in zip(*rounds, strict=True))
            ratio = statistics.median(cost / base for base, cost, _ in rounds)
            lines.append(f"{name:8}{bare:>10.1f}{scripted:>12.1f}{ratio:>8.2f}{same:>15.1f}")
        return lines


def main(argv: list[str]) -> None:
    """Print the table."""
    calls = int(argv[0]) if argv else 4000
    with RedisServer() as server:
        bench = Bench(server, calls)
        version = cast("dict[str, Any]", bench.redis.info("server"))
        print(version.get("valkey_version") or version["redis_version"], f"{calls} calls, {ROUNDS} rounds")  # noqa: T201 # its purpose
        for line in bench.lines():
            print(line)  # noqa: T201 # its purpose
        bench.redis.close()


if __name__ == "__main__":
    main(sys.argv[1:])
