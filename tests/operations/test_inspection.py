"""What Redis is and how it is set is looked at when a broker starts, and again while it runs."""

import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from broker.core.errors import Misconfigured
from broker.inspection import Inspection, refuse_unfit
from broker.store.checkup import glance
from broker.store.client import Connect, commands
from broker.store.keys import Keys
from tests.support.redis_server import RedisServer

KEYS = Keys("inspected")


async def test_a_policy_that_evicts_is_told_when_it_is_set_and_when_it_is_gone(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "broker.inspection")
    how = Connect(own_redis.url, KEYS)
    redis = commands(how)
    inspection = Inspection(redis, how)

    async def look() -> tuple[list[tuple[str, str]], float]:
        caplog.clear()
        inspection.take(await glance(redis, how))
        told = [(each.message, str(vars(each)["what"])) for each in caplog.records]
        return told, {labels[0]: value for _, labels, value in inspection.look()}["eviction"]

    assert ("redis_unfit", "eviction") not in (await look())[0]
    with own_redis.client() as raw:
        untyped: Any = raw
        untyped.config_set("maxmemory-policy", "allkeys-lru")
        assert await look() == ([("redis_unfit", "eviction")], 2.0)
        assert await look() == ([], 2.0), "it is told once"
        untyped.config_set("maxmemory-policy", "noeviction")
    assert await look() == ([("redis_fit_again", "eviction")], 0.0)
    await redis.aclose()


async def test_a_server_that_will_never_do_is_refused(own_redis: RedisServer) -> None:
    how = Connect(own_redis.url, KEYS)
    await refuse_unfit(how)
    with own_redis.client() as raw:
        untyped: Any = raw
        untyped.hset(KEYS.head(0), "shards", "7")
        with pytest.raises(Misconfigured, match="7 shards"):
            await refuse_unfit(how)
        untyped.hset(KEYS.head(0), mapping={"shards": "16", "schema": "99"})
        with pytest.raises(Misconfigured, match="schema 99"):
            await refuse_unfit(how)


async def test_a_server_that_is_not_there_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    await refuse_unfit(Connect("redis://me:geheim@127.0.0.1:1", KEYS))
    assert [each.message for each in caplog.records] == ["redis_not_reached"]
    assert vars(caplog.records[0])["address"] == "redis://127.0.0.1:1/0"


def test_a_broker_that_could_never_work_ends_with_a_sentence_and_code_2(own_redis: RedisServer) -> None:
    with own_redis.client() as raw:
        untyped: Any = raw
        untyped.hset(KEYS.head(0), mapping={"schema": "99", "run": "x"})
    environment = {**os.environ, "BROKER_REDIS_URL": own_redis.url, "BROKER_PREFIX": KEYS.prefix}
    ended = subprocess.run(
        [sys.executable, "-m", "broker", "serve", "--port", "0", "--internal-port", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "schema 99" in ended.stderr.splitlines()[-1]
