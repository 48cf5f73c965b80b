"""The document of ``stelae bench wal``, its tables and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from stelae_bench import machine
from stelae_bench.wal_cases import REFERENCES, WalBenchSettings, WalCase
from stelae_bench.wal_plot import draw, figure_of
from stelae_bench.wal_report import HUNDRED, MANY, ONE, WalReport
from stelae_bench.wal_samples import WalRound, WalSample, round_of
from stelae_bench.wal_table import lines, markdown

FULL = WalBenchSettings(seed=1, rounds=5, seconds=1.0, quick=False, restart_bytes=1, directory=None)


def one_round(
    entries_per_s: float, p50_us: float = 100.0, entries_per_group: float = 4.0, commit_p50_us: float = 80.0
) -> WalRound:
    return WalRound(
        entries_per_s=entries_per_s,
        p50_us=p50_us,
        p99_us=2 * p50_us,
        cpu_us_per_entry=1.0,
        entries_per_group=entries_per_group,
        commit_p50_us=commit_p50_us,
    )


def report_of(rates: dict[tuple[str, WalCase], list[float]]) -> WalReport:
    report = WalReport()
    for key, values in rates.items():
        report.rounds[key] = [one_round(value) for value in values]
    settings = {"round_seconds": 1.0, "log_sync": "always", "restart_bytes": 1_000_000_000}
    report.machine = {**machine.describe(), "seed": 1, "rounds": 5, "settings": settings}
    return report


def whole_report() -> WalReport:
    names = ("sqlite", "raw", "lmdb", "segmented", "raw_written", "shared", "raw_crc", "rocksdb")
    report = report_of({(name, case): [1000.0, 1200.0, 800.0] for name in names for case in (HUNDRED, MANY, ONE)})
    for other in REFERENCES:
        for case in (MANY, ONE):
            report.replays[other, "shared", case] = [one_round(2000.0, 50.0)] * 3
    return report


def test_a_round_joins_samples_by_their_time_and_counts_groups() -> None:
    one = WalSample(seconds=1.0, cpu_s=0.5, latencies_us=[10.0] * 60, groups=[30, 30], commits_us=[7.0, 9.0])
    other = WalSample(seconds=3.0, cpu_s=1.5, latencies_us=[30.0] * 40, groups=[20, 20], commits_us=[8.0])
    assert round_of([one, other]) == WalRound(
        entries_per_s=25.0,
        p50_us=10.0,
        p99_us=30.0,
        cpu_us_per_entry=20_000.0,
        entries_per_group=25.0,
        commit_p50_us=8.0,
    )


def test_a_row_says_what_it_is_and_has_medians_with_their_spread() -> None:
    (row,) = report_of({("lmdb", MANY): [100.0, 300.0, 200.0]}).document()["rows"]
    assert {key: row[key] for key in ("engine", "entry_bytes", "in_flight", "tablets", "sync")} == {
        "engine": "lmdb",
        "entry_bytes": 4096,
        "in_flight": 64,
        "tablets": 1,
        "sync": "always",
    }
    assert (row["entries_per_s"], row["entries_per_s_min"], row["entries_per_s_max"]) == (200.0, 100.0, 300.0)
    assert row["mb_per_s"] == pytest.approx(0.8192)
    assert (row["p50_us"], row["p99_us"]) == (100.0, 200.0)


def test_rows_are_sorted_by_case_then_ours_then_bare_then_databases() -> None:
    rows = whole_report().document()["rows"]
    bare = ["raw", "raw_written", "raw_crc"]
    assert [row["engine"] for row in rows[:8]] == ["segmented", "lmdb", "shared", *bare, "rocksdb", "sqlite"]
    assert [(row["in_flight"], row["tablets"]) for row in rows[::8]] == [(1, 1), (64, 1), (1, 100)]


def test_a_ratio_is_the_median_of_the_quotients_within_rounds() -> None:
    report = report_of({("segmented", MANY): [10.0, 1000.0, 90.0]})
    report.replays["raw", "segmented", MANY] = [one_round(20.0), one_round(1000.0), one_round(100.0)]
    (ratios,) = report.document()["ratios"]
    assert (ratios["vs_raw"], ratios["vs_raw_min"], ratios["vs_raw_max"]) == (0.9, 0.5, 1.0)


def test_an_engine_is_compared_with_the_replay_of_its_own_groups() -> None:
    ratios = {ratio["engine"]: ratio for ratio in whole_report().document()["ratios"]}
    assert ratios["shared"]["vs_rocksdb"] == 0.5
    assert ratios["shared"]["latency_vs_raw"] == 2.0
    assert "vs_rocksdb" not in ratios["lmdb"]


def test_a_hundred_tablets_cost_the_time_of_one_append_to_each() -> None:
    report = report_of({("shared", MANY): [1.0], ("shared", ONE): [1000.0], ("shared", HUNDRED): [25_000.0]})
    (ratios,) = report.document()["ratios"]
    assert ratios["tablets_100_vs_1"] == 4.0


def test_a_commit_for_a_hundred_tablets_is_compared_with_one_for_one_tablet_also_if_it_missed_some() -> None:
    report = report_of({("shared", MANY): [1.0]})
    report.rounds["shared", ONE] = [one_round(1.0, entries_per_group=1.0, commit_p50_us=200.0)]
    report.rounds["shared", HUNDRED] = [one_round(1.0, entries_per_group=50.0, commit_p50_us=400.0)]
    (ratios,) = report.document()["ratios"]
    assert ratios["commit_100_vs_1"] == 4.0


def test_the_document_is_json_and_a_problem_makes_it_not_ok() -> None:
    report = whole_report()
    assert orjson.loads(orjson.dumps(report.document()))["ok"] is True
    report.problems.append("lmdb: an append to t0/1 failed: no space")
    assert lines(report.document())[-1] == "NOT OK"


def test_the_table_shows_what_was_left_out_and_what_became_of_a_large_log() -> None:
    report = report_of({(name, MANY): [1000.0] for name in ("segmented", "raw")})
    report.left_out["rocksdb"] = "rocksdict is not installed"
    report.large_logs["segmented"] = [{"restart_after_kill_s": 0.25, "read_random_p50_us": 1234.0}]
    text = "\n".join(lines(report.document()))
    assert "rocksdb is left out: rocksdict is not installed" in text
    assert "one log of 1 GB in entries of 4 KiB" in text
    assert "0.25" in text
    assert "1,234" in text
    assert "sqlite" not in text.split("ratios")[0]


def test_the_tables_for_a_page_hold_what_those_for_a_terminal_do() -> None:
    report = whole_report()
    report.large_logs["segmented"] = [{"restart_after_kill_s": 0.25}]
    document = report.document()
    page = markdown(document)
    assert "| in flight | `segmented` | `lmdb` |" in page and "| ratio" not in page
    assert "|  | aim | `segmented` | `lmdb` | `shared` |" in page
    ratio = next(line for line in page.splitlines() if "64 x 4 KiB" in line)
    assert ratio.split(" | ")[1] == "0.65 or more" and ratio.endswith("0.50 (0.40 - 0.60) |")
    figures = [line.split()[-1] for line in lines(document) if line.startswith(("4 KiB", "restart"))]
    assert len(figures) == 8 and all(f" {figure} |" in page for figure in figures)
    assert "- machine " in page and "- method " in page
    for block in page.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.count(" | ") for row in rows}) <= 1, "every row has every column"


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_picture_is_drawn_in_both_formats_whatever_participants_there_are(tmp_path: Path, name: str) -> None:
    document: dict[str, Any] = whole_report().document()
    draw(document, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    document["rows"] = [row for row in document["rows"] if row["engine"] != "rocksdb"]
    document["ratios"] = []
    draw(document, tmp_path / name)


def test_a_picture_shows_each_aim_that_was_measured_and_what_was_reached() -> None:
    figure = figure_of(whole_report().document())
    aims = figure.axes[0]
    names = [label.get_text() for label in aims.get_xticklabels()]
    assert names[0] == "64 x 4 KiB, of raw\naim: 0.65 or more"
    assert "0.50" in [text.get_text() for text in aims.texts], "the ratio to rocksdb, as it was measured"
    values = [text.get_text() for text in figure.axes[1].texts]
    assert "1.0k" in values, "and every median has its figure"


@pytest.mark.parametrize("more", [0, 5])
def test_the_legend_of_a_picture_stands_above_the_axes_and_within_it(more: int) -> None:
    document: dict[str, Any] = whole_report().document()
    own = [row for row in document["rows"] if row["engine"] == "segmented"]
    document["rows"] += [{**row, "engine": f"another_engine_{number}"} for number in range(more) for row in own]
    figure = figure_of(document)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    covered = legend.get_window_extent()
    assert covered.y0 >= max(axes.get_tightbbox().y1 for axes in figure.axes)
    assert figure.bbox.x0 <= covered.x0 and covered.x1 <= figure.bbox.x1 and covered.y1 <= figure.bbox.y1
    assert len(legend.get_texts()) == len({row["engine"] for row in document["rows"]})


def test_the_full_list_holds_every_size_and_load_and_the_cases_of_the_ratios() -> None:
    cases = FULL.cases
    assert len(cases) == len(set(cases)) == 3 * 3 * 6
    assert {(case.in_flight, case.tablets) for case in cases} == {
        (1, 1),
        (16, 1),
        (64, 1),
        (256, 1),
        (1, 100),
        (1, 1000),
    }
    quick = WalBenchSettings(seed=1, rounds=5, seconds=1.0, quick=True, restart_bytes=1, directory=None).cases
    assert {ONE, MANY, HUNDRED} < set(quick) < set(cases)
