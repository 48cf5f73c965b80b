"""Changes of a simulated node: of its process, its disk and its clock."""

from __future__ import annotations

from enum import StrEnum


class NodeChange(StrEnum):
    """One change of a node. Most of them are effects of a fault, or the end of one."""

    START_FAILED = "start_failed"
    """A start failed, because the disk is full or the wall clock is behind. The node tries again."""
    CRASHED = "crashed"
    """Power was lost: un-synced writes are lost, torn or reordered."""
    KILLED = "killed"
    """The process has ended. The disk keeps everything that was written."""
    GIVEN_UP = "given_up"
    """The replica is lost permanently."""
    PAUSED = "paused"
    RESUMED = "resumed"
    DISK_SLOW = "disk_slow"
    DISK_NORMAL = "disk_normal"
    DISK_FULL = "disk_full"
    DISK_FREED = "disk_freed"
    SYNC_WILL_FAIL = "sync_will_fail"
    """The next sync of the replicated log will fail."""
    LOG_DAMAGED = "log_damaged"
    """A bit of a log segment was flipped while the node was down."""
    ROWS_DAMAGED = "rows_damaged"
    """Bytes of the stored rows were changed, and a read has found it."""
    STAGE_DAMAGED = "stage_damaged"
    """Bytes of an item that a copy has fetched were changed while the node was down."""
    LOG_REPLACED = "log_replaced"
    """The log was replaced by an older copy while the node was down."""
    FILES_LOST = "files_lost"
    """All files of the replica were removed while the node was down. The replica is lost permanently."""
    REPLICA_CREATED = "replica_created"
    """The node has created an empty replica, because a leader asked for it."""
    REPLICA_COPIED = "replica_copied"
    """A copy of another replica is complete, and starts."""
    REPLICA_DELETED = "replica_deleted"
    """The replica became a tombstone: it was deleted, or a copy replaces it."""
    CLOCK_JUMPED = "clock_jumped"
    CLOCK_CORRECTED = "clock_corrected"
