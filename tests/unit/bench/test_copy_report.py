"""The report of ``stelae bench copy``: medians, ratios within a round, aims, and bytes that were moved twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer

from stelae_bench import machine
from stelae_bench.copy_command import parts_of
from stelae_bench.copy_context import CopyPart
from stelae_bench.copy_report import CopyReport, CopyRound, FileCopyRound, ResumeRound, TabletsRound
from stelae_bench.copy_run import node_settings
from stelae_bench.copy_table import lines
from stelae_bench.copy_tables import ROW_BYTES, batches
from stelae_bench.file_copy import FileCopyFailed, copy_and_sync
from stelae_bench.process_cpu import cpu_seconds, spent
from stelae_bench.report import ClusterRound

MB = 1_000_000


def copied(seconds: float) -> CopyRound:
    return CopyRound(seconds=seconds, copied_bytes=120 * MB, source_cpu_s=1.0, target_cpu_s=seconds)


def loop(ops_per_s: float) -> ClusterRound:
    return ClusterRound(writes=100, ops_per_s=ops_per_s, p50_ms=1.0, p99_ms=2.0)


def report(**changes: Any) -> CopyReport:
    full: dict[str, Any] = {
        "copies": {1: [copied(2.0), copied(4.0), copied(1.0)], 2: [copied(1.0), copied(2.0), copied(1.0)]},
        "file_copies": [FileCopyRound(seconds=s, copied_bytes=100 * MB) for s in (1.0, 1.0, 0.5)],
        "writes_alone": [loop(1000.0), loop(2000.0), loop(500.0)],
        "writes_beside": [loop(600.0), loop(1500.0), loop(400.0)],
        "copies_beside": [copied(8.0)] * 3,
        "resumes": {"target_killed": ResumeRound(whole_bytes=100, stored_bytes=40, moved_bytes=103)},
        "moved": TabletsRound(tablets=100, seconds=4.0, source_cpu_s=1.0, target_cpu_s=2.0, master_cpu_s=3.0),
        "machine": {**machine.describe(), "seed": 1, "rounds": 3},
    }
    return CopyReport(**{**full, **changes})


def test_shares_are_of_one_round_and_figures_are_medians_with_extremes() -> None:
    speed = report().document()["speed"]
    one = speed["one_source"]
    assert (one["mb_per_s"], one["mb_per_s_min"], one["mb_per_s_max"]) == (60.0, 30.0, 120.0)
    assert (one["vs_cp"], one["vs_cp_min"], one["vs_cp_max"]) == (0.6, 0.3, 0.6)
    assert (one["target_cpu_s"], one["bytes"]) == (2.0, 120 * MB)
    assert (speed["cp"]["mb_per_s"], speed["cp"]["bytes"]) == (100.0, 100 * MB)


def test_the_aim_of_speed_is_reached_if_both_are_fast_enough() -> None:
    assert report().document()["speed"]["aim_reached"]
    slow = {1: [copied(2.0)] * 3, 2: [copied(2.1)] * 3}
    slower = report(copies=slow).document()
    assert not slower["speed"]["aim_reached"] and slower["ok"], "an aim is no check"
    assert any("60% of cp and sync: NOT reached" in line for line in lines(slower))


def test_the_share_of_writes_that_is_kept_is_of_one_round() -> None:
    writes = report().document()["writes"]
    assert (writes["kept"], writes["kept_min"], writes["kept_max"]) == (0.75, 0.6, 0.8)
    assert writes["aim_reached"] and writes["alone"]["ops_per_s"] == 1000.0
    fewer = report(writes_beside=[loop(690.0)], writes_alone=[loop(1000.0)]).document()["writes"]
    assert not fewer["aim_reached"]


def test_bytes_that_were_moved_twice_are_those_beyond_the_whole() -> None:
    found = report().document()["resume"]["target_killed"]
    assert found == {"bytes": 100, "bytes_stored": 40, "bytes_moved": 103, "bytes_twice": 3, "share_twice": 0.03}
    less = ResumeRound(whole_bytes=100, stored_bytes=40, moved_bytes=99)
    assert less.twice_bytes == 0, "what was in flight when the process was killed may not be counted"


def test_the_rate_of_tablets_has_an_aim() -> None:
    moved = report().document()["tablets"]
    assert (moved["tablets_per_s"], moved["aim_reached"]) == (25.0, True)


def test_parts_that_were_not_measured_are_left_out() -> None:
    document = CopyReport(machine=report().machine, problems=["a row is missing"]).document()
    assert [document[part] for part in ("speed", "writes", "resume", "tablets")] == [None] * 4
    assert not document["ok"]
    text = lines(document)
    assert text[-1] == "NOT OK" and len(text) == 4


def test_a_processor_time_that_the_system_does_not_tell_is_no_number() -> None:
    unknown = CopyRound(seconds=2.0, copied_bytes=120 * MB, source_cpu_s=None, target_cpu_s=1.0)
    moved = TabletsRound(tablets=5, seconds=1.0, source_cpu_s=None, target_cpu_s=0.5, master_cpu_s=None)
    document = report(copies={1: [unknown] * 3, 2: [unknown] * 3}, moved=moved).document()
    assert document["speed"]["one_source"]["source_cpu_s"] is None
    assert document["speed"]["one_source"]["target_cpu_s"] == 1.0
    assert [document["tablets"][f"{who}_cpu_s"] for who in ("source", "target", "master")] == [None, 0.5, None]
    assert any("source - s, target 0.5 s, master - s" in line for line in lines(document))
    assert spent([1.0, 2.0], [2.0, 2.5]) == 1.5 and spent([1.0, None], [2.0, 3.0]) is None


def test_people_read_every_part() -> None:
    text = "\n".join(lines(report().document()))
    for words in (
        "120 MB",
        "from one source",
        "cp and sync of the files",
        "75% (60% - 80%)",
        "target killed",
        "25.0 a",
    ):
        assert words in text


def test_rows_have_the_size_that_was_asked_for_and_come_in_many_calls() -> None:
    calls = list(batches(200 * ROW_BYTES - 5, seed=1))
    assert sum(len(call) for call in calls) == 200 and len(calls) >= 50
    assert [row for call in calls for row in call["id"].to_pylist()] == list(range(200))
    assert {len(value) for call in calls for value in call["payload"].to_pylist()} == {ROW_BYTES - 8}
    assert calls[0].equals(next(batches(200 * ROW_BYTES, seed=1)))
    assert not calls[0].equals(next(batches(200 * ROW_BYTES, seed=2)))


def test_the_nodes_of_a_large_copy_have_the_default_sizes_and_those_of_a_small_one_flush_often() -> None:
    large, small = node_settings(1 << 30), node_settings(1 << 20)
    assert large["maintenance"]["flush_bytes"] == large["wal.segmented"]["segment_bytes_max"] == 64 << 20
    assert small["maintenance"]["flush_bytes"] == small["wal.segmented"]["segment_bytes_first"] == 64 << 10


def test_files_are_copied_and_removed_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "below" / "file").write_bytes(b"x" * 1000)
    assert copy_and_sync(source, tmp_path / "copy") > 0
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    with pytest.raises(FileCopyFailed, match="nowhere"):
        copy_and_sync(tmp_path / "nowhere", tmp_path / "copy")


def test_the_processor_time_of_a_process_is_read_behind_its_name(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 300 200 0 0")
    assert cpu_seconds(7, tmp_path) == 500 / os.sysconf("SC_CLK_TCK")
    assert cpu_seconds(8, tmp_path) is None


def test_a_part_is_named_once_and_known() -> None:
    assert parts_of("resume, speed") == {CopyPart.RESUME, CopyPart.SPEED}
    for text, words in (("speed,files", "known parts: speed, writes, resume, tablets"), ("speed,speed", "twice")):
        with pytest.raises(typer.BadParameter, match=words):
            parts_of(text)
