"""``stelae bench wal`` as a real process: its document, what it leaves behind, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae_bench import wal_open
from stelae_bench.wal_cases import Bodies
from stelae_bench.wal_large_log import FillProcessEnded, measure_large_log
from stelae_bench.wal_open import BenchMachine, LogThreadFailed, OpenLogs
from stelae_bench.wal_table import LOGS
from tests.e2e.in_process import stelae
from tests.e2e.test_bench_cluster import processes_marked, wait_until_gone, with_spread

BENCH = [sys.executable, "-m", "stelae", "bench", "wal"]
SHORT = ["--quick", "--seconds", "0.005"]
RUN_S = 120
OURS = ["segmented", "lmdb", "shared"]
CEILING = "crc_queued"
REFERENCES = ["raw", "raw_written", "raw_crc", "rocksdb", "sqlite"]
FIGURES = {"entries_per_s", "mb_per_s", "p50_us", "p99_us", "cpu_us_per_entry", "entries_per_group"}
FIGURES |= {"commit_p50_us"}
RATIOS = {"vs_raw", "vs_raw_written", "vs_raw_crc", "vs_rocksdb", "vs_sqlite", "latency_vs_raw"}
RATIOS |= {"commit_100_vs_1", "tablets_100_vs_1"}
WITHOUT_ROCKSDICT = "import sys; sys.modules['rocksdict'] = None; from stelae.cli.main import main; main()"
ENTRIES = wal_open.PAYLOAD_BYTES_MAX // 4096 + 500
"""More than stands between two collections of a log that is only appended to: here none of it may be collected."""


def bench(*arguments: str, command: list[str] = BENCH) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=RUN_S, check=False)


def test_the_document_holds_every_participant_in_every_case_and_nothing_is_left(tmp_path: Path) -> None:
    done = bench("--json", *SHORT, "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    names = [*OURS, CEILING, *REFERENCES]
    found = [(row["entry_bytes"], row["in_flight"], row["tablets"], row["engine"]) for row in document["rows"]]
    assert found == [
        (size, *load, name) for size in (100, 4096) for load in ((1, 1), (64, 1), (1, 100)) for name in names
    ]
    for row in document["rows"]:
        assert set(row) == with_spread(FIGURES) | {"engine", "entry_bytes", "in_flight", "tablets", "sync"}
        assert row["sync"] == "always"
        assert 0 < row["entries_per_s_min"] <= row["entries_per_s"] <= row["entries_per_s_max"]
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert 1 <= row["entries_per_group"] <= max(row["in_flight"], row["tablets"])
    assert [ratio["engine"] for ratio in document["ratios"]] == [*OURS, CEILING]
    for ratio in document["ratios"]:
        assert set(ratio) == with_spread(RATIOS) | {"engine"}
    assert {"rocksdict", "sqlite", "lmdb"} <= set(document["machine"]["versions"])
    assert (document["machine"]["rounds"], document["machine"]["seed"]) == (5, 1)
    assert (document["logs"], document["left_out"], document["problems"], document["ok"]) == ([], {}, [], True)
    assert "round 5 of 5" in done.stderr
    assert list(tmp_path.iterdir()) == [], "a benchmark leaves nothing on the disk"


@pytest.mark.long
def test_without_rocksdict_its_rows_are_left_out_and_a_remark_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_ROCKSDICT, "bench", "wal"]
    done = bench("--json", *SHORT, "--engines", "shared", "--dir", str(tmp_path), command=command)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {row["engine"] for row in document["rows"]} == {"shared", CEILING, *REFERENCES} - {"rocksdb"}
    assert "vs_rocksdb" not in document["ratios"][0]
    assert "'rocksdict'" in document["left_out"]["rocksdb"]
    assert "rocksdb is left out" in done.stderr
    assert "stelae[bench]" in done.stderr


@pytest.mark.parametrize("name", OURS)
def test_a_large_log_is_filled_killed_read_and_collected_and_its_files_are_gone(tmp_path: Path, name: str) -> None:
    async def live() -> dict[str, float]:
        with BenchMachine() as machine:
            engine = Registry.installed().engine(EngineKind.WAL, name)
            return dict(await measure_large_log(machine, engine, tmp_path / "log", ENTRIES * 4096, 1))

    figures = asyncio.run(live())
    assert set(figures) == set(LOGS)
    freed = figures.pop("collect_freed_percent")
    assert freed <= 100
    assert min(figures.values()) > 0
    assert figures["disk_bytes_per_payload_byte"] >= 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fast", [False, True])
def test_a_log_that_fails_ends_the_run_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    """It waited for ever for an acknowledgement that nobody was left to give."""
    engine = Registry.installed().engine(EngineKind.WAL, "shared")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    async def measure() -> None:
        with BenchMachine(fast=fast) as machine:
            logs = OpenLogs(machine, engine, tmp_path / "log", 1)
            try:
                await logs.measure(Bodies(100, 1), 1, 60.0)
            finally:
                await logs.close()

    monkeypatch.setattr(engine, "commit", broken)
    monkeypatch.setattr(engine.fast(), "begin", broken)
    monkeypatch.setattr(wal_open, "CLOSE_TIMEOUT_S", 0.01)
    with pytest.raises(LogThreadFailed, match="planted"):
        asyncio.run(measure())


def test_a_log_that_cannot_be_filled_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no folder")

    async def live() -> None:
        with BenchMachine() as machine:
            await measure_large_log(
                machine, Registry.installed().engine(EngineKind.WAL, "shared"), tmp_path / "log", 4096, 1
            )

    with pytest.raises(FillProcessEnded):
        asyncio.run(live())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_no_process_is_left_behind(tmp_path: Path, how: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*BENCH, "--json", "--quick", "--seconds", "2", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"STELAE_TEST_MARK": mark},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("round 1"):
            break
    assert processes_marked(mark) == [process.pid]
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
        (["--seconds", "0"], "--seconds"),
        (["--restart-bytes", "1"], "--restart-bytes"),
        (["--dir", "nowhere/at/all"], "folder nowhere/at/all does not exist"),
        (["--plot", "figures.pdf"], "must end in .png or .svg"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_measured(arguments: list[str], words: str) -> None:
    done = stelae("bench", "wal", *arguments)
    assert done.exit_code in (1, 2)
    assert words in done.stderr
    assert done.stdout == ""
