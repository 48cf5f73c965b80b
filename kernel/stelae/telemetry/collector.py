"""Makes what Prometheus reads out of what a node has counted, when it is asked and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stelae.machine.metrics import HistogramReading, NodeMetrics
from stelae.telemetry.catalog import FAMILIES, LABEL_VALUES_MAX, PREFIX, UNSHOWN, Family, MetricKind, family_of
from stelae.telemetry.view import Sample

OTHER = "other"
"""The label value of all that came after the first so many."""


class NodeCollector(Collector):
    """Every family of the catalogue, each with a value from the first scrape on, and what plugins count besides.

    Args:
        metrics: what the node has counted.
        samples: what is worked out now, see ``NodeView``; not called before the node serves.
        now_us: the node's monotonic clock, for the families that say how long ago something was.
        master: whether the families of masters are served.
    """

    def __init__(
        self, metrics: NodeMetrics, samples: Callable[[], Iterable[Sample]], *, now_us: Callable[[], int], master: bool
    ) -> None:
        self._now_us = now_us
        self._metrics = metrics
        self._samples = samples
        self._families = [family for family in FAMILIES if master or not family.master]
        self._values: dict[str, dict[str, None]] = {}  #: Label values of each family that came first.

    def describe(self) -> Iterable[Metric]:
        """The names, without asking the node."""
        return [_family(family, {}, None) for family in self._families]

    def collect(self) -> Iterator[Metric]:
        """One reading of everything."""
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
        """Put a figure of the node where its family is."""
        family = family_of(name)
        if family is None:
            if name not in UNSHOWN:
                self._add(found, other, name, value)
        elif family.label:
            self._add(found, family.name, name[len(family.source) :], value)
        else:
            found.setdefault(family.name, {})[()] = max(0, self._now_us() - value) if family.elapsed else value

    def _add(self, found: dict[str, dict[tuple[str, ...], float]], family: str, label: str, value: float) -> None:
        """Add a labelled figure; labels that a peer or a plugin makes up are bounded, and the first stay."""
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
    made = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    metric = made(name, family.meaning, labels=labels)
    for values, value in sorted(samples.items()) if labels else [((), samples.get((), 0))]:
        metric.add_metric(values, value * family.scale)
    return metric


def _histogram(family: Family, reading: HistogramReading | None) -> Metric:
    """Cumulative buckets between the family's bounds; what lies below counts as of the lowest, and ``+Inf`` has all."""
    metric = HistogramMetricFamily(PREFIX + family.name, family.meaning)
    low, high = family.buckets
    counts, total = (reading.counts, reading.total) if reading is not None else ((0,) * (high + 1), 0)
    cumulative = list(accumulate(counts))
    bounds = [(f"{2**place * family.scale:.9g}", float(cumulative[place])) for place in range(low, high + 1)]
    metric.add_metric([], [*bounds, ("+Inf", float(cumulative[-1]))], total * family.scale)
    return metric
