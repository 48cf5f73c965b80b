"""``stelae chaos`` on a new cluster, with a drawn seed that is printed: five minutes of every fault, and twenty minutes
in which a server is killed, for a moment or for long, or loses its disk every half minute."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.e2e.chaos_run import chaos

MINUTES = os.environ.get("STELAE_CHAOS_MINUTES", "5")
WIPE_MINUTES = os.environ.get("STELAE_WIPE_MINUTES", "20")
SEED = int(os.environ.get("STELAE_CHAOS_SEED", "0")) or random.SystemRandom().getrandbits(32)


def test_five_minutes_of_every_fault_leave_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nSTELAE_CHAOS_SEED={SEED} STELAE_CHAOS_MINUTES={MINUTES}")
    done = chaos("--up", "--minutes", MINUTES, "--seed", str(SEED), folder=tmp_path)
    with capsys.disabled():
        print(f"{done.report['workloads']} {done.report['faults']}")
    assert done.report["findings"] == [], done.stderr
    assert done.exit_code == 0, done.stderr
    assert done.report["settled"]


def test_five_servers_killed_or_wiped_every_half_minute_end_whole_and_without_orphan_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\nSTELAE_CHAOS_SEED={SEED} STELAE_WIPE_MINUTES={WIPE_MINUTES}")
    pace = ("--servers", "5", "--every", "30", "--faults", "kill-one,kill-long,lose-disk")
    done = chaos("--up", *pace, "--minutes", WIPE_MINUTES, "--seed", str(SEED), folder=tmp_path)
    report = done.report
    with capsys.disabled():
        print(f"{report['workloads']} {report['faults']}")
    assert report["findings"] == [], done.stderr
    assert done.exit_code == 0, done.stderr
    assert report["settled"] and report["directories_checked"] == 5
    lost = sum("has lost its disk" in line for line in report["story"])
    assert report["disks_replaced"] == lost, "masters replace replicas before a person retires the old uuid"
    assert lost >= report["faults"]["lose-disk"] / 2, "a tablet could lose its majority too often to lose a disk"
    replacing = sum("until the masters began to replace" in line for line in report["story"])
    assert replacing >= report["faults"]["kill-long"] / 2, "most long kills are to have the masters replace replicas"
