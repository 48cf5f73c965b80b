"""The processes that run the seeds of a simulation."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from stelae.cli.seeds import over_processes

LONG_S = 60.0
"""Longer than any part of this test takes; its end is reached only by a defect."""


def hold(folder: Path, seed: int) -> None:
    """Lock a file for as long as this process runs."""
    lock = (folder / f"{seed}.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{seed}.held").touch()
    time.sleep(LONG_S)


def run(folder: str) -> None:
    """Run two seeds, each in a process."""
    print([*over_processes(partial(hold, Path(folder)), range(2), 2)])


def until_locked(path: Path) -> None:
    """Wait until a lock is free."""
    ends_s = time.monotonic() + LONG_S / 2
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                assert time.monotonic() < ends_s, "the process of a seed has outlived its parent"
                time.sleep(0.02)


def test_the_processes_of_seeds_end_with_their_parent_even_if_it_is_killed(tmp_path: Path) -> None:
    """They ran on, at full load, for as long as they had seeds."""
    code = f"from tests.unit.cli.test_seeds import run; run({str(tmp_path)!r})"
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, stderr=subprocess.DEVNULL) as parent:
        ends_s = time.monotonic() + LONG_S / 2
        while not all((tmp_path / f"{seed}.held").exists() for seed in range(2)):
            assert time.monotonic() < ends_s and parent.poll() is None
            time.sleep(0.02)
        parent.kill()
    for seed in range(2):
        until_locked(tmp_path / f"{seed}.lock")
