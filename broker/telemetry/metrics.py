"""What happened on this replica, in domain words.

Callers say what happened; names and labels are those of catalogue.py, and how they are shown is the business
of exposition.py. Rules:

1. A `Metrics` belongs to one replica; there is no registry of the process, no global state and no lock: one
   event loop writes, and the same loop reads when /metrics is asked.
2. Recording is always on, and is the recording implementation of the tests as well. The dispatcher calls
   once a batch, 0.07 µs (a plain attribute; tests/telemetry measures it): nothing to switch off.
3. What can be read off the replica is not recorded but looked at when asked (`watch`).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable

from broker.telemetry.catalogue import CATALOGUE, METHODS, SERIES, Kind

Labels = tuple[str, ...]
Reading = tuple[str, Labels, float]
"""A gauge's (or a counter's that is kept elsewhere) name, label values and value now."""

OTHER = "other"
_METHODS = frozenset(METHODS)


class Histogram:
    """Counts of observations by upper bound. `counts` has one place more than there are bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def __len__(self) -> int:
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Metrics:
    """Counters and histograms of one replica.

    `tenants` is for how many tenants there are series of their own; 0 for none, which is the default.
    """

    def __init__(self, tenants: int = 0) -> None:
        self.tenants = tenants
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._series: Counter[str] = Counter()
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self._watched: list[Callable[[], Iterable[Reading]]] = []
        self._open: Counter[str] = Counter()
        self._cues = 0
        for metric in CATALOGUE.values():
            if metric.kind is Kind.HISTOGRAM:
                self._histograms[metric.name] = {} if metric.labels else {(): Histogram(metric.bounds)}
            elif metric.kind is Kind.COUNTER:
                known = next(iter(metric.labels.values()), ()) if metric.labels else ("",)
                for value in known:
                    self._counts[metric.name, (value,) if metric.labels else ()] = 0
                self._series[metric.name] = len(known)
        self._to_cue = self._histograms["broker_publish_to_cue_seconds"][()]
        self._loop_lag = self._histograms["broker_loop_lag_seconds"][()]
        self._worker_call = self._histograms["broker_worker_call_seconds"][()]

    def __getitem__(self, name: str) -> int:
        """Return the sum of a counter, or the observations of a histogram, over all labels."""
        if name in self._histograms:
            return sum(len(histogram) for histogram in self._histograms[name].values())
        return sum(count for (counter, _), count in self.counters().items() if counter == name)

    def counters(self) -> dict[tuple[str, Labels], int]:
        """Return every counter by (name, label values)."""
        return {**self._counts, ("broker_cues_written_total", ()): self._cues}

    def histograms(self, name: str) -> dict[Labels, Histogram]:
        """Return a histogram's series by label values."""
        return self._histograms[name]

    def watch(self, look: Callable[[], Iterable[Reading]]) -> None:
        """Let `look` be asked for readings whenever the metrics are shown."""
        self._watched.append(look)

    def readings(self) -> list[Reading]:
        """Return what can be read off the replica now."""
        found: list[Reading] = [
            ("broker_streams_open", (era,), float(self._open[era])) for era in ("modern", "handshake")
        ]
        for look in self._watched:
            found += look()
        return found

    # -- streams and cues ----------------------------------------------------------------------------------

    def cues_written(self, count: int) -> None:
        """Count cues handed to connections' sockets: one call a batch."""
        self._cues += count

    def batch_told(self, seconds: float) -> None:
        """Record how long ago the oldest change was published whose cues were written just now."""
        self._to_cue.observe(seconds)

    def stream_opened(self, era: str) -> None:
        """Count an open stream of an era. Undone by `stream_left`."""
        self._open[era] += 1
        self._counts["broker_streams_opened_total", (era,)] += 1

    def stream_left(self, era: str) -> None:
        """Undo `stream_opened`: the stream is gone."""
        self._open[era] -= 1

    def stream_closed(self, reason: str) -> None:
        """Count the end of a stream, by its reason."""
        self._count("broker_streams_closed_total", reason)

    def tenant_changed(self, tenant: str, cues: int) -> None:
        """Count a tenant's change and the cues that it owes. Only where series by tenant were asked for."""
        label = self._tenant("broker_tenant_changes_total", tenant)
        self._counts["broker_tenant_changes_total", label] += 1
        self._counts["broker_tenant_cues_total", label] += cues

    # -- the log -------------------------------------------------------------------------------------------

    def entry_skipped(self) -> None:
        """Count a log entry that is not ours."""
        self._counts["broker_entries_skipped_total", ()] += 1

    def resync_ran(self, why: str) -> None:
        """Count a comparison of all watched keys, by what broke the log."""
        self._count("broker_resyncs_total", why)

    def resync_told(self, cues: int) -> None:
        """Count the cues that a resync owed."""
        self._counts["broker_resync_cues_total", ()] += cues

    def reader_failed(self) -> None:
        """Count a failed read of a log."""
        self._counts["broker_reader_failures_total", ()] += 1

    def reader_late(self) -> None:
        """Count a heartbeat that found the reader behind, though reading."""
        self._counts["broker_reader_late_total", ()] += 1

    def reader_deaf(self) -> None:
        """Count a reader that brought nothing though there was something, and was connected anew."""
        self._counts["broker_reader_deaf_total", ()] += 1

    # -- requests ------------------------------------------------------------------------------------------

    def request_answered(self, era: str, method: str, seconds: float) -> None:
        """Record a request that was answered at once; a method that is not ours is "other"."""
        name = method if method in _METHODS else OTHER
        self._observe("broker_request_seconds", (era, name), seconds)

    def request_refused(self, reason: str) -> None:
        """Count a refused request, by the error's reason."""
        self._count("broker_requests_refused_total", reason)

    def connection_refused(self) -> None:
        """Count a connection that was closed at once: this process has too many."""
        self._counts["broker_connections_refused_total", ()] += 1

    def request_failed(self) -> None:
        """Count a request that failed by a bug of ours."""
        self._counts["broker_requests_failed_total", ()] += 1

    def resource_read(self, kind: str) -> None:
        """Count a read, by where its answer came from: stored, callback or absent."""
        self._count("broker_reads_total", kind)

    # -- Redis, workers, the loop --------------------------------------------------------------------------

    def script_ran(self, name: str, seconds: float) -> None:
        """Record a script call that was answered."""
        self._observe("broker_script_seconds", (name,), seconds)

    def script_failed(self, name: str) -> None:
        """Count a script call that was not, or with an error."""
        self._count("broker_script_failures_total", name)

    def worker_called(self, outcome: str, seconds: float) -> None:
        """Record a call of a worker, by what came of it (`catalogue.CALL_OUTCOMES`)."""
        self._count("broker_worker_calls_total", outcome)
        self._worker_call.observe(seconds)

    def loop_lagged(self, seconds: float) -> None:
        """Record by how much the event loop woke a sleeper late."""
        self._loop_lag.observe(seconds)

    # -- bounded labels ------------------------------------------------------------------------------------

    def _count(self, name: str, value: str) -> None:
        key = name, (value,)
        if key not in self._counts:
            if self._series[name] >= SERIES:
                key = name, (OTHER,)
            else:
                self._series[name] += 1
        self._counts[key] += 1

    def _observe(self, name: str, labels: Labels, seconds: float) -> None:
        series = self._histograms[name]
        histogram = series.get(labels)
        if histogram is None:
            if len(series) >= SERIES:
                labels = (OTHER,) * len(labels)
            histogram = series.setdefault(labels, Histogram(CATALOGUE[name].bounds))
        histogram.observe(seconds)

    def _tenant(self, name: str, tenant: str) -> Labels:
        """Return the label of a tenant: its own for the first `tenants` of them, "other" for the rest."""
        label = (tenant,)
        if (name, label) not in self._counts:
            if self._series[name] >= self.tenants:
                return (OTHER,)
            self._series[name] += 1
        return label
