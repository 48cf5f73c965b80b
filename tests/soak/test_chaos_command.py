"""``stelae chaos`` for five minutes on a new cluster, with a drawn seed that is printed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.e2e.chaos_run import chaos

MINUTES = os.environ.get("STELAE_CHAOS_MINUTES", "5")
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
