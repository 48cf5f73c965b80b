"""Counters and histograms of a node: what is added is what is read."""

from __future__ import annotations

import pytest

from stelae.machine.metrics import BITS, Histogram, NodeMetrics


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 3),
        (1 << 20, 20),
        ((1 << 20) + 1, 21),
        (1 << 47, 47),
        (1 << 60, BITS),
    ],
)
def test_a_value_counts_in_the_bucket_of_the_power_of_two_that_is_not_below_it(value: int, place: int) -> None:
    histogram = Histogram()
    histogram.add(value)
    reading = histogram.read()
    assert [p for p, count in enumerate(reading.counts) if count] == [place]
    assert reading.total == value


def test_a_histogram_asked_for_twice_is_the_same_one() -> None:
    metrics = NodeMetrics()
    metrics.histogram("write_us")(3)
    metrics.histogram("write_us")(5)
    (reading,) = metrics.histograms().values()
    assert (sum(reading.counts), reading.total) == (2, 8)


def test_counters_add_up_and_gauges_show_the_last_value() -> None:
    metrics = NodeMetrics()
    metrics.count("flushes")
    metrics.count("flushes", 4)
    metrics.gauge("loop_lag_ms", 3.0)
    metrics.gauge("loop_lag_ms", 1.5)
    assert metrics.counts() == {"flushes": 5} and metrics.gauges() == {"loop_lag_ms": 1.5}
    assert metrics.snapshot() == {"flushes": 5, "loop_lag_ms": 1.5}
