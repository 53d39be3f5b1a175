"""What `broker doctor` finds: each thing that must hold for a broker, with what to do where it does not.

A finding is a fact in a sentence; one that is not good says what to do. Nothing here prints or exits.
"""

import asyncio
import enum
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace

from broker import settings as environment
from broker.core.errors import BrokerError, Misconfigured
from broker.settings import Settings
from broker.store.address import parse
from broker.store.checkup import Facts, examine
from broker.store.client import Connect, keys_at
from broker.store.greeting import OLDEST

MIN_DESCRIPTORS = 8192
SLOW_PING = 0.005
CLOCK_OFF = 2.0
NEARLY_FULL = 0.8


class Verdict(enum.Enum):
    """How good a finding is."""

    GOOD = "ok"
    DOUBTFUL = "warn"
    BAD = "FAIL"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `advice` is "" where nothing needs to be done."""

    verdict: Verdict
    what: str
    fact: str
    advice: str = ""


def _good(what: str, fact: str) -> Finding:
    return Finding(Verdict.GOOD, what, fact)


def _doubt(what: str, fact: str, advice: str) -> Finding:
    return Finding(Verdict.DOUBTFUL, what, fact, advice)


def _bad(what: str, fact: str, advice: str) -> Finding:
    return Finding(Verdict.BAD, what, fact, advice)


def surroundings(settings: Settings) -> Iterator[Finding]:
    """Yield what can be said without Redis: settings and the limits of the process."""
    strangers = environment.unknown()
    if strangers:
        yield _doubt("settings", " ".join(strangers), "Correct the names, or unset them.")
    try:
        settings.check_exposure()
    except Misconfigured as error:
        yield _bad("exposure", "Callers are not asked who they are.", str(error))
    else:
        yield _good("settings", f"Callers are known by: {settings.auth.mode}; listens on {settings.host}.")
    # A broker raises its own limit to the hard one.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "any number of" if hard == resource.RLIM_INFINITY else str(hard)
    fact = f"A broker may open {most} descriptors here; a stream is one."
    if hard != resource.RLIM_INFINITY and hard < MIN_DESCRIPTORS:
        yield _doubt("limits", fact, "Raise it: ulimit -Hn, or LimitNOFILE of the container runtime.")
    else:
        yield _good("limits", fact)


async def redis(url: str, settings: Settings) -> list[Finding]:
    """Return what there is to say of the Redis at `url`."""
    findings: list[Finding] = []
    for host in dict.fromkeys(host for host, _ in parse(url, settings.redis.access).hosts):
        try:
            findings.append(await _resolved(host))
        except OSError as error:
            why = f"{host} has no address ({error.strerror})."
            advice = "Check the name in BROKER_REDIS_URL, and that DNS is allowed out."
            findings.append(_bad("DNS", why, advice))
    if findings and all(finding.verdict is Verdict.BAD for finding in findings):
        return findings
    how = Connect(
        url,
        keys_at(url, settings.prefix),
        timeout=settings.redis.timeout_seconds,
        connect_timeout=settings.redis.connect_timeout_seconds,
        access=settings.redis.access,
    )
    try:
        nodes = await examine(how)
    except BrokerError as error:
        advice = "Check that it is up, its port, TLS (rediss://), user and password, and what is between."
        return [*findings, _bad("Redis", str(error), advice)]
    return [*findings, *(finding for facts in nodes for finding in judged(facts))]


async def _resolved(host: str) -> Finding:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = sorted({str(each[4][0]) for each in found})
    return _good("DNS", f"{host} is {', '.join(addresses)}.")


def judged(facts: Facts) -> Iterator[Finding]:
    """Yield what the facts mean."""
    for finding in _judged(facts):
        yield replace(finding, fact=f"{facts.node}: {finding.fact}") if facts.node else finding


def _judged(facts: Facts) -> Iterator[Finding]:
    name = f"{facts.product} {'.'.join(map(str, facts.version))}"
    if facts.version < OLDEST[facts.product]:
        oldest = ".".join(map(str, OLDEST[facts.product]))
        yield _bad("Redis", f"{name} is too old.", f"Use {facts.product} {oldest} or newer.")
    elif facts.role != "master":
        yield _bad("Redis", f"{name} is a read-only replica.", "Give the address of the primary.")
    else:
        yield _good("Redis", f"{name}, {facts.role} with {facts.replicas} replicas.")
    fact = f"It answers in {facts.ping_median * 1000:.1f} ms, at worst {facts.ping_worst * 1000:.1f} ms."
    if facts.ping_median > SLOW_PING:
        yield _doubt("latency", fact, "Bring Redis and brokers into one zone; every read waits for it.")
    else:
        yield _good("latency", fact)
    yield from _permissions(facts)
    yield from _memory(facts)
    yield from _replication(facts)
    if facts.is_append_only is False:
        yield _doubt(
            "durability",
            "It keeps no append-only file, so a restart loses what was published.",
            "Set appendonly yes.",
        )
    elif facts.is_append_only:
        yield _good("durability", "It keeps an append-only file.")
    ahead = facts.clock_ahead
    if abs(ahead) > CLOCK_OFF:
        yield _doubt("clock", f"Its clock is {ahead:+.1f} s from ours.", "Run NTP on both.")
    else:
        yield _good("clock", f"Its clock is {ahead * 1000:+.0f} ms from ours.")


def _replication(facts: Facts) -> Iterator[Finding]:
    if facts.replicas and not facts.has_min_replicas:
        yield _doubt(
            "replication",
            "It takes writes even while no replica follows, and a failover loses them.",
            "Set min-replicas-to-write 1 and min-replicas-max-lag 10 on all its servers.",
        )
    elif facts.replicas:
        yield _good("replication", "It refuses to write while too few replicas follow.")


def _permissions(facts: Facts) -> Iterator[Finding]:
    for what, words in facts.refused.items():
        yield _bad("permissions", f"It refuses {what}: {words}", "Widen the ACL of the user in the URL.")
    if not facts.refused:
        yield _good("permissions", "Everything that a broker does is permitted.")


def _memory(facts: Facts) -> Iterator[Finding]:
    if facts.eviction != "noeviction":
        yield _bad(
            "eviction",
            f"It evicts by {facts.eviction} when it is full: resources would go without a word.",
            "Set maxmemory-policy noeviction.",
        )
    else:
        yield _good("eviction", "When it is full it refuses to write, and keeps what it has.")
    if not facts.max_memory:
        yield _doubt("memory", "It has no maxmemory, so the system may end it.", "Set one.")
        return
    share = facts.used_memory / facts.max_memory
    fact = f"It uses {share:.0%} of {facts.max_memory / 1e6:.0f} MB."
    if share > NEARLY_FULL:
        yield _doubt("memory", fact, "Raise maxmemory, or limit tenants; when it is full, publishes fail.")
    else:
        yield _good("memory", fact)
