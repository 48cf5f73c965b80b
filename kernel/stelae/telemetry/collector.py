"""Makes Prometheus metrics from a node's counters, gauges and histograms at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stelae.machine.metrics import HistogramReading, NodeMetrics
from stelae.telemetry.catalog import FAMILIES, LABEL_VALUES_MAX, PREFIX, WITHOUT_FAMILY, Family, MetricKind, family_of
from stelae.telemetry.node_samples import Sample

OTHER = "other"
"""The label value of all values after the first ``LABEL_VALUES_MAX``."""


class NodeCollector(Collector):
    """Collects every family of the catalog, each with a value from the first scrape on, and the metrics of plugins.

    Args:
        metrics: the metrics that the node keeps.
        samples: the samples that are computed at a scrape, see ``NodeSamples``; not called before the node serves.
        now_us: the node's monotonic clock, for families with ``elapsed``.
        master: whether to serve the families of masters.
    """

    def __init__(
        self, metrics: NodeMetrics, samples: Callable[[], Iterable[Sample]], *, now_us: Callable[[], int], master: bool
    ) -> None:
        self._now_us = now_us
        self._metrics = metrics
        self._samples = samples
        self._families = [family for family in FAMILIES if master or not family.master]
        self._values: dict[str, dict[str, None]] = {}  #: The first label values of each family.

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples. Does not read the node's metrics."""
        return [_family(family, {}, None) for family in self._families]

    def collect(self) -> Iterator[Metric]:
        """Read every metric once."""
        found: dict[str, dict[tuple[str, ...], float]] = {family.name: {} for family in self._families}
        for name, count in self._metrics.counts().items():
            self._place(found, name, count, "other_events")
        for name, value in self._metrics.gauges().items():
            self._place(found, name, value, "other_figures")
        for name, labels, value in self._samples():
            found[name][labels] = value
        readings = self._metrics.histograms()
        for family in self._families:
            yield _family(family, found[family.name], readings.get(family.source))

    def _place(self, found: dict[str, dict[tuple[str, ...], float]], name: str, value: float, other: str) -> None:
        """Add a counter or gauge of the node to its family."""
        family = family_of(name)
        if family is None:
            if name not in WITHOUT_FAMILY:
                self._add(found, other, name, value)
        elif family.label:
            self._add(found, family.name, name[len(family.source) :], value)
        else:
            found.setdefault(family.name, {})[()] = max(0, self._now_us() - value) if family.elapsed else value

    def _add(self, found: dict[str, dict[tuple[str, ...], float]], family: str, label: str, value: float) -> None:
        """Add a sample with a label. Label values from peers and plugins are bounded; the first ones stay."""
        known = self._values.setdefault(family, {})
        if label not in known:
            if len(known) >= LABEL_VALUES_MAX:
                label = OTHER
            else:
                known[label] = None
        samples = found.setdefault(family, {})
        samples[(label,)] = samples.get((label,), 0) + value


def _family(family: Family, samples: Mapping[tuple[str, ...], float], reading: HistogramReading | None) -> Metric:
    name, labels = PREFIX + family.name, family.label.split(",") if family.label else []
    if family.kind is MetricKind.HISTOGRAM:
        return _histogram(family, reading)
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    metric = kind(name, family.meaning, labels=labels)
    for values, value in sorted(samples.items()) if labels else [((), samples.get((), 0))]:
        metric.add_metric(values, value * family.scale)
    return metric


def _histogram(family: Family, reading: HistogramReading | None) -> Metric:
    """Return cumulative buckets between the family's bounds. The lowest has all smaller values, ``+Inf`` has all."""
    metric = HistogramMetricFamily(PREFIX + family.name, family.meaning)
    low, high = family.buckets
    counts, total = (reading.counts, reading.total) if reading is not None else ((0,) * (high + 1), 0)
    cumulative = list(accumulate(counts))
    bounds = [(f"{2**place * family.scale:.9g}", float(cumulative[place])) for place in range(low, high + 1)]
    metric.add_metric([], [*bounds, ("+Inf", float(cumulative[-1]))], total * family.scale)
    return metric
