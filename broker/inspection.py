"""Looks at Redis as the doctor does, at the start and each minute: its configuration changes under our feet.

What is not good is a log line when it is found and when it is over, and a gauge meanwhile. Rules:

1. At the start a server that can never do (another product's schema, too old, of another shape) is refused
   before anything is served: no waiting would help. One that cannot be reached is waited for (promise 10).
2. Afterwards nothing ends because of what is found.
"""

import asyncio
import logging
from collections.abc import Iterator

from broker.core.errors import BrokerError, Misconfigured
from broker.doctor import Finding, Verdict, judged
from broker.store.checkup import Facts, glance
from broker.store.client import Client, Connect, commands
from broker.telemetry.catalogue import INSPECTED

_log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
AGAIN_SECONDS = 1.0
"""After a look that Redis did not answer."""
START_SECONDS = 5.0
_WEIGHT = {Verdict.GOOD: 0.0, Verdict.DOUBTFUL: 1.0, Verdict.BAD: 2.0}


class Inspection:
    """What was last found, by what was looked at."""

    def __init__(self, redis: Client, how: Connect) -> None:
        self._redis = redis
        self._how = how
        self._found: dict[str, Finding] = {}

    def __repr__(self) -> str:
        return f"<Inspection {[finding.what for finding in self._found.values()]}>"

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                self.take(await glance(self._redis, self._how))
            except BrokerError:
                # The heartbeat says so already.
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            except Exception:  # what an unknown server answers must not end the replica
                _log.exception("redis_inspection_failed")
            await asyncio.sleep(EVERY_SECONDS)

    def take(self, facts: Facts) -> None:
        """Take in what was seen, and tell what has changed for the worse or the better."""
        for what, finding in _worst(facts).items():
            before = self._found.get(what)
            self._found[what] = finding
            if finding.verdict is not Verdict.GOOD:
                if before is None or before.verdict is not finding.verdict:
                    level = logging.ERROR if finding.verdict is Verdict.BAD else logging.WARNING
                    fields = {"what": what, "fact": finding.fact, "advice": finding.advice}
                    _log.log(level, "redis_unfit", extra=fields)
            elif before is not None and before.verdict is not Verdict.GOOD:
                _log.info("redis_fit_again", extra={"what": what, "fact": finding.fact})

    def look(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Yield the gauge's readings."""
        for what, finding in self._found.items():
            yield "broker_redis_unfit", (what,), _WEIGHT[finding.verdict]


def _worst(facts: Facts) -> dict[str, Finding]:
    worst: dict[str, Finding] = {}
    for finding in judged(facts):
        what = finding.what.lower()
        if what in INSPECTED and (
            what not in worst or _WEIGHT[finding.verdict] > _WEIGHT[worst[what].verdict]
        ):
            worst[what] = finding
    return worst


async def refuse_unfit(how: Connect) -> None:
    """Refuse a server that will never do; one that cannot be reached now is left to be waited for.

    Raises:
        Misconfigured: with what it is, and what to do.
    """
    redis = commands(how)
    try:
        async with asyncio.timeout(START_SECONDS):
            await glance(redis, how)
    except Misconfigured:
        raise
    except BrokerError as error:
        _log.warning("redis_not_reached", extra={"address": str(how.address), "error": str(error)})
    except TimeoutError:
        _log.warning("redis_not_reached", extra={"address": str(how.address), "error": "no answer"})
    finally:
        await redis.aclose()
