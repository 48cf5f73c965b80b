"""What Prometheus reads: every family, under names that follow its conventions, with bounded labels."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from prometheus_client import openmetrics
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from prometheus_client.registry import CollectorRegistry

from stelae.machine.metrics import NodeMetrics
from stelae.telemetry.catalog import FAMILIES, LABEL_VALUES_MAX, PREFIX, Family, MetricKind, family_of
from stelae.telemetry.collector import NodeCollector
from stelae.telemetry.node_samples import Sample

assert openmetrics  # The package has to be named before its modules.


def collected(
    metrics: NodeMetrics | None = None, samples: Iterable[Sample] = (), *, now_us: int = 0, master: bool = True
) -> dict[str, Metric]:
    collector = NodeCollector(metrics or NodeMetrics(), lambda: samples, now_us=lambda: now_us, master=master)
    return {metric.name.removeprefix(PREFIX): metric for metric in collector.collect()}


def value(metric: Metric, suffix: str = "", **labels: str) -> float:
    (found,) = [s.value for s in metric.samples if s.name == metric.name + suffix and s.labels == labels]
    return float(found)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_named_by_the_conventions(family: Family) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", family.name)
    assert not family.name.endswith(("_total", "_ms", "_us", "_count", "_sum", "_bucket", "_info_total"))
    assert family.meaning and family.meaning[-1] != "."
    if family.scale == 1e-6 or family.scale == 1e-3:
        assert family.name.endswith("_seconds")
    if family.kind is MetricKind.HISTOGRAM:
        low, high = family.buckets
        assert 5 <= high - low <= 25


def test_no_two_families_have_one_name_or_one_source() -> None:
    names, sources = [f.name for f in FAMILIES], [f.source for f in FAMILIES if f.source]
    assert len(set(names)) == len(names) and len(set(sources)) == len(sources)


def test_everything_is_served_before_anything_has_happened() -> None:
    found = collected()
    assert list(found) == [family.name for family in FAMILIES]
    for family in FAMILIES:
        assert bool(found[family.name].samples) == (not family.label)
        assert all(sample.value == 0 for sample in found[family.name].samples)


def test_a_tablet_server_has_no_families_of_masters() -> None:
    found = collected(master=False)
    assert {family.name for family in FAMILIES if family.name not in found} == {f.name for f in FAMILIES if f.master}


def test_what_a_node_counts_stands_under_its_family_label_and_unit() -> None:
    metrics = NodeMetrics()
    metrics.count("flushes", 3)
    metrics.count("wire_refused_total", 9)
    metrics.count("wire_refused_malformed", 7)
    metrics.count("wire_refused_by_peer_wrong_cluster", 2)
    metrics.gauge("loop_lag_ms_max", 250.0)
    found = collected(metrics, [("tablet_term", ("t1",), 4), ("log_queue_bytes", (), 17)])
    assert value(found["flushes"], "_total") == 3
    assert value(found["wire_refused"], "_total", code="malformed") == 7
    assert len(found["wire_refused"].samples) == 1, "the total is the sum over the codes"
    assert value(found["wire_refused_by_peer"], "_total", code="wrong_cluster") == 2
    assert value(found["loop_lag_max_seconds"]) == 0.25
    assert value(found["tablet_term"], tablet="t1") == 4
    assert value(found["log_queue_bytes"]) == 17


def test_buckets_are_cumulative_in_seconds_and_the_last_has_all() -> None:
    metrics = NodeMetrics()
    add = metrics.histogram("write_us")
    for value_us in (1, 32, 33, 1_000_000, 1 << 40):
        add(value_us)
    metric = collected(metrics)["write_duration_seconds"]
    bounds = {s.labels["le"]: s.value for s in metric.samples if s.name.endswith("_bucket")}
    assert bounds["3.2e-05"] == 2 and bounds["6.4e-05"] == 3
    assert bounds["1.048576"] == 4 and bounds["+Inf"] == 5
    assert list(bounds.values()) == sorted(bounds.values())
    assert value(metric, "_count") == 5
    assert value(metric, "_sum") == pytest.approx((66 + 1_000_000 + (1 << 40)) / 1e6)


def test_the_age_of_a_masters_catalog_grows_between_two_readings_though_the_master_sleeps() -> None:
    metrics = NodeMetrics()
    assert value(collected(metrics, now_us=7_000_000)["master_catalog_age_seconds"]) == 0
    metrics.gauge("master_catalog_current_at_us", 1_000_000)
    for now_us, age_s in ((1_000_000, 0), (3_500_000, 2.5), (61_000_000, 60)):
        assert value(collected(metrics, now_us=now_us)["master_catalog_age_seconds"]) == age_s


def test_names_of_plugins_are_served_too() -> None:
    metrics = NodeMetrics()
    metrics.count("mine_merges", 2)
    metrics.gauge("mine_depth", 8)
    found = collected(metrics)
    assert family_of("mine_merges") is None
    assert value(found["other_events"], "_total", name="mine_merges") == 2
    assert value(found["other_figures"], name="mine_depth") == 8


def test_labels_that_peers_make_up_are_bounded_and_the_first_ones_stay() -> None:
    metrics = NodeMetrics()
    collector = NodeCollector(metrics, lambda: (), now_us=lambda: 0, master=False)
    metrics.count("wire_refused_malformed")
    list(collector.collect())
    for number in range(10_000):
        metrics.count(f"wire_refused_made_up_{number}")
    (refused,) = [metric for metric in collector.collect() if metric.name == "stelae_wire_refused"]
    assert len(refused.samples) == LABEL_VALUES_MAX + 1
    assert value(refused, "_total", code="malformed") == 1
    assert value(refused, "_total", code="other") == 10_000 - (LABEL_VALUES_MAX - 1)


def test_both_formats_can_be_read_back() -> None:
    metrics = NodeMetrics()
    metrics.count('wire_refused_"odd\n\\', 1)
    metrics.histogram("write_us")(5)
    registry = CollectorRegistry()
    registry.register(NodeCollector(metrics, lambda: (), now_us=lambda: 0, master=True))
    for made, parse in ((generate_latest, parse_plain), (exposition.generate_latest, parse_open)):
        families = {family.name: family for family in parse(made(registry).decode())}
        for family in FAMILIES:
            assert families[PREFIX + family.name].type == family.kind.value
        (odd,) = families["stelae_wire_refused"].samples
        assert odd.labels == {"code": '"odd\n\\'}
