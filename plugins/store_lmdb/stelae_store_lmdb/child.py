"""Has a child process check the environment; its death is an answer, too."""

from __future__ import annotations

from stelae_shared.lmdb_files import child
from stelae_store_lmdb.check import ChildReport

COMMAND = ("-m", "stelae_store_lmdb.check")


def check_in_child(directory: str, seconds_max: int) -> ChildReport:
    """Let a child check the environment in ``directory``; never raises for what it meets there."""
    return child.check_in_child(COMMAND, directory, seconds_max, ChildReport)
