"""The check of the environment in a child process. If the child dies, the environment is damaged."""

from __future__ import annotations

from stelae_shared.lmdb_files import child
from stelae_store_lmdb.check import ChildReport

COMMAND = ("-m", "stelae_store_lmdb.check")


def check_in_child(directory: str, seconds_max: int) -> ChildReport:
    """Check the environment in ``directory`` in a child process. Damage is reported, never raised."""
    return child.check_in_child(COMMAND, directory, seconds_max, ChildReport)
