"""What becomes of a tablet when its node starts: one decision table, pure.

Source: "Tablet startup" of the tablet-copy design, rows 1-4, with the cases it leaves open spelled
out. "The WAL exists" means that the log engine names a log of this tablet in the generation of its
superblock (of any generation, where there is no superblock).

The table is total: every combination of what can be found meets exactly one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Block(StrEnum):
    """What was found of the superblock; the readable ones carry the name of its data state."""

    ABSENT = "ABSENT"
    UNREADABLE = "UNREADABLE"
    DELETED = "DELETED"
    COPYING = "COPYING"
    READY = "READY"


class Meta(StrEnum):
    """What was found of the consensus metadata."""

    ABSENT = "ABSENT"
    UNREADABLE = "UNREADABLE"
    PRESENT = "PRESENT"


class Log(StrEnum):
    """What was found of the log. ``EMPTY``: it exists and never held an entry."""

    ABSENT = "ABSENT"
    EMPTY = "EMPTY"
    PRESENT = "PRESENT"
    DAMAGED = "DAMAGED"


class Action(StrEnum):
    """What to do with the tablet."""

    NOTHING = "NOTHING"
    """It does not exist here; creating it or copying it starts afresh."""
    START = "START"
    TOMBSTONE = "TOMBSTONE"
    """It votes and does nothing else."""
    ROLL_FORWARD = "ROLL_FORWARD"
    """Finish the deletion (steps 5 and 6), then as a tombstone."""
    DELETE_SELF = "DELETE_SELF"
    """Go back to DELETED with the op id that the superblock kept, then as a tombstone."""
    FAIL = "FAIL"
    """Stay offline; master or admin is responsible for responding."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: it applies where each of the three findings is in its set. ``why`` is for people."""

    letter: str
    blocks: frozenset[Block]
    metas: frozenset[Meta]
    logs: frozenset[Log]
    action: Action
    why: str


def _row(letter: str, block: str, meta: str, log: str, action: Action, why: str) -> Row:
    """Make a row of what people write: names, ``*`` for any, ``!NAME`` for all but one."""

    def names(text: str, kind: type[StrEnum]) -> set[str]:
        if text.startswith("!"):
            return {item for item in kind if item != text[1:]}
        return set(kind) if text == "*" else set(text.split())

    return Row(
        letter,
        frozenset(map(Block, names(block, Block))),
        frozenset(map(Meta, names(meta, Meta))),
        frozenset(map(Log, names(log, Log))),
        action,
        why,
    )


ROWS: tuple[Row, ...] = (
    _row("A", "ABSENT", "!UNREADABLE", "ABSENT EMPTY", Action.NOTHING,
         "no superblock: the tablet does not exist, or its creation was cut short"),
    _row("B", "ABSENT", "!UNREADABLE", "PRESENT DAMAGED", Action.FAIL,
         "a log with entries but no superblock: the superblock was lost"),
    _row("C", "UNREADABLE", "*", "*", Action.FAIL,
         "the superblock cannot be read"),
    _row("D", "!UNREADABLE", "UNREADABLE", "*", Action.FAIL,
         "the consensus metadata cannot be read: what was promised is unknown"),
    _row("E", "DELETED READY", "ABSENT", "*", Action.FAIL,
         "the consensus metadata is gone: what was promised is unknown"),
    _row("F", "DELETED", "PRESENT", "ABSENT", Action.TOMBSTONE,
         "deleted"),
    _row("G", "DELETED", "PRESENT", "!ABSENT", Action.ROLL_FORWARD,
         "deleted, but its log is still there: the deletion was cut short"),
    _row("H", "COPYING", "!UNREADABLE", "*", Action.DELETE_SELF,
         "a copy was cut short"),
    _row("I", "READY", "PRESENT", "ABSENT", Action.FAIL,
         "the log is gone"),
    _row("J", "READY", "PRESENT", "DAMAGED", Action.FAIL,
         "the log is damaged"),
    _row("K", "READY", "PRESENT", "EMPTY PRESENT", Action.START,
         "ready"),
)  # fmt: skip
"""The whole table; every combination of findings meets exactly one row."""


def decide(block: Block, meta: Meta, log: Log) -> Row:
    """Return the row that says what to do with a tablet, given what was found of it."""
    for row in ROWS:
        if block in row.blocks and meta in row.metas and log in row.logs:
            return row
    raise AssertionError(f"the startup table has no row for {block}, {meta}, {log}")
