"""What the disk of a node must have of the tablet, as far as the simulator has seen."""

from __future__ import annotations

from enum import StrEnum


class ReplicaOnDisk(StrEnum):
    """How much of a replica is durable. A creation goes from ``NOTHING`` through the others to ``WHOLE``."""

    NOTHING = "nothing"
    BEGUN = "begun"
    """A creation has begun, and its superblock is not being written yet. After a crash there is no replica."""
    ENDING = "ending"
    """The superblock is being written. After a crash there is either no replica or a whole one."""
    WHOLE = "whole"
    """The replica exists. It never ends, unless a fault takes it."""
