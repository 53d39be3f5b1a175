"""Shows a replica's metrics in the formats that Prometheus reads.

A registry of its own for each replica, with the process's own numbers beside ours; nothing is kept in the
client library's global registry. What is shown is exactly the catalogue.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from broker.telemetry.catalogue import CATALOGUE, Kind, Metric
from broker.telemetry.metrics import Histogram, Labels, Metrics


class Exposition(Collector):
    """The page behind /metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in the format that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterable[Family]:
        """Yield every metric of the catalogue with its series of now."""
        values: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        for (name, labels), count in self._metrics.counters().items():
            values[name][labels] = count
        for name, labels, value in self._metrics.readings():
            values[name][labels] = value
        for metric in CATALOGUE.values():
            if metric.kind is Kind.HISTOGRAM:
                yield _histogram(metric, self._metrics.histograms(metric.name))
            elif not metric.is_per_tenant or self._metrics.tenants:
                yield _plain(metric, values[metric.name])


def _plain(metric: Metric, values: dict[Labels, float]) -> Family:
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=list(metric.labels))
    for labels, value in values.items():
        family.add_metric(list(labels), value)
    return family


def _histogram(metric: Metric, series: dict[Labels, Histogram]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=list(metric.labels))
    for labels, histogram in series.items():
        family.add_metric(list(labels), list(_cumulative(histogram)), histogram.sum)
    return family


def _cumulative(histogram: Histogram) -> Iterator[tuple[str, float]]:
    total = 0
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        yield bound, total
