"""A broker whose app is a few lines: what the process around it promises is tested without the product.

/slow answers after the file `release` in its directory exists; /stream sends a byte and then stays open until
drained. `--fail` fails to start, `--stuck` never finishes draining, `--die` ends its lifespan by itself when
the file `die` exists.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from broker.cli.serve import serve
from broker.core.errors import Misconfigured, WrongStore
from broker.http.health import Health
from broker.settings import Settings, load
from broker.telemetry import logging
from broker.telemetry.exposition import Exposition
from broker.telemetry.metrics import Metrics
from tests.support.wait import until

FLAGS = set(sys.argv[2:])


class Stub:
    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory
        self.drained = asyncio.Event()
        self.is_leaving = False
        metrics = Metrics()
        metrics.watch(lambda: [("broker_ready", (), float(self.readiness() is None))])
        self.internal = Health(self, Exposition(metrics).page)

    def readiness(self, *, strict: bool = False) -> str | None:
        if self.is_leaving:
            return "draining"
        return "redis was asked for" if strict else None

    def turned_away(self) -> None:
        pass

    async def drain(self) -> None:
        self.is_leaving = True
        if "--stuck" in FLAGS:
            await asyncio.Event().wait()
        self.drained.set()

    async def public(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain")]
        if scope["path"] == "/slow":
            await self._exists("release")
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await self.drained.wait()
        body = f"{scope['state'].get('mark')} {self.settings.redis_url}".encode()
        await send({"type": "http.response.body", "body": body})

    async def _lifespan(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if "--fail" in FLAGS:
            raise WrongStore("This Redis holds another schema; choose another BROKER_PREFIX.")
        scope["state"]["mark"] = "state"
        await send({"type": "lifespan.startup.complete"})
        if "--die" in FLAGS:
            await self._exists("die")
            raise RuntimeError("the reader died")
        await receive()
        (self.directory / "stopped").touch()
        await send({"type": "lifespan.shutdown.complete"})

    async def _exists(self, name: str) -> None:
        await until((self.directory / name).exists, f"the file {name}", 60)


def main() -> int:
    try:
        settings = load()
        logging.configure("info", "json")
        return serve(settings, lambda final: Stub(final, Path(sys.argv[1])))
    except Misconfigured as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
