"""``stelae chaos`` on a new cluster, with a drawn seed that is printed: five minutes of every fault, and twenty minutes
in which a server is killed or loses its disk every half minute."""

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
    pace = ("--servers", "5", "--every", "30", "--faults", "kill-one,lose-disk")
    done = chaos("--up", *pace, "--minutes", WIPE_MINUTES, "--seed", str(SEED), folder=tmp_path)
    with capsys.disabled():
        print(f"{done.report['workloads']} {done.report['faults']}")
    assert done.report["findings"] == [], done.stderr
    assert done.exit_code == 0, done.stderr
    assert done.report["settled"] and done.report["directories_checked"] == 5
    lost = sum("has lost its disk" in line for line in done.report["story"])
    assert lost >= float(WIPE_MINUTES) / 4, (
        "every second fault is to lose a disk, where no tablet could lose its majority"
    )
