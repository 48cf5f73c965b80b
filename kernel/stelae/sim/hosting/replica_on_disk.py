"""What the disk of a node must have of the tablet, as far as the simulator has seen."""

from __future__ import annotations

from enum import StrEnum


class ReplicaOnDisk(StrEnum):
    """How much of a replica is durable. A creation goes from ``NOTHING`` through the next two to ``WHOLE``.

    The copy over a tombstone goes from ``TOMBSTONE`` through ``ENDING`` to ``WHOLE``."""

    NOTHING = "nothing"
    BEGUN = "begun"
    """A creation has begun, and its superblock is not being written yet. After a crash there is no replica."""
    ENDING = "ending"
    """The superblock is being written. After a crash there is either a whole replica, or what was before."""
    WHOLE = "whole"
    """The replica exists."""
    LEAVING = "leaving"
    """The superblock of a tombstone is being written. After a crash there is either the replica or its tombstone."""
    TOMBSTONE = "tombstone"
    """The replica was deleted, and still votes. Perhaps a copy is under way."""
