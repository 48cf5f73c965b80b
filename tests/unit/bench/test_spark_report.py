"""The report of ``stelae bench spark``: medians, ratios within a round, and the aims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stelae_bench import machine, spark_plot
from stelae_bench.spark_report import Pass, SparkReport, lines

SECONDS = {
    Pass.READ: [2.0, 4.0, 8.0],
    Pass.READ_NOTHING: [1.0, 1.0, 4.0],
    Pass.READ_CLIENT: [1.0, 2.0, 2.0],
    Pass.WRITE: [10.0, 20.0, 10.0],
    Pass.WRITE_NOTHING: [8.0, 8.0, 8.0],
    Pass.WRITE_CLIENT: [20.0, 20.0, 5.0],
}


def report(**changes: Any) -> SparkReport:
    described = machine.describe()
    settings = {
        **described,
        "versions": {**described["versions"], "pyspark": "4.3.0", "java": "17"},
        "seed": 1,
        "rounds": 3,
        "settings": {"master": "local[2]"},
    }
    return SparkReport(**{"rows": 1000, "seconds": SECONDS, "machine": settings, **changes})


def test_figures_are_medians_with_extremes_and_ratios_are_those_of_one_round() -> None:
    reading = report().document()["reading"]
    assert (reading["rows_per_s"], reading["rows_per_s_min"], reading["rows_per_s_max"]) == (250.0, 125.0, 500.0)
    assert reading["nothing_rows_per_s"] == 1000.0
    assert (reading["vs_nothing"], reading["vs_nothing_min"], reading["vs_nothing_max"]) == (0.5, 0.25, 0.5)
    assert reading["vs_client"] == 0.5
    writing = report().document()["writing"]
    assert (writing["vs_nothing"], writing["vs_client_max"]) == (0.8, 2.0)


def test_an_aim_is_reached_by_the_median() -> None:
    document = report().document()
    assert (document["reading"]["aim_vs_nothing"], document["reading"]["aim_reached"]) == (0.5, True)
    slow = report(seconds={**SECONDS, Pass.WRITE: [10.1, 10.1, 9.0]}).document()
    assert (slow["writing"]["aim_vs_nothing"], slow["writing"]["aim_reached"]) == (0.8, False)
    assert any("80%: NOT reached" in line for line in lines(slow))
    assert slow["ok"], "an aim is no check"


def test_a_run_that_ended_early_has_what_was_measured() -> None:
    early = report(seconds={}, problems=["read: 3 rows instead of 1000"])
    document = early.document()
    assert (document["reading"], document["ok"]) == (None, False)
    assert "reading was not measured" in lines(document)
    assert lines(document)[-1] == "NOT OK"


@pytest.mark.parametrize("seconds", [SECONDS, {}])
def test_the_picture_is_drawn_in_both_formats(tmp_path: Path, seconds: dict[Pass, list[float]]) -> None:
    spark_plot.draw(report(seconds=seconds).document(), tmp_path / "spark.svg")
    assert {path.name for path in tmp_path.iterdir()} == {"spark.svg", "spark.png"}
