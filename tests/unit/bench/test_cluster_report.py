"""Bulk loads, scans, reads and YCSB in the document, and in the table for people."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from stelae_bench import machine
from stelae_bench.cluster_bulk import LoadRound
from stelae_bench.cluster_command import PARTS_TEXT, parts_of
from stelae_bench.cluster_context import BenchPart
from stelae_bench.measured_round import ClusterRound
from stelae_bench.report import ClusterReport, LoadFigures, ScanFigures, ScanRound
from stelae_bench.table import lines


def loaded(*seconds: float) -> list[LoadRound]:
    return [LoadRound(rows=1000, value_bytes=170_000, seconds=one) for one in seconds]


def rounds(*ops_per_s: float) -> list[ClusterRound]:
    return [ClusterRound(writes=10, ops_per_s=one, p50_ms=1.0, p99_ms=2.0) for one in ops_per_s]


def scanned(*seconds: float) -> list[ScanRound]:
    return [ScanRound(number=number, rows=1000, seconds=one) for number, one in enumerate(seconds)]


def report(**changes: Any) -> ClusterReport:
    values: dict[str, Any] = {
        "loads": {
            "bulk": LoadFigures(scale=0.1, rounds=loaded(0.01, 0.02, 0.005)),
            "bulk_mixed": LoadFigures(rounds=loaded(0.01)),
        },
        "scan_flushed": ScanFigures(
            table="lineitem", rounds=scanned(0.5, 0.4, 0.25), parquet=scanned(0.4, 0.1, 0.2)[::-1]
        ),
        "scan_unflushed": ScanFigures(table="lineitem", rounds=scanned(0.1), parquet=scanned(0.1)),
        "reads": {(mode, n): rounds(n * 10.0) for mode in ("snapshot", "latest") for n in (64, 1)},
        "read_rows": 70_000,
        "ycsb": {(letter, 16): rounds(30.0, 10.0, 20.0) for letter in "CA"},
        "machine": {**machine.describe(), "seed": 1, "rounds": 3, "settings": {"round_seconds": 0.5}},
    }
    return ClusterReport(**{**values, **changes})


def test_a_bulk_load_has_rows_and_megabytes_per_second_and_the_scale_of_its_table() -> None:
    bulk = report().document()["bulk"]
    assert bulk["cpu_us_per_op"] is None
    assert {name: value for name, value in bulk.items() if "_per_" not in name or "_per_s" in name} == {
        "rows_per_s": 100_000.0,
        "rows_per_s_min": 50_000.0,
        "rows_per_s_max": 200_000.0,
        "mb_per_s": 17.0,
        "mb_per_s_min": 8.5,
        "mb_per_s_max": 34.0,
        "scale": 0.1,
        "rows": 3000,
    }
    assert "scale" not in report().document()["bulk_mixed"]


def test_a_scan_is_compared_with_parquet_round_by_round_and_not_median_by_median() -> None:
    scan = report().document()["scan_flushed"]
    assert (scan["rows_per_s"], scan["parquet_rows_per_s"]) == (2500.0, 5000.0)
    assert (scan["vs_parquet"], scan["vs_parquet_min"], scan["vs_parquet_max"]) == (0.8, 0.25, 0.8)
    assert (scan["table"], scan["rows"]) == ("lineitem", 1000)
    assert report().document()["scan_unflushed"]["vs_parquet"] == 1.0


def test_reads_and_workloads_have_a_row_for_each_number_in_flight() -> None:
    document = report().document()
    assert [(row["mode"], row["in_flight"]) for row in document["reads"]] == [
        ("latest", 1),
        ("latest", 64),
        ("snapshot", 1),
        ("snapshot", 64),
    ]
    assert [row["workload"] for row in document["ycsb"]] == ["A", "C"]
    row = document["ycsb"][0]
    assert (row["ops"], row["ops_per_s"], row["ops_per_s_min"], row["ops_per_s_max"]) == (30, 20.0, 10.0, 30.0)
    assert (row["p50_ms"], row["p99_ms_max"]) == (1.0, 2.0)


def test_what_was_not_measured_is_null_or_empty_and_not_zero() -> None:
    document = ClusterReport(machine=report().machine).document()
    assert [document[name] for name in ("bulk", "scan_unflushed", "scan_flushed")] == [None] * 3
    assert (document["reads"], document["ycsb"], document["writes"]) == ([], [], [])
    assert not any("rows/s" in line or "ops/s" in line or "writes/s" in line for line in lines(document))


def test_the_table_shows_every_part_and_what_was_left_out() -> None:
    text = lines(report(left_out={"lineitem": "no program"}).document())
    assert any("lineitem at scale 0.1" in line and "100,000" in line and "17 MB/s" in line for line in text)
    assert any(line.startswith("scan of lineitem, flushed") and "80% of Parquet (25% - 80%)" in line for line in text)
    assert any(line.startswith("scan of lineitem, unflushed") and "100% of Parquet" in line for line in text)
    assert "point reads by full key, over 70,000 rows" in text
    assert [line.split()[:3] for line in text if line.startswith("snapshot")] == [
        ["snapshot", "1", "10"],
        ["snapshot", "64", "640"],
    ]
    assert [line.split()[0] for line in text if line[:2] in ("A ", "C ")] == ["A", "C"]
    assert "lineitem is left out: no program" in text
    assert text[-1] == "ok"


def test_all_parts_are_measured_unless_some_are_named() -> None:
    assert parts_of(PARTS_TEXT) == frozenset(BenchPart)
    assert parts_of(" scan, reads") == {BenchPart.SCAN, BenchPart.READS}


@pytest.mark.parametrize(
    ("text", "words"), [("scan,scan", "occurs twice"), ("rows", "is not a part"), ("", "known parts")]
)
def test_a_part_that_is_unknown_or_occurs_twice_is_refused(text: str, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        parts_of(text)
