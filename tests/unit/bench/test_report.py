"""The document of a run, and how it is shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from stelae.spi.extras import MissingExtra
from stelae_bench import machine, plot
from stelae_bench.closed_loop import LoopSample
from stelae_bench.cluster_costs import UNKNOWN_COST, Cost
from stelae_bench.measured_round import ClusterRound
from stelae_bench.peer_figures import PeerFigures
from stelae_bench.peers import PeerLine, PeerRound
from stelae_bench.plot import BadPlotFile
from stelae_bench.report import ClusterReport, round_of
from stelae_bench.table import lines

KNOWN = Cost(client_s=1e-3, leader_s=2e-3, followers_s=3e-3, switches=20, entries=2, written=10)


def one_round(ops_per_s: float, number: int = 0, cost: Cost = KNOWN) -> ClusterRound:
    return ClusterRound(number=number, cost=cost, writes=10, ops_per_s=ops_per_s, p50_ms=1.0, p99_ms=2.0)


def peer_round(ops_per_s: float, number: int) -> PeerRound:
    return PeerRound(number=number, line=PeerLine(work="write", in_flight=64, ops_per_s=ops_per_s, p50_ms=0.5))


def same(name: str, value: float | None) -> dict[str, float | None]:
    return {name: value, f"{name}_min": value, f"{name}_max": value}


def sample(began: float, ended: float, latencies_ms: list[float]) -> LoopSample:
    return LoopSample(began=began, ended=ended, latencies_ms=latencies_ms, problems=[])


def report(**changes: Any) -> ClusterReport:
    values: dict[str, Any] = {
        "writes": {n: [one_round(n * r, place) for place, r in enumerate((3, 1, 2))] for n in (256, 1, 64, 16)},
        "writes_8x8": [one_round(96.0, 0), one_round(64.0, 1), one_round(160.0, 2)],
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
        **same("cpu_us_per_op", 600.0),
        **same("client_cpu_us_per_op", 100.0),
        **same("leader_cpu_us_per_op", 200.0),
        **same("followers_cpu_us_per_op", 300.0),
        **same("switches_per_op", 2.0),
        **same("ops_per_entry", 5.0),
    }
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


def test_eight_processes_are_compared_with_one_round_by_round_and_not_median_by_median() -> None:
    eight = report().document()["writes_8x8"]
    assert (eight["ops_per_s"], report().document()["writes"][2]["ops_per_s"]) == (96.0, 128.0)
    assert (eight["vs_one_process"], eight["vs_one_process_min"], eight["vs_one_process_max"]) == (1.0, 0.5, 1.25)
    assert "8 processes    100% of one process with 64 in flight (50% - 125%)" in lines(report().document())


def test_a_cost_that_the_system_does_not_tell_is_null_and_a_dash_and_never_zero() -> None:
    found = report(writes={1: [one_round(1.0, cost=UNKNOWN_COST)]}).document()
    assert found["writes"][0].items() >= {**same("cpu_us_per_op", None), **same("ops_per_entry", None)}.items()
    assert lines(found)[3].split()[-4:] == ["+", "-)", "-", "-"]


def test_reads_write_no_entries_so_they_have_no_operations_per_entry() -> None:
    cost = Cost(client_s=1e-3, leader_s=2e-3, followers_s=3e-3, switches=20, entries=0, written=0)
    row = report(reads={("latest", 1): [one_round(1.0, cost=cost)]}, read_rows=70_000).document()["reads"][0]
    assert (row["ops_per_entry"], row["switches_per_op"], row["rows"]) == (None, 2.0, 70_000)


def test_a_peer_is_beside_each_row_with_the_quotients_of_the_same_rounds() -> None:
    rounds = {("write", 64): [peer_round(100.0, 2), peer_round(64.0, 0)], ("write", 32): [peer_round(9.0, 0)]}
    found = report(peers={"etcd": PeerFigures(command="run etcd", rounds=rounds, idle_cpu_shares=[0.02])}).document()
    beside = {row["in_flight"]: row["peers"] for row in found["writes"]}
    assert (beside[1], set(beside[64])) == ({}, {"etcd"})
    etcd = beside[64]["etcd"]
    assert (etcd["ops_per_s"], etcd["p50_ms"], etcd["server_us"]) == (82.0, 0.5, None)
    assert (etcd["vs_ops_per_s"], etcd["vs_ops_per_s_min"], etcd["vs_ops_per_s_max"]) == (2.14, 1.28, 3.0)
    assert (etcd["vs_p50_ms"], found["peers"]["etcd"]["idle_stelae_cpu_share"]) == (2.0, 0.02)
    assert [row["in_flight"] for row in found["peers"]["etcd"]["results"]] == [32, 64]
    head, *rows = lines(found)[2:7]
    assert head.endswith("etcd/s  x etcd")
    assert [row.split()[-2:] for row in rows[:3]] == [["-", "-"], ["-", "-"], ["82", "2.14"]]


def test_retries_are_shown_with_their_codes_if_there_are_any() -> None:
    assert not any(line.startswith("retries") for line in lines(report().document()))
    found = report(retries=Counter(NOT_LEADER=64, UNAVAILABLE=1)).document()
    assert found["retries"] == {"NOT_LEADER": 64, "UNAVAILABLE": 1}
    assert "retries        65 operations were sent again: 64 NOT_LEADER, 1 UNAVAILABLE" in lines(found)


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
    assert text[5].split()[:7] == ["64", "128", "(64", "-", "192)", "1.00", "2.00"]
    assert text[5].split()[7:] == ["600", "(100", "+", "200", "+", "300)", "2.00", "5.0"]
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
