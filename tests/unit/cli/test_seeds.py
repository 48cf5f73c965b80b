"""The processes that run the seeds of a simulation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from stelae.cli.seeds import over_processes

HOLD_S = 30.0
"""How long a seed runs whose process does not end with its parent."""

BEGUN, OUTLIVED = "begun", "outlived its parent"


def say(line: str) -> None:
    """Print a line with one write, which no line of another process divides. ``print`` may need two."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def hold(seed: int) -> None:
    """Say that a seed has begun, and again if this process was not ended meanwhile. Then it ends by itself."""
    say(BEGUN)
    time.sleep(HOLD_S)
    say(OUTLIVED)
    os._exit(1)


def run() -> None:
    """Run two seeds, each in a process."""
    print([*over_processes(hold, range(2), 2)])


def test_the_processes_of_seeds_end_with_their_parent_even_if_it_is_killed() -> None:
    """They ran on, at full load, for as long as they had seeds. All of them write to one pipe, which ends with them."""
    code = "from tests.unit.cli.test_seeds import run; run()"
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline().strip() for _ in range(2)] == [BEGUN, BEGUN]
        parent.kill()
        assert parent.stdout.read() == ""
