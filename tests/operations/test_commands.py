"""`broker doctor`, `top` and `streams`, against real servers and replicas, as an operator runs them."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest

from broker import doctor
from broker.cli import top
from broker.core.access import PUBLISH, READ
from broker.doctor import Verdict
from broker.http.stream_desk import is_near
from broker.store.checkup import Facts
from tests.support.mcp import Modern
from tests.support.process import free_port
from tests.support.redis_server import RedisServer
from tests.support.replica import Fleet
from tests.support.wait import until
from workers import Publisher


def broker(*argv: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with a clean environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BROKER_")}
    command = [sys.executable, "-m", "broker", *argv]
    return subprocess.run(
        command, env={**clean, **settings}, capture_output=True, text=True, timeout=60, check=False
    )


def internal(fleet: Fleet, index: int = 0) -> dict[str, str]:
    return {"BROKER_INTERNAL_PORT": str(fleet[index].internal_port)}


# -- doctor --------------------------------------------------------------------------------------------------


def test_a_sound_installation_gets_no_fail(redis_server: RedisServer, prefix: str) -> None:
    done = broker("doctor", BROKER_REDIS_URL=redis_server.url, BROKER_PREFIX=prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    for what in ("settings", "DNS", "Redis", "latency", "permissions", "clock"):
        assert f" {what} " in done.stdout


def test_each_trouble_with_redis_is_named_with_what_to_do(prefix: str) -> None:
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    done = broker("doctor", BROKER_REDIS_URL=nobody, BROKER_PREFIX=prefix)
    assert done.returncode == 2
    assert "FAIL  Redis" in done.stdout
    assert "Check that it is up" in done.stdout
    done = broker("doctor", BROKER_REDIS_URL="redis://no-such-host.invalid:6379", BROKER_PREFIX=prefix)
    assert done.returncode == 2
    assert "FAIL  DNS" in done.stdout


def test_a_permission_that_is_missing_is_named(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        cast("Any", client).execute_command(
            "ACL", "SETUSER", "narrow", "on", ">secret", "~mrb:*", "+@all", "-xread"
        )
    url = own_redis.url.replace("redis://", "redis://narrow:secret@")
    done = broker("doctor", BROKER_REDIS_URL=url)
    assert done.returncode == 2
    assert "FAIL  permissions" in done.stdout
    assert "XREAD" in done.stdout
    with own_redis.client() as client:
        assert not list(cast("Any", client).execute_command("KEYS", "mrb:*doctor*")), (
            "what the doctor wrote is gone"
        )


def test_a_redis_that_evicts_is_refused_and_one_without_a_limit_doubted(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        cast("Any", client).execute_command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    done = broker("doctor", BROKER_REDIS_URL=own_redis.url)
    assert done.returncode == 2
    assert "Set maxmemory-policy noeviction" in done.stdout
    assert "has no maxmemory" in done.stdout


def test_an_open_broker_on_the_network_is_a_fail(redis_server: RedisServer, prefix: str) -> None:
    done = broker("doctor", BROKER_REDIS_URL=redis_server.url, BROKER_PREFIX=prefix, BROKER_HOST="0.0.0.0")
    assert done.returncode == 2
    assert "FAIL  exposure" in done.stdout


def test_a_broker_raises_its_own_limit_of_descriptors() -> None:
    """A container begins with 1,024, which would be the most streams of a replica."""
    program = (
        "import resource as r; from broker.cli.serve import raise_descriptors\n"
        "_, hard = r.getrlimit(r.RLIMIT_NOFILE); r.setrlimit(r.RLIMIT_NOFILE, (256, hard))\n"
        "raise_descriptors(); assert r.getrlimit(r.RLIMIT_NOFILE) == (hard, hard)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


SOUND = Facts(
    product="Valkey",
    version=(9, 1, 0),
    role="master",
    ping_median=0.0002,
    ping_worst=0.001,
    clock_ahead=0.0,
    max_memory=1_000_000,
    used_memory=1_000,
    eviction="noeviction",
    is_append_only=True,
    replicas=1,
    has_min_replicas=True,
    refused={},
)


@pytest.mark.parametrize(
    ("changed", "what", "verdict"),
    [
        ({"version": (6, 0, 9)}, "Redis", Verdict.BAD),
        ({"role": "slave"}, "Redis", Verdict.BAD),
        ({"ping_median": 0.02}, "latency", Verdict.DOUBTFUL),
        ({"clock_ahead": -30.0}, "clock", Verdict.DOUBTFUL),
        ({"used_memory": 900_000}, "memory", Verdict.DOUBTFUL),
        ({"is_append_only": False}, "durability", Verdict.DOUBTFUL),
        ({"eviction": "allkeys-lru"}, "eviction", Verdict.BAD),
        ({"has_min_replicas": False}, "replication", Verdict.DOUBTFUL),
    ],
)
def test_every_fact_that_is_not_good_comes_with_advice(
    changed: dict[str, object], what: str, verdict: Verdict
) -> None:
    assert all(finding.verdict is Verdict.GOOD for finding in doctor.judged(SOUND))
    findings = list(doctor.judged(Facts(**{**vars(SOUND), **changed})))  # pyright: ignore[reportArgumentType]
    found = next(finding for finding in findings if finding.verdict is not Verdict.GOOD)
    assert (found.what, found.verdict) == (what, verdict)
    assert found.advice


# -- the whole way -------------------------------------------------------------------------------------------


def test_the_round_trip_publishes_sees_its_cue_and_leaves_nothing(fleet: Fleet, tenant: str) -> None:
    base = fleet[0].url.removesuffix("/mcp")
    done = broker("doctor", "--url", base, "--tenant", tenant)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its cue came after" in done.stdout
    listed = broker("list", "--tenant", tenant, BROKER_REDIS_URL=fleet.redis_url, BROKER_PREFIX=fleet.prefix)
    assert listed.stdout == ""


def test_the_round_trip_needs_a_key_where_callers_have_one(
    redis_server: RedisServer, new_fleet: Callable[..., Fleet], prefix: str
) -> None:
    fleet = new_fleet(redis_server.url, 1, BROKER_AUTH__MODE="keys")
    base = fleet[0].url.removesuffix("/mcp")
    where = {"BROKER_REDIS_URL": redis_server.url, "BROKER_PREFIX": prefix}
    done = broker("doctor", "--url", base)
    assert done.returncode == 2
    assert "BROKER_KEY" in done.stdout
    # As docs/operations/install.md says.
    assert broker("tenant", "create", "acme", **where).returncode == 0
    key = broker("key", "create", "acme", "test", "--scope", READ, "--scope", PUBLISH, **where)
    assert key.returncode == 0, key.stderr
    done = broker("doctor", "--url", base, BROKER_KEY=key.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert broker("tenant", "delete", "acme", "--yes", **where).returncode == 0


def test_the_round_trip_says_where_nobody_answers() -> None:
    done = broker("doctor", "--url", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 2
    assert "FAIL  round trip" in done.stdout


# -- streams -------------------------------------------------------------------------------------------------


async def test_a_stream_is_listed_and_cut_and_its_client_told_to_come_back(
    fleet: Fleet, tenant: str, http: httpx.AsyncClient
) -> None:
    replica = fleet[2]
    async with Modern(replica.url, tenant, http) as client, await client.listen(["docs://a"]) as listening:
        listed = broker("streams", "list", "--tenant", tenant, **internal(fleet, 2))
        assert listed.returncode == 0, listed.stderr
        head, row = listed.stdout.splitlines()
        assert head.split()[:2] == ["stream", "tenant"]
        number, shown, *_ = row.split()
        assert shown == tenant
        cut = broker("streams", "cut", number, **internal(fleet, 2))
        assert cut.returncode == 0, cut.stderr
        await listening.end()
        assert listening.result is not None, "the end is a clean one"
    await until(lambda: "stream" not in _list(fleet, tenant), "it is gone from the list")


def _list(fleet: Fleet, tenant: str) -> str:
    return broker("streams", "list", "--json", "--tenant", tenant, **internal(fleet, 2)).stdout


def test_a_stream_that_is_not_there_is_an_error_in_a_sentence(fleet: Fleet) -> None:
    done = broker("streams", "cut", "999999", **internal(fleet))
    assert done.returncode == 2
    assert "There is no stream 999999 here" in done.stderr
    done = broker("streams", "list", BROKER_INTERNAL_PORT=str(free_port()))
    assert done.returncode == 1
    assert "No broker answers" in done.stderr


def test_streams_are_shown_to_this_machine_only(fleet: Fleet) -> None:
    """Tenants' names are nobody else's business, and the internal port asks nobody who he is."""
    assert is_near(("127.0.0.1", 1))
    assert is_near(("::1", 1))
    for far in (("10.1.2.3", 1), ("::ffff:10.1.2.3", 1), ("testclient", 1), None):
        assert not is_near(far)
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(f"http://127.0.0.1:{fleet[0].internal_port}/streams/1/end", timeout=5)
    with refusal.value as error:
        assert error.code == 404, "ending is a POST"


# -- top -----------------------------------------------------------------------------------------------------


def test_top_shows_each_replica_once(fleet: Fleet) -> None:
    done = broker("top", "--times", "2", "--every", "0.2", **internal(fleet))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["replica", "ready", "streams"]
    assert [line.split()[:2] for line in lines if line.startswith("127")] == [["127.0.0.1", "yes"]] * 2


async def test_top_shows_rates_and_the_loudest_tenants(
    redis_server: RedisServer, new_fleet: Callable[..., Fleet], http: httpx.AsyncClient
) -> None:
    fleet = new_fleet(redis_server.url, 1, BROKER_METRICS__TENANTS="5")
    replica = fleet[0]
    before = top.fetch("127.0.0.1", replica.internal_port)
    async with Modern(replica.url, "acme", http) as client, await client.listen(["docs://a"]) as listening:
        async with Publisher(redis_server.url, tenant="acme", prefix=fleet.prefix) as publisher:
            await publisher.publish("docs://a", "x")
        await listening.cue("docs://a")
        pages = top.fetch("127.0.0.1", replica.internal_port)
        text = "\n".join(top.table(pages, before, 1.0))
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["127.0.0.1"][1:3] == ["yes", "1"]
    assert rows["127.0.0.1"][4] == "1", "one cue a second"
    assert rows["127.0.0.1"][8].startswith("<")
    assert rows["acme"][1:3] == ["1", "1"]


def test_top_says_when_nobody_answers() -> None:
    done = broker("top", BROKER_INTERNAL_PORT=str(free_port()))
    assert done.returncode == 1
    assert "No broker answers" in done.stderr
