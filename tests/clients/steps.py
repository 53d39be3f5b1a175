"""What every Python client script shares: its options, its steps, and the line to the test that runs it.

Runs in the environment of the client it drives, so it needs the standard library only. Each step prints one
line, `@@ {"step": …, "state": …}`. What must happen outside the client (a publish, a replica's death between
two steps) the script asks for by POST to the test's control address and waits for the answer.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import urllib.request
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

TEXT = "test://static-text"
BINARY = "test://static-binary"
WATCHED = "test://watched-resource"
MISSING = "test://no-such-resource-for-acceptance"
TEMPLATE = "test://template/{id}/data"
INSTANCE = "test://template/123/data"
UPDATED = "notifications/resources/updated"
LIST_CHANGED = "notifications/resources/list_changed"
WAIT = 15.0
"""Seconds that a notification may take: a replica may just have been killed."""


@dataclass(frozen=True)
class Options:
    """What the test says: endpoint, tenant, era, and its control address."""

    url: str
    control: str
    tenant: str
    mode: str

    @property
    def headers(self) -> dict[str, str]:
        """Name the tenant to a fleet in open mode; with a token in the environment it is the credential's."""
        token = os.environ.get("BROKER_TEST_TOKEN")
        return {"Authorization": f"Bearer {token}"} if token else {"Broker-Tenant": self.tenant}


class Steps:
    """Runs steps, reports each, and goes on after one that failed."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.failed = 0

    @contextlib.asynccontextmanager
    async def step(self, name: str) -> AsyncGenerator[None]:
        """Report what is inside as one step; afterwards let the test do what belongs between two steps."""
        try:
            yield
        except Exception as error:
            self.report(name, "FAIL", f"{type(error).__name__}: {_flat(error)}")
        else:
            self.report(name, "PASS")
        await self.ask(f"between/{name}")

    def report(self, name: str, state: str, detail: str = "") -> None:
        """Print the line that the test reads."""
        self.failed += state == "FAIL"
        print("@@ " + json.dumps({"step": name, "state": state, "detail": detail[:500]}))  # noqa: T201 - the protocol

    async def ask(self, what: str) -> None:
        """Let the test do something, and wait until it is done."""
        await asyncio.to_thread(_post, f"{self.options.control}/{what}")

    async def change(self) -> None:
        """Let the watched resource change."""
        await self.ask("change")

    async def relist(self) -> None:
        """Let the list change."""
        await self.ask("relist")


def _post(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as response:
        response.read()


def _flat(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_flat(each) for each in cast("BaseExceptionGroup[Any]", error).exceptions)
    return str(error).replace("\n", " ") or type(error).__name__


async def wait_for(condition: Callable[[], Any], what: str) -> None:
    """Wait until `condition` holds.

    Raises:
        AssertionError: it did not within `WAIT` seconds.
    """
    end = asyncio.get_running_loop().time() + WAIT
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not within {WAIT:g} s: {what}"
        await asyncio.sleep(0.02)


async def watch(
    steps: Steps,
    inbox: list[tuple[str, str]],
    *,
    text: Callable[[], Awaitable[str]],
    subscribe: Callable[[], Awaitable[Any]],
    unsubscribe: Callable[[], Awaitable[Any]],
) -> None:
    """Run the subscription steps of a session; `inbox` gets each notification's method and URI."""

    def cues() -> int:
        return inbox.count((UPDATED, WATCHED))

    def list_changes() -> int:
        return sum(method == LIST_CHANGED for method, _ in inbox)

    before = await text()
    async with steps.step("subscribe"):
        await subscribe()
    async with steps.step("update"):
        await steps.change()
        await wait_for(cues, "a cue")
    async with steps.step("reread"):
        assert await text() != before, "the contents did not change"
    async with steps.step("list-changed"):
        known = list_changes()
        await steps.relist()
        await wait_for(lambda: list_changes() > known, "a list change")
    async with steps.step("unsubscribe"):
        await unsubscribe()
        told, known = cues(), list_changes()
        await steps.change()
        # The list change comes behind the change in the same log: once it is here, no cue will come.
        await steps.relist()
        await wait_for(lambda: list_changes() > known, "a list change")
        assert cues() == told, "cued after unsubscribing"


def run(main: Callable[[Options, Steps], Awaitable[None]]) -> None:
    """Run a script and end with 1 if a step failed."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    for name in ("url", "control", "tenant", "mode"):
        parser.add_argument(f"--{name}", required=True)
    options = Options(**vars(parser.parse_args()))
    steps = Steps(options)

    async def outer() -> None:
        try:
            await main(options, steps)
        except Exception as error:
            steps.report("session", "FAIL", f"{type(error).__name__}: {_flat(error)}")

    asyncio.run(outer())
    sys.stdout.flush()
    sys.exit(1 if steps.failed else 0)
