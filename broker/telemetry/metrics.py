"""What happened on this replica, in domain words, as counters.

Names are `broker_<noun>_<verb>_total`; labels are bounded and never a URI, a session or a tenant. Callers
say what happened; how it is exposed is this module's business.
"""

from collections import Counter


class Metrics:
    """Counters of one replica. Cheap enough to be always on."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def __getitem__(self, name: str) -> int:
        """Return the sum of a counter over all of its labels."""
        return sum(count for (counter, _), count in self._counts.items() if counter == name)

    def snapshot(self) -> dict[tuple[str, str], int]:
        """Return every counter by (name, label)."""
        return dict(self._counts)

    def cues_written(self, count: int) -> None:
        """Count cues handed to a connection's socket."""
        self._counts["broker_cues_written_total", ""] += count

    def entry_skipped(self) -> None:
        """Count a log entry that is not ours."""
        self._counts["broker_entries_skipped_total", ""] += 1

    def resync_ran(self, why: str) -> None:
        """Count a comparison of all watched keys, by what broke the log."""
        self._counts["broker_resyncs_total", why] += 1

    def reader_failed(self) -> None:
        """Count a failed read of a log."""
        self._counts["broker_reader_failures_total", ""] += 1

    def reader_late(self) -> None:
        """Count a heartbeat that found the reader behind, though reading."""
        self._counts["broker_reader_late_total", ""] += 1

    def stream_closed(self, reason: str) -> None:
        """Count the end of a stream, by its reason."""
        self._counts["broker_streams_closed_total", reason] += 1

    def request_refused(self, reason: str) -> None:
        """Count a refused request, by the error's reason."""
        self._counts["broker_requests_refused_total", reason] += 1
