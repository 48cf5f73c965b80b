"""``stelae metrics``: figures as people read them."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from stelae.cli.run_metrics import _shown, figures_of, run_metrics
from stelae.machine.metrics import NodeMetrics
from stelae.spi.errors import CallerError, ConfigError
from stelae.telemetry.collector import NodeCollector


def figures(metrics: NodeMetrics) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(NodeCollector(metrics, lambda: (), now_us=lambda: 0, master=False))
    return figures_of(text_string_to_metric_families(generate_latest(registry).decode()))


def test_a_histogram_is_its_number_its_mean_and_two_bounds() -> None:
    metrics = NodeMetrics()
    for value_us in [100] * 98 + [900_000] * 2:
        metrics.histogram("write_us")(value_us)
    found = figures(metrics)
    assert found["stelae_write_duration_seconds count"] == 100
    assert found["stelae_write_duration_seconds mean"] == pytest.approx(0.018098)
    assert found["stelae_write_duration_seconds p50 <="] == 0.000128
    assert found["stelae_write_duration_seconds p99 <="] == 1.048576


def test_a_histogram_without_values_is_zeros_and_one_above_all_bounds_infinite() -> None:
    assert figures(NodeMetrics())["stelae_write_duration_seconds p99 <="] == 0
    metrics = NodeMetrics()
    metrics.histogram("write_us")(1 << 40)
    assert figures(metrics)["stelae_write_duration_seconds p50 <="] == float("inf")


def test_labels_stand_with_the_name() -> None:
    metrics = NodeMetrics()
    metrics.count("wire_refused_malformed", 3)
    metrics.count("flushes", 2)
    found = figures(metrics)
    assert found['stelae_wire_refused_total{code="malformed"}'] == 3 and found["stelae_flushes_total"] == 2


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "-"), (0.0, "0"), (3.0, "3"), (0.000128, "0.000128"), (float("inf"), "inf")]
)
def test_figures_are_shown_as_short_as_they_can_be(value: float | None, shown: str) -> None:
    assert _shown(value) == shown


def test_without_a_node_it_says_how_to_name_one() -> None:
    with pytest.raises(CallerError, match="pass metrics addresses HOST:PORT, or --dir"):
        run_metrics([], None, "", everything=False, as_json=False)
    with pytest.raises(ConfigError, match="is not an address"):
        run_metrics(["nonsense"], None, "", everything=False, as_json=False)
