"""A seed determines its run: the same seed gives the same run, also with another hash seed of Python."""

from __future__ import annotations

import os
import subprocess
import sys

from stelae.sim.run import run_seed
from stelae.sim.store_profile import STORES, draw_store_profile

SEEDS = (17, 8, 25)
"""One seed with only stores with files, one with both kinds of stores, and one without files. All are short runs."""

PROGRAM = """
import sys
import msgspec
from stelae.sim.run import run_seed
for seed in map(int, sys.argv[1:]):
    print(msgspec.json.encode(run_seed(seed)).decode())
"""


def digests(hash_seed: str) -> str:
    """Run the seeds in a new process."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stdout


def test_the_same_seed_runs_the_same_events_twice() -> None:
    first, second = run_seed(8), run_seed(8)
    assert first == second
    assert first.digest != run_seed(25).digest


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    drawn = [frozenset(draw_store_profile(seed, 3).engines) for seed in SEEDS]
    assert {*drawn} == {frozenset({store}) for store in STORES} | {frozenset(STORES)}
    first = digests("0")
    assert len(first.splitlines()) == len(SEEDS)
    assert first == digests("4711")
