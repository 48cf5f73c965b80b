"""Has a child process check the environment, and takes its death for an answer.

The child is a fresh interpreter, not a fork: an environment must not cross a fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import msgspec

from stelae_store_lmdb.check import Report

COMMAND = ("-m", "stelae_store_lmdb.check")
_ERROR_BYTES_MAX = 400


def check_in_child(directory: str, seconds_max: int) -> Report:
    """Let a child check the environment in ``directory``; never raises for what it meets there."""
    command = [sys.executable, *COMMAND, directory]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=seconds_max, check=False)
    except subprocess.TimeoutExpired:
        return Report(broken=f"the check was not done after {seconds_max} s; see check_seconds_max")
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=Report)
    if done.returncode < 0:
        try:
            name = signal.Signals(-done.returncode).name
        except ValueError:
            name = f"signal {-done.returncode}"
        return Report(broken=f"{name} killed the process that read it: the file was cut, or a page is damaged")
    said = done.stderr.decode(errors="replace").strip()[-_ERROR_BYTES_MAX:]
    return Report(broken=f"the check ended with code {done.returncode}: {said}")
