"""Replacement, move, retirement and rebalance survive SIGKILL of master, source and target at every named step."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.soak.member_procedures import PROCEDURES, carry_out

ONLY = os.environ.get("STELAE_STEPS", "")
"""Part of the texts of the rows to carry out, such as ``target at copy``; empty: all."""

ROWS_MAX = int(os.environ.get("STELAE_STEPS_MAX", "0"))
"""How many rows are drawn for each procedure; 0: all."""

SEED = int(os.environ.get("STELAE_STEPS_SEED", "0")) or random.SystemRandom().getrandbits(32)


@pytest.mark.parametrize("name", PROCEDURES)
def test_a_kill_at_every_step_leaves_the_procedure_done_and_every_tablet_whole(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    chosen = [row for row in PROCEDURES[name][1] if ONLY in str(row)]
    if 0 < ROWS_MAX < len(chosen):
        told(f"STELAE_STEPS_MAX={ROWS_MAX} STELAE_STEPS_SEED={SEED}")
        chosen = random.Random(f"{SEED}/{name}").sample(chosen, ROWS_MAX)
    tablets = 2 if name == "rebalance" else 1
    asyncio.run(carry_out(tmp_path, [(name, row) for row in chosen], told, tablets=tablets))
