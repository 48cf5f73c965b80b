"""The document of a run, and how it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from stelae.spi.extras import MissingExtra
from stelae_bench import machine, plot
from stelae_bench.closed_loop import LoopSample
from stelae_bench.plot import BadPlotFile
from stelae_bench.report import ClusterReport, ClusterRound, round_of
from stelae_bench.table import lines


def one_round(ops_per_s: float) -> ClusterRound:
    return ClusterRound(writes=10, ops_per_s=ops_per_s, p50_ms=1.0, p99_ms=2.0)


def sample(began: float, ended: float, latencies_ms: list[float]) -> LoopSample:
    return LoopSample(began=began, ended=ended, latencies_ms=latencies_ms, problems=[])


def report(**changes: Any) -> ClusterReport:
    values: dict[str, Any] = {
        "writes": {n: [one_round(n * r) for r in (3.0, 1.0, 2.0)] for n in (256, 1, 64, 16)},
        "writes_8x8": [one_round(50.0)] * 3,
        "fdatasync_4k_us": [100.0, 300.0, 200.0],
        "zmq_rtt_us": [90.0, 80.0, 70.0],
        "machine": {**machine.describe(), "seed": 1, "rounds": 3, "settings": {"round_seconds": 0.5}},
        "rows_acked": 150,
        "rows_read": 150,
    }
    return ClusterReport(**{**values, **changes})


def test_processes_of_a_round_are_measured_from_the_first_start_to_the_last_end() -> None:
    joined = round_of([sample(0.0, 1.0, [5.0, 1.0]), sample(0.5, 2.0, [3.0, 9.0])])
    assert joined == ClusterRound(writes=4, ops_per_s=2.0, p50_ms=3.0, p99_ms=9.0)


def test_the_document_has_a_row_per_load_in_order_each_with_medians_and_spread() -> None:
    document = report().document()
    assert [row["in_flight"] for row in document["writes"]] == [1, 16, 64, 256]
    assert document["writes"][2] == {
        "in_flight": 64,
        "writes": 30,
        "ops_per_s": 128.0,
        "ops_per_s_min": 64.0,
        "ops_per_s_max": 192.0,
        "p50_ms": 1.0,
        "p50_ms_min": 1.0,
        "p50_ms_max": 1.0,
        "p99_ms": 2.0,
        "p99_ms_min": 2.0,
        "p99_ms_max": 2.0,
    }
    assert document["writes_8x8"]["ops_per_s"] == 50.0
    assert document["bare"] == {
        "fdatasync_4k_us": 200.0,
        "fdatasync_4k_us_min": 100.0,
        "fdatasync_4k_us_max": 300.0,
        "zmq_rtt_us": 80.0,
        "zmq_rtt_us_min": 70.0,
        "zmq_rtt_us_max": 90.0,
    }
    assert document["ok"] is True
    assert orjson.loads(orjson.dumps(document)) == document


def test_the_machine_says_what_it_is_and_which_versions_ran() -> None:
    found = machine.describe()
    assert found["cpu_count"] >= 1
    assert {"stelae", "pyzmq", "libzmq", "pyarrow"} <= set(found["versions"])
    assert {"cpu_model", "memory_bytes", "kernel", "python", "python_step_ns"} <= set(found)


def test_a_problem_makes_a_report_not_ok_even_before_the_first_round() -> None:
    broken = ClusterReport(writes={1: []}, problems=["a write failed"], machine=report().machine)
    document = broken.document()
    assert (document["ok"], document["problems"]) == (False, ["a write failed"])
    assert document["writes"][0]["ops_per_s"] == 0
    assert lines(document)[-1] == "NOT OK"


def test_the_table_shows_every_load_the_bare_machine_and_the_verdict() -> None:
    text = lines(report().document())
    assert [line.split()[0] for line in text[3:8]] == ["1", "16", "64", "256", "8"]
    assert text[5].split() == ["64", "128", "(64", "-", "192)", "1.00", "2.00"]
    assert any("200 us for 4 KiB" in line for line in text)
    assert text[-1] == "ok"


@pytest.mark.parametrize("name", ["figures.pdf", "figures", "nowhere/figures.png"])
def test_a_plot_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadPlotFile, match=r"--plot .*(must end in \.png or \.svg|folder .* does not exist)"):
        plot.check(tmp_path / name)


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"matplotlib.*stelae\[bench\]"):
        plot.check(tmp_path / "figures.svg")
