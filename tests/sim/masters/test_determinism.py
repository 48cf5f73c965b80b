"""A seed determines its run of the masters: the same seed gives the same run, also with another hash seed of Python."""

from __future__ import annotations

import os
import subprocess
import sys

from stelae.sim.masters.run import run_seed

PROGRAM = """
from stelae.sim.masters.run import run_seed
for seed in (3, 11):
    result = run_seed(seed)
    print(seed, result.events, result.digest)
"""


def digests(hash_seed: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stdout


def test_the_same_seed_runs_the_same_events_twice() -> None:
    first, second = run_seed(5), run_seed(5)
    assert first == second
    assert first.digest != run_seed(6).digest


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    first = digests("0")
    assert len(first.splitlines()) == 2
    assert first == digests("4711")


def test_a_run_without_faults_and_with_few_changes_completes() -> None:
    result = run_seed(7, faults=frozenset(), changes_max=2)
    assert result.violation is None
    assert result.plan == ()
