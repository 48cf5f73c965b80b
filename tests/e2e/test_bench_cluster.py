"""``stelae bench cluster`` as real processes: its document, its errors, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_process import stelae

BENCH = [sys.executable, "-m", "stelae", "bench", "cluster"]
SHORT = ["--quick", "--seconds", "0.1", "--scale", "0.001"]
RUN_S = 120
LOADS = {"ops_per_s", "p50_ms", "p99_ms"}
COSTS = {f"{who}cpu_us_per_op" for who in ("", "client_", "leader_", "followers_")} | {"switches_per_op"}
SCANNED = {"rows_per_s", "parquet_rows_per_s", "vs_parquet", "cpu_us_per_op"}
BARE = {"fdatasync_4k_us", "zmq_rtt_us"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BENCH, *arguments], capture_output=True, text=True, timeout=RUN_S, check=False)


def with_spread(names: set[str]) -> set[str]:
    return {f"{name}{end}" for name in names for end in ("", "_min", "_max")}


def processes_marked(mark: str) -> list[int]:
    """Processes with a mark in their environment; what they start inherits it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in environment:
                found.append(int(entry.name))
    return found


def wait_until_gone(mark: str) -> None:
    deadline = time.monotonic() + 30
    while processes_marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_marked(mark) == []


def is_spread(row: dict[str, Any], names: set[str]) -> bool:
    return with_spread(names) <= set(row) and all(0 < row[f"{n}_min"] <= row[n] <= row[f"{n}_max"] for n in names)


def test_the_document_holds_every_part_and_every_acknowledged_row(tmp_path: Path) -> None:
    work, cache = tmp_path / "work", tmp_path / "cache"
    work.mkdir()
    done = bench("--json", *SHORT, "--dir", str(work), "--cache", str(cache))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["in_flight"] for row in document["writes"]] == [1, 16, 64, 256]
    for row in [*document["writes"], document["writes_8x8"], *document["reads"], *document["ycsb"]]:
        assert is_spread(row, LOADS)
        assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert set(document["bare"]) == with_spread(BARE)
    for name in ("bulk", "bulk_mixed"):
        assert is_spread(document[name], {"rows_per_s", "mb_per_s"})
        assert 0 < document[name]["rows"] <= 150_000
    assert document["bulk"]["scale"] == 0.001
    for name in ("scan_unflushed", "scan_flushed"):
        assert is_spread(document[name], SCANNED)
        assert document[name]["table"] == "lineitem"
        assert 6005 >= document[name]["rows"] > document["bulk"]["rows"], "what warmed up is there, too"
    modes = [(row["mode"], row["in_flight"]) for row in document["reads"]]
    one_by_one = [(mode, n) for mode in ("latest", "snapshot") for n in (1, 16, 64)]
    assert modes == sorted([*one_by_one, ("latest, 1000 keys", 1)])
    assert [row["workload"] for row in document["ycsb"]] == [*"ABCDEF"]
    for row in [*document["writes"], document["writes_8x8"]]:
        assert is_spread(row, COSTS | {"ops_per_entry"})
    for row in [*document["reads"], *document["ycsb"]]:
        assert is_spread(row, {"cpu_us_per_op", "client_cpu_us_per_op", "switches_per_op"})
        assert all(row[f"{name}_min"] >= 0 for name in COSTS), "a node may do nothing in a slot of 25 ms"
    assert {row["rows"] for row in document["reads"]} == {document["reads"][0]["rows"]}
    assert document["reads"][0]["rows"] > document["bulk_mixed"]["rows"]
    assert is_spread(document["writes_8x8"], {"vs_one_process"})
    assert document["machine"]["rounds"] == 5
    assert document["machine"]["settings"]["store_engine"] == "columnar"
    assert document["rows_read"] == document["rows_acked"] > 1000
    assert (document["left_out"], document["problems"], document["ok"]) == ({}, [], True)
    assert "writes: round 5 of 5" in done.stderr
    assert list(work.iterdir()) == [], "a benchmark leaves nothing on the disk"
    assert [path.name for path in cache.iterdir()] == ["lineitem-0.001.parquet"]


@pytest.mark.long
def test_another_store_is_measured_and_named(tmp_path: Path) -> None:
    where = ["--dir", str(tmp_path), "--cache", str(tmp_path / "cache")]
    done = bench("--json", *SHORT, "--parts", "scan", "--store", "memory", *where)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["machine"]["settings"]["store_engine"] == "memory"
    assert is_spread(document["scan_unflushed"], SCANNED)
    assert document["scan_flushed"] is None
    assert document["left_out"]["scan_flushed"] == "the store 'memory' has no files to flush rows to"
    assert (document["problems"], document["ok"]) == ([], True)


@pytest.mark.long
def test_when_lineitem_cannot_be_made_it_is_left_out_and_the_rest_runs(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file is no folder to generate into")
    done = bench("--json", *SHORT, "--parts", "bulk,scan", "--dir", str(tmp_path), "--cache", str(cache))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "lineitem" in document["left_out"]
    assert (document["bulk"], document["writes"]) == (None, [])
    assert document["scan_flushed"]["table"] == document["scan_unflushed"]["table"] == "mixed"
    assert document["scan_flushed"]["rows"] > document["bulk_mixed"]["rows"] > 0
    assert "lineitem is left out: " in done.stderr


def test_a_peer_is_measured_beside_and_reads_by_leases_are_named(tmp_path: Path) -> None:
    driver, work = tmp_path / "driver.py", tmp_path / "work"
    work.mkdir()
    driver.write_text("""
import json, os
for work in ("get", "get_snapshot"):
    for in_flight in os.environ["STELAE_BENCH_IN_FLIGHT"].split():
        print(json.dumps({"work": work, "in_flight": int(in_flight), "ops_per_s": 100.0, "p50_ms": 1.0}))
""")
    peer = f"other={sys.executable} {driver}"
    done = bench("--json", *SHORT, "--parts", "reads", "--leases", "--peer", peer, "--dir", str(work))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["machine"]["settings"]["leases"] is True
    assert [set(row["peers"]) for row in document["reads"]] == [{"other"}] * 3 + [set()] + [{"other"}] * 3
    row = document["reads"][0]
    assert row["peers"]["other"]["vs_ops_per_s"] == pytest.approx(row["ops_per_s"] / 100, rel=0.01)
    assert len(document["peers"]["other"]["results"]) == 6
    assert document["peers"]["other"]["idle_stelae_cpu_share"] > 0
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_however_it_ends_no_process_is_left_behind(tmp_path: Path, how: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*BENCH, "--json", "--parts", "writes", "--seconds", "5", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"STELAE_TEST_MARK": mark},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("writes: round 1"):
            break
    assert len(processes_marked(mark)) >= 1 + 3 + 8
    process.send_signal(how)
    remarks = process.stderr.read()
    output, _ = process.communicate(timeout=60)
    wait_until_gone(mark)
    if how is signal.SIGKILL:
        assert output == ""
    else:
        assert process.returncode == 130, remarks
        assert json.loads(output) == {"code": "INTERRUPTED", "error": "interrupted"}
        assert remarks.endswith("interrupted; every process was stopped\n")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "4"], "--rounds"),
        (["--parts", "writes,rows"], "known parts: writes, bulk, scan, reads, ycsb"),
        (["--parts", "scan", "--plot", "figures.png"], "the plot shows writes"),
        (["--seconds", "0"], "--seconds"),
        (["--dir", "nowhere/at/all"], "folder nowhere/at/all does not exist"),
        (["--plot", "figures.pdf"], "must end in .png or .svg"),
        (["--wal", "stone"], "stone"),
        (["--peer", "etcd"], "--peer etcd: not NAME=COMMAND"),
        (["--leases", "--consensus", "local"], "only the consensus engine 'raft' has read leases"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_measured(arguments: list[str], words: str) -> None:
    done = stelae("bench", "cluster", *arguments)
    assert done.exit_code in (1, 2)
    assert words in done.stderr
    assert "lineitem" not in done.stderr, "nothing is generated in vain"
    assert done.stdout == ""
