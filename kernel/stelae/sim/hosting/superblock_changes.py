"""What it means for a simulated node that one superblock follows another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from stelae.host.superblock import DataState, Superblock
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk

StateChange: TypeAlias = tuple[DataState | None, DataState]
"""The data states before and after; ``None``: there was no superblock."""


def state_change(before: Superblock | None, after: Superblock) -> StateChange:
    """Return the data states of two superblocks that follow each other."""
    return None if before is None else before.data_state, after.data_state


def rows_reach_log(before: Superblock | None, after: Superblock) -> bool:
    """Return true if a replica that had only a log gets rows, and goes on with its log."""
    stays = state_change(before, after) == (DataState.READY, DataState.READY)
    return stays and before is not None and before.log_only and not after.log_only


def rows_are_copied(before: Superblock | None, after: Superblock) -> bool:
    """Return true if the second superblock is the commit point of a copy of rows, with or without their log."""
    is_copy = state_change(before, after) == (DataState.COPYING, DataState.READY) and not after.log_only
    return is_copy or rows_reach_log(before, after)


ON_DISK_WHILE: Mapping[StateChange, ReplicaOnDisk] = {
    (DataState.READY, DataState.DELETED): ReplicaOnDisk.LEAVING,
    (DataState.COPYING, DataState.READY): ReplicaOnDisk.ENDING,
}
"""What a crash may leave while a superblock is written. The creation of an empty replica reports its own steps."""

ON_DISK_AFTER: Mapping[StateChange, ReplicaOnDisk] = {
    (DataState.READY, DataState.DELETED): ReplicaOnDisk.TOMBSTONE,
    (DataState.DELETED, DataState.COPYING): ReplicaOnDisk.TOMBSTONE,
    (DataState.COPYING, DataState.DELETED): ReplicaOnDisk.TOMBSTONE,
    (None, DataState.COPYING): ReplicaOnDisk.BEGUN,
    (DataState.COPYING, DataState.READY): ReplicaOnDisk.WHOLE,
}
"""What the disk has once a superblock is durable."""
