"""Everybody else as targets: the official SDKs, and nchan, the nginx module in C.

Each gets what it does best: the SDKs are published to within their process, nchan over one kept connection.
"""

import asyncio
import contextlib
import functools
import json
import tempfile
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import install, plan
from tests.bench.host import tree
from tests.bench.plan import Audience, Record
from tests.bench.target import Target
from tests.support.process import Process, free_port
from tests.support.redis_server import RedisServer
from tests.support.wait import until

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = install.HERE.parents[1] / ".venv" / "bin" / "python"
CHANNEL = "bench"


async def accepts(process: Process, port: int) -> None:
    """Wait until somebody listens on `port`."""

    async def does() -> bool:
        assert process.is_running, process.tail()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    await until(does, lambda: f"{process.name} listens on {port}\n{process.tail()}", 30)


@contextlib.asynccontextmanager
async def program(
    name: str, argv: Sequence[str], ports: Sequence[int], folder: Path
) -> AsyncGenerator[Process]:
    """Run a program until it listens on `ports`, then end it, and what it started, by their ids."""
    process = Process(name, argv, folder / f"{name}.log")
    process.start()
    try:
        for port in ports:
            await accepts(process, port)
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(AssertionError):
            await asyncio.to_thread(process.wait, 3)
        process.kill()


def sdk_opens(audience: Audience, door: str, stream: int, first: int) -> Record:
    """Return a listen as every server of the modern era understands it."""
    place = audience.watched(stream) if first < 0 else plan.Place(0, first)
    topic = audience.topic(place) if first < 0 else audience.topics
    uris = [plan.uri(place.uri + k) for k in range(audience.each)]
    return Record(topic, place.uri, audience.each, stream + 1, plan.listen(uris, stream + 1, {"host": door}))


@dataclass
class PythonSdk:
    """The official Python SDK: one process, or two with Redis between them."""

    name: str
    is_tuned: bool = False
    has_redis: bool = False

    @contextlib.asynccontextmanager
    async def running(self, audience: Audience) -> AsyncGenerator[Target]:
        """Run it."""
        assert audience.tenants == 1, f"{self.name} knows no tenants"
        async with contextlib.AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mrb-bench-")))
            port, control = free_port(), free_port()
            argv = [str(PYTHON), str(PROGRAMS / "python_sdk.py"), str(port), str(control)]
            redis = stack.enter_context(RedisServer()) if self.has_redis else None
            if redis is not None:
                argv += ["--redis", str(redis.port), "--workers", "2"]
            if self.is_tuned:
                argv.append("--tuned")
            ports = [port] if redis is not None else [port, control]
            process = await stack.enter_async_context(program(self.name, argv, ports, folder))
            if redis is not None:
                client = stack.enter_context(redis.client())
                await until(
                    lambda: int(client.pubsub_numsub(CHANNEL)[0][1]) == 2,  # pyright: ignore - untyped replies
                    "both processes follow Redis",
                    30,
                )

            def publishes(topic: int) -> Record:
                number = audience.place(topic).uri
                line = f"{number}\n".encode()
                data = plan.resp("PUBLISH", CHANNEL, plan.uri(number)) if redis is not None else line
                return Record(topic, number, 1, 0, data)

            yield Target(
                doors=[f"127.0.0.1:{port}"],
                publisher=f"127.0.0.1:{control if redis is None else redis.port}",
                servers=tree(process.pid),
                stores=[] if redis is None else tree(redis.process.pid),
                opens=functools.partial(sdk_opens, audience, f"127.0.0.1:{port}"),
                publishes=publishes,
            )


@dataclass
class TypescriptSdk:
    """The official TypeScript SDK."""

    name: str = "typescript-sdk"

    @contextlib.asynccontextmanager
    async def running(self, audience: Audience) -> AsyncGenerator[Target]:
        """Run it."""
        assert audience.tenants == 1, f"{self.name} knows no tenants"
        port, control = free_port(), free_port()
        argv = [install.node(), str(install.NODE / "typescript_sdk.mjs"), str(port), str(control)]
        with tempfile.TemporaryDirectory(prefix="mrb-bench-") as folder:
            async with program(self.name, argv, [port, control], Path(folder)) as process:

                def publishes(topic: int) -> Record:
                    number = audience.place(topic).uri
                    return Record(topic, number, 1, 0, f"{number}\n".encode())

                yield Target(
                    doors=[f"127.0.0.1:{port}"],
                    publisher=f"127.0.0.1:{control}",
                    servers=tree(process.pid),
                    stores=[],
                    opens=functools.partial(sdk_opens, audience, f"127.0.0.1:{port}"),
                    publishes=publishes,
                )


@dataclass
class Nchan:
    """nginx with nchan, publishing over HTTP; with Redis it is what several machines of it need."""

    name: str
    has_redis: bool = False

    @contextlib.asynccontextmanager
    async def running(self, audience: Audience) -> AsyncGenerator[Target]:
        """Run it."""
        assert audience.tenants == 1, "nchan knows no tenants"
        assert audience.each == 1, "a stream of nchan has one channel here"
        async with contextlib.AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mrb-bench-")))
            redis = stack.enter_context(RedisServer()) if self.has_redis else None
            port = free_port()
            conf = _configured(folder, port, redis)
            argv = ["nginx", "-c", str(conf), "-p", str(folder)]
            process = await stack.enter_async_context(program(self.name, argv, [port], folder))
            await until(lambda: len(tree(process.pid)) > 1, "nginx has its worker")

            def opens(stream: int, first: int) -> Record:
                number = audience.watched(stream).uri if first < 0 else first
                topic = number if first < 0 else audience.topics
                return Record(topic, number, 1, 0, plan.get(f"/sub/{number}", {}))

            yield Target(
                doors=[f"127.0.0.1:{port}"],
                publisher=f"127.0.0.1:{port}",
                servers=tree(process.pid),
                stores=[] if redis is None else tree(redis.process.pid),
                opens=opens,
                publishes=lambda topic: _over_http(topic, audience.place(topic).uri),
                ready="head",
            )


def _over_http(topic: int, number: int) -> Record:
    params = {"_meta": {"io.modelcontextprotocol/subscriptionId": 0}, "uri": plan.uri(number)}
    cue = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}
    body = json.dumps(cue, separators=(",", ":")).encode()
    return Record(topic, number, 1, 0, plan.post(f"/pub/{number}", {}, body))


def _configured(folder: Path, port: int, redis: RedisServer | None) -> Path:
    """Write nginx' configuration and return where it is."""
    folder.chmod(0o755)  # nginx gives up root
    upstream = f"nchan_redis_server redis://127.0.0.1:{redis.port};" if redis is not None else ""
    text = (PROGRAMS / "nginx.conf.in").read_text()
    conf = folder / "nginx.conf"
    conf.write_text(
        text.format(
            folder=folder,
            module=install.NCHAN,
            port=port,
            upstream=f"upstream rds {{ {upstream} }}" if upstream else "",
            through="nchan_redis_pass rds;" if upstream else "",
        )
    )
    return conf
