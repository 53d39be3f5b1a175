"""Every metric of the broker: what it is called, what it means, and which labels it may have.

The one source of /metrics, of docs/operations/metrics.md and of what alerts and dashboards may refer to.
Rules:

1. A label is never a URI, a session or a subject; a tenant only where the operator asked for it.
2. A label has a bounded set of values: those named here, which stand at 0 from the start so that an alert
   sees their first increase, and at most `SERIES` in all; whatever comes after is counted as "other".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SERIES = 64
"""The most label values of one metric."""

FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Bounds in seconds for what should take less than a millisecond."""
PROMPT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
"""Bounds in seconds for what people wait for; 0.05, 2 and 4 are those of promise 2."""

INSPECTED = ("redis", "eviction", "memory", "replication", "durability", "clock")
"""What inspection.py looks at."""

ERAS = ("modern", "handshake")


class Kind(StrEnum):
    """What a metric does."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `labels` maps each label's name to the values known from the start."""

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    bounds: tuple[float, ...] = ()
    is_per_tenant: bool = False


def _counter(name: str, text: str, **labels: tuple[str, ...]) -> Metric:
    return Metric(name, Kind.COUNTER, text, labels)


def _gauge(name: str, text: str, **labels: tuple[str, ...]) -> Metric:
    return Metric(name, Kind.GAUGE, text, labels)


def _histogram(name: str, text: str, bounds: tuple[float, ...], **labels: tuple[str, ...]) -> Metric:
    return Metric(name, Kind.HISTOGRAM, text, labels, bounds)


CLOSE_REASONS = (
    "client_left",
    "session_ended",
    "replaced",
    "draining",
    "slow_consumer",
    "expired",
    "revoked",
    "rotated",
    "cut",
)
RESYNC_REASONS = ("reconnect", "gap", "fork", "epoch")
READ_KINDS = ("stored", "callback", "absent")
CALL_OUTCOMES = ("answered", "failed", "timed_out", "cancelled", "no_worker")
METHODS = (
    "server/discover", "initialize", "ping", "resources/list", "resources/read",
    "resources/templates/list", "resources/subscribe", "resources/unsubscribe", "completion/complete",
    "tools/list", "prompts/list", "logging/setLevel",
)  # fmt: skip
"""The methods that are counted by their names; any other is "other", whatever a client calls it."""

_METRICS = (
    # -- is it well ----------------------------------------------------------------------------------------
    _gauge(
        "broker_info",
        "Always 1; its labels say which release this is, and which replica.",
        version=(),
        replica=(),
    ),
    _gauge("broker_ready", "Whether this replica wants traffic: 1 or 0, as /readyz says."),
    _gauge("broker_draining", "Whether this replica is leaving: 1 or 0."),
    _gauge("broker_replicas_alive", "How many replicas the last heartbeat found, this one included."),
    _gauge("broker_redis_up", "Whether the last heartbeats of a log were answered: 1 or 0.", log=()),
    _gauge(
        "broker_redis_unfit",
        "What the last look at Redis' own settings found: 0 good, 1 doubtful, 2 bad (see broker doctor).",
        what=INSPECTED,
    ),
    _gauge("broker_redis_beat_age_seconds", "Seconds since Redis last answered a heartbeat."),
    _gauge(
        "broker_redis_clock_offset_seconds",
        "How far the clock of Redis is ahead of this replica's, in seconds; publish-to-cue allows for it.",
    ),
    # -- the log -------------------------------------------------------------------------------------------
    _gauge(
        "broker_log_lag_entries",
        "How many entries of a log this replica had not read at the last heartbeat.",
        log=(),
    ),
    _gauge(
        "broker_log_read_age_seconds",
        "Seconds since Redis last answered a read of a log, with entries or without.",
        log=(),
    ),
    _gauge(
        "broker_log_settled", "Whether every watched key was compared since a log last broke: 1 or 0.", log=()
    ),
    _counter(
        "broker_entries_applied_total", "Log entries taken in, whether anybody watched them or not.", log=()
    ),
    _counter("broker_entries_skipped_total", "Log entries that were not ours to read."),
    _counter("broker_reader_failures_total", "Reads of a log that failed."),
    _counter("broker_reader_late_total", "Heartbeats that found the log ahead of a reader that was reading."),
    _counter(
        "broker_reader_deaf_total",
        "Times a reader brought nothing though its log had grown, and was connected anew.",
    ),
    _counter(
        "broker_resyncs_total",
        "Comparisons of all watched keys with Redis, by what broke the log.",
        reason=RESYNC_REASONS,
    ),
    _counter("broker_resync_cues_total", "Cues that a resync owed: changes that the log had not told."),
    # -- streams and cues ----------------------------------------------------------------------------------
    _gauge(
        "broker_streams_open",
        "Open response streams: listens of the modern era, GET streams of sessions.",
        era=ERAS,
    ),
    _gauge("broker_streams_blocked", "Open streams whose client does not read at the moment."),
    _gauge("broker_subscriptions_open", "Pairs of an open stream and a URI or list that it watches."),
    _gauge("broker_resources_watched", "Different URIs and lists that somebody on this replica watches."),
    _gauge("broker_cues_waiting", "Cues not yet written, over all streams; held list cues among them."),
    _counter("broker_streams_opened_total", "Streams that were opened.", era=ERAS),
    _counter("broker_streams_closed_total", "Streams that ended, by why.", reason=CLOSE_REASONS),
    _counter("broker_cues_written_total", "Cues handed to clients' sockets."),
    _counter(
        "broker_cues_coalesced_total", "Cues saved, since the same resource was still waiting on that stream."
    ),
    _histogram(
        "broker_publish_to_cue_seconds",
        "From a change's entry in the log to its cues on the sockets; the oldest change of each batch.",
        PROMPT,
    ),
    # -- requests ------------------------------------------------------------------------------------------
    _histogram(
        "broker_request_seconds",
        "MCP requests that were answered at once, by era and method.",
        PROMPT,
        era=ERAS,
        method=(),
    ),
    _counter(
        "broker_requests_refused_total",
        "Requests that were refused, MCP and publishing, by the error's reason; of a batch each resource.",
        reason=("limit", "unavailable", "store_unavailable", "unauthenticated", "forbidden"),
    ),
    _counter(
        "broker_connections_refused_total",
        "Connections closed at once, since this process has too many open.",
    ),
    _counter(
        "broker_requests_failed_total", "Requests that failed by a bug of ours; the log has the traceback."
    ),
    _counter("broker_reads_total", "Reads of resources, by where the answer came from.", kind=READ_KINDS),
    # -- Redis and workers ---------------------------------------------------------------------------------
    _histogram("broker_script_seconds", "Calls of a script in Redis, the network included.", FAST, script=()),
    _counter(
        "broker_script_failures_total",
        "Calls of a script that Redis did not answer, or with an error.",
        script=(),
    ),
    _histogram(
        "broker_worker_call_seconds", "Calls of workers, from asking to the answer or its failure.", PROMPT
    ),
    _counter("broker_worker_calls_total", "Calls of workers, by what came of them.", outcome=CALL_OUTCOMES),
    # -- the process ---------------------------------------------------------------------------------------
    _histogram(
        "broker_loop_lag_seconds", "How late the event loop woke a sleeper, sampled twice a second.", FAST
    ),
    _gauge("broker_tasks_running", "Tasks of the event loop, streams' requests among them."),
    # -- by tenant, where the operator asks for it -----------------------------------------------------------
    Metric(
        "broker_tenant_streams_open",
        Kind.GAUGE,
        "Open streams of a tenant.",
        {"tenant": ()},
        is_per_tenant=True,
    ),
    Metric(
        "broker_tenant_subscriptions_open",
        Kind.GAUGE,
        "Open subscriptions of a tenant.",
        {"tenant": ()},
        is_per_tenant=True,
    ),
    Metric(
        "broker_tenant_changes_total",
        Kind.COUNTER,
        "Log entries of a tenant.",
        {"tenant": ()},
        is_per_tenant=True,
    ),
    Metric(
        "broker_tenant_cues_total",
        Kind.COUNTER,
        "Cues owed to a tenant's streams here.",
        {"tenant": ()},
        is_per_tenant=True,
    ),
)

CATALOGUE: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
"""Every metric by its name."""

PROCESS = {
    "process_cpu_seconds_total": "CPU seconds used.",
    "process_max_fds": "How many descriptors the process may open: a stream is one.",
    "process_open_fds": "How many descriptors are open.",
    "process_resident_memory_bytes": "Memory in use.",
    "process_start_time_seconds": "When the process started, in Unix seconds.",
    "process_virtual_memory_bytes": "Address space in use.",
}
"""What the Prometheus client tells of the process, on Linux."""
