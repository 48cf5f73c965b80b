"""``stelae chaos`` as a process of its own, for the tests that run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

RUN_S_MAX = 3600
"""Longest that a run may take; reached only by a defect."""


class ChaosDone(NamedTuple):
    """What a run left behind: exit code, the document of ``--json``, and what it printed on standard error."""

    exit_code: int
    report: dict[str, Any]
    stderr: str


def chaos_command(*words: str, folder: Path) -> list[str]:
    """The command with a picture in a folder of the test."""
    command = [sys.executable, "-m", "stelae", "chaos", *words]
    return [*command, "--json", "--plot", str(folder / "timeline.svg")]


def chaos(*words: str, folder: Path) -> ChaosDone:
    """Run the command to its end. Temporary folders of the run are in the folder of the test, too."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = chaos_command(*words, folder=folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, env=environment)
    assert done.stdout, done.stderr
    return ChaosDone(done.returncode, json.loads(done.stdout), done.stderr)
