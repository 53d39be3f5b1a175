"""Follows one log and applies each entry, in order; notices when that is no longer possible.

Rules:

1. The loop never dies of Redis: whatever a read raises, it waits a little and stands again.
2. Reading starts from a concrete id, never from "$".
3. An idle reader wakes at once. After a wake-up that brought entries it waits a little before the next, so
   that all replicas together wake Redis at most about 3,500 times a second (20 µs each, design section 3).
4. What breaks the log is reported once (`on_break`), with the cursor already standing behind it; repairing is
   the resync's business.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Container

from broker.core.errors import BrokerError
from broker.core.log import Cursor, Discontinuity, Entry, Head, Malformed, decode
from broker.store.line import RawEntry
from broker.store.log import LogStore
from broker.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

COUNT = 1000
"""Entries a read may bring; a full reply is followed by the next read at once."""
PACE_MIN = 0.002
PACE_MAX = 0.030
PACE_PER_REPLICA = 0.0003
PACE_PER_ENTRY = 0.0002
PACE_LOADED = 0.010
"""Seconds. A wake-up costs this process as much as thirty entries (55 µs), so from 5,000 entries a second on
it waits for more of them, up to this: a fifth less CPU at 12,000. Where all wait 10 ms always, that is no
less, and a lone change is told 4 ms later."""


class Tail:
    """The reader of one log. Also a connection's `Position`."""

    def __init__(
        self,
        number: int,
        store: LogStore,
        apply: Callable[[Entry, int], None],
        on_break: Callable[["Tail", Discontinuity], None],
        metrics: Metrics,
        *,
        watched: Container[bytes] | None = None,
    ) -> None:
        self.number = number
        self.cursor = Cursor()
        self.replicas = 1
        """How many replicas tail this log (from the heartbeat): sets the pace."""
        self.is_settled = False
        """Whether every watched key has been compared since the last break."""
        self.last_read = 0.0
        """Loop time of the last read that Redis answered, with entries or without."""
        self.last_entry = 0.0
        """Loop time of the last entry."""
        self._store = store
        self._apply = apply
        self._on_break = on_break
        self._metrics = metrics
        self._watched = watched
        """What is watched here (`Hub.watched`): other changes are passed over. None: all are applied."""
        self._stands = False
        self._has_stood = False
        self._jumps = 0
        self._after = b"0-0"
        """The id after which to read: as it came, never computed from parts."""
        self.applied = 0
        """How many entries were taken in."""

    def __repr__(self) -> str:
        return f"<Tail {self.number} {self.cursor!r} settled={self.is_settled}>"

    @property
    def epoch(self) -> str:
        """The epoch that is being read."""
        return self.cursor.epoch

    @property
    def n(self) -> int:
        """The last n that was applied to the hub."""
        return self.cursor.n

    @property
    def has_stood(self) -> bool:
        """Whether Redis was ever reached."""
        return self._has_stood

    async def run(self) -> None:
        """Follow for ever."""
        failures = 0
        while True:
            try:
                if not self._stands:
                    await self._stand()
                    failures = 0
                await self._read()
            except BrokerError as error:
                failures += 1
                self._fail(error, failures)
            except Exception:  # rule 1; a bug here must not make the replica deaf
                failures += 1
                self._metrics.reader_failed()
                self._stands = False
                _log.exception("log_reader_failed", extra={"log": self.number})
            if failures:
                await asyncio.sleep(min(1.0, 0.05 * 2 ** min(failures, 5)) * random.uniform(0.5, 1.0))

    async def jump(self, why: Discontinuity) -> None:
        """Stand at the head, and report `why`.

        Where the log broke within its epoch, a new one is begun first: n may have been used twice, so ids of
        that epoch prove nothing any more, on any replica. (A gap may hide such a fork: what would tell has
        been trimmed.)

        Raises:
            StoreUnavailable, WrongStore: from the store; nothing has changed then.
        """
        if why in (Discontinuity.GAP, Discontinuity.FORK):
            await self._store.leave_epoch(self.number, self.cursor.epoch)
        head, last = await self._store.head(self.number)
        self._jump(head, last, why)

    async def reconnect(self) -> None:
        """Give up the connection on which the reader waits: it brings nothing though there is something."""
        self._stands = False
        await self._store.reconnect(self.number)

    def _jump(self, head: Head, last: int, why: Discontinuity) -> None:
        self.cursor.jump(head, last)
        self._after = b"%d-0" % self.cursor.n
        self._jumps += 1  # a read that is under way was asked from another place
        self._on_break(self, why)

    def _fail(self, error: BrokerError, failures: int) -> None:
        self._metrics.reader_failed()
        self._stands = False
        if failures == 1:
            _log.warning("log_reader_lost_redis", extra={"log": self.number, "error": str(error)})

    async def _stand(self) -> None:
        """Find a place to read from: where we were, if the log still goes on from there; else its head.

        Either way every watched key is compared: a connection that broke may have hidden that the
        server is another one.
        """
        head, last = await self._store.head(self.number)
        loop = asyncio.get_running_loop()
        why = self.cursor.check(head, self.cursor.n) if self._has_stood else None
        if why is not None:
            await self.jump(why)
        elif not self._has_stood or not self.cursor.is_anchored:
            self._jump(head, last, Discontinuity.GAP)
        else:
            self._on_break(self, Discontinuity.RECONNECT)
        if self._has_stood:
            _log.info("log_reader_stands", extra={"log": self.number, "why": why.value if why else "again"})
        self._stands = self._has_stood = True
        self.last_read = loop.time()

    async def _read(self) -> None:
        jumps = self._jumps
        batch = await self._store.tail(self.number, self._after, COUNT)
        loop = asyncio.get_running_loop()
        self.last_read = loop.time()
        if not batch or jumps != self._jumps:
            return
        self.last_entry = self.last_read
        why = self._follow(batch)
        if why is not None:
            await self.jump(why)
        elif len(batch) == COUNT:
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(pause(self.replicas, len(batch)))

    def _follow(self, batch: list[RawEntry]) -> Discontinuity | None:
        at = 0
        while (at := self._passed(batch, at)) < len(batch):
            entry_id, fields = batch[at]
            at += 1
            try:
                entry = decode(entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
            except Malformed as error:
                self._metrics.entry_skipped()
                _log.error("log_entry_skipped", extra={"log": self.number, "error": str(error)})
                self.cursor.skip(int(entry_id.partition(b"-")[0]))
                self._after = entry_id
                continue
            why = self.cursor.follow(entry)
            if why is not None:
                return why
            self._after = entry_id
            self._apply(entry, self.cursor.tick)
        self.applied += len(batch)
        return None

    def _passed(self, batch: list[RawEntry], start: int) -> int:
        """Pass over what nobody watches; returns the index of the first entry to be looked at."""
        if self._watched is None:
            return start
        at = self.cursor.pass_over(batch, start, self._watched)
        if at > start:
            self._after = batch[at - 1][0]
        return at


def pause(replicas: int, entries: int) -> float:
    """Return how many seconds to wait after a wake-up that brought `entries` (rule 3)."""
    loaded = min(PACE_LOADED, entries * PACE_PER_ENTRY)
    return min(PACE_MAX, max(PACE_MIN, loaded, replicas * PACE_PER_REPLICA))
