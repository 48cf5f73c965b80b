"""Checks the environment in a child process, whose death is a result too."""

from __future__ import annotations

from stelae_shared.lmdb_files import child
from stelae_wal_lmdb.check import EnvironmentReport

COMMAND = ("-m", "stelae_wal_lmdb.check")


def check_in_child(directory: str, seconds_max: int) -> EnvironmentReport:
    """Let a child check the environment in ``directory``. Never raises for what it finds there."""
    return child.check_in_child(COMMAND, directory, seconds_max, EnvironmentReport)
