"""Brokers of one's own: `workers dev` starts a worker anew when its code changes, `running` serves a test."""

import os
import re
import sys
from pathlib import Path

import pytest
from mcp import Client, MCPError

from tests.support.process import Process
from tests.support.wait import until
from workers import Misconfigured, Worker
from workers.testing import running

SHOP = """
from workers import Worker

worker = Worker("shop")


@worker.resource("config://app")
def get_config() -> str:
    return "{text}"
"""


def _environment(folder: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BROKER_")}
    state = {"BROKER_STATE_DIR": str(folder / "state"), "BROKER_PORT": "0", "BROKER_INTERNAL_PORT": "0"}
    return clean | state


async def _read(url: str) -> str:
    async with Client(url, cache=None) as client:
        try:
            [entry] = (await client.read_resource("config://app")).contents
        except MCPError as error:
            # Between the old worker and the new one there is none, and that is said.
            return str(error)
        return str(getattr(entry, "text", ""))


async def test_an_edited_worker_starts_anew_and_answers_with_its_new_code(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    module = tmp_path / "code" / "shop.py"
    module.write_text(SHOP.format(text="one"))
    argv = [sys.executable, "-m", "workers", "dev", "shop:worker", "--watch", str(module.parent)]
    env = _environment(tmp_path) | {"PYTHONPATH": str(module.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    process = Process("workers dev", argv, tmp_path / "dev.log", env)
    process.start()
    try:
        found = await until(
            lambda: re.search(r"The broker serves (\S+)", process.tail()), process.tail, seconds=40
        )

        async def says(text: str) -> bool:
            return await _read(found[1]) == text

        await until(lambda: says("one"), process.tail, seconds=30)
        module.write_text(SHOP.format(text="two"))
        await until(lambda: says("two"), process.tail, seconds=30)
        # A file that is saved half-way ends the worker with a sentence, and not the command.
        module.write_text(SHOP.format(text="broken").replace("def get_config()", "def get_config("))
        await until(lambda: "shop cannot be imported" in process.tail(), process.tail, seconds=30)
        assert process.is_running
        module.write_text(SHOP.format(text="three"))
        await until(lambda: says("three"), process.tail, seconds=30)
        process.terminate()
        assert process.wait(20) == 0, process.tail()
    finally:
        process.kill()


async def test_a_broker_that_does_not_start_is_said_at_once() -> None:
    with pytest.raises(Misconfigured, match="The broker did not start"):
        async with running(Worker("shop"), BROKER_PORT="everywhere"):
            raise AssertionError("it runs")
