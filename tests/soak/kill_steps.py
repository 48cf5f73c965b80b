"""The steps at which the procedures of ``member_procedures`` are killed, and the rows of their matrix."""

from __future__ import annotations

from dataclasses import dataclass

COPY_STEPS = tuple(
    f"copy.after_{step}"
    for step in (
        "marked",
        "stage_cleaned",
        "chunk",
        "item",
        "verified",
        "log_created",
        "log_piece",
        "log",
        "rows",
        "merge",
        "ready",
        "stage_removed",
    )
)
DELETE_STEPS = tuple(
    f"delete.after_{step}"
    for step in (
        "quarantine_directory",
        "superblock_copy",
        "tombstone",
        "consensus_copy",
        "data_moved",
        "data_durable",
        "log",
    )
)
FIRST_COPY_STEPS = ("abandon.after_data", "abandon.after_log", "abandon.after_metadata_file")
LATER_COPY_STEPS = ("abandon.after_data", "abandon.after_log", "abandon.after_tombstone")
DELETE_REQUESTS = ("master.before.DeleteReplica", "master.after.DeleteReplica")
REMOVE_REQUESTS = ("master.before.REMOVE", "master.after.REMOVE")
CHANGE_REQUESTS = ("master.before.ADD", "master.after.ADD", *REMOVE_REQUESTS)
TRANSFER_REQUESTS = ("master.before.TransferLeadership", "master.after.TransferLeadership")
PROMOTION_STEPS = ("leader.after_promotion", "leader.after_promotion_committed")
HANDOVER_STEPS = ("leader.before_handover", "leader.after_handover")

VICTIMS = ("master", "source", "target")
SELF, SOURCE = "self", "source"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the matrix."""

    step: str
    victim: str

    def __str__(self) -> str:
        return f"{self.victim} at {self.step}"


def rows(*steps: str) -> list[Row]:
    """Return the rows of steps, each with every victim."""
    return [Row(step, victim) for step in steps for victim in VICTIMS]
