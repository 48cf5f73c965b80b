"""What becomes of a tablet when its node starts: one decision table, pure.

Source: "Tablet startup" of the tablet-copy design, rows 1-4, with the cases it leaves open spelled
out. "The WAL exists" means that the log engine names a log of this tablet in the generation of its
superblock (of any generation, where there is no superblock).

The table is total: every combination of what can be found meets exactly one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stelae.host.superblock import DataState


class Block(StrEnum):
    """What was found of the superblock."""

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
    """One row: it applies where each of the three findings is in its set."""

    letter: str
    blocks: frozenset[Block]
    metas: frozenset[Meta]
    logs: frozenset[Log]
    action: Action
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, which row says so, and why in words for the operator."""

    action: Action
    letter: str
    why: str


def _row(
    letter: str,
    blocks: set[Block] | None,
    metas: set[Meta] | None,
    logs: set[Log] | None,
    action: Action,
    why: str,
) -> Row:
    """Make a row; ``None`` stands for everything."""
    return Row(
        letter,
        frozenset(Block if blocks is None else blocks),
        frozenset(Meta if metas is None else metas),
        frozenset(Log if logs is None else logs),
        action,
        why,
    )


_NO_ENTRIES = {Log.ABSENT, Log.EMPTY}
_WITH_ENTRIES = {Log.PRESENT, Log.DAMAGED}
_UNDERSTOOD = {Meta.ABSENT, Meta.PRESENT}

ROWS: tuple[Row, ...] = (
    _row("A", {Block.ABSENT}, _UNDERSTOOD, _NO_ENTRIES, Action.NOTHING,
         "no superblock: the tablet does not exist, or its creation was cut short"),
    _row("B", {Block.ABSENT}, _UNDERSTOOD, _WITH_ENTRIES, Action.FAIL,
         "a log with entries but no superblock: the superblock was lost"),
    _row("C", {Block.UNREADABLE}, None, None, Action.FAIL,
         "the superblock cannot be read"),
    _row("D", set(Block) - {Block.UNREADABLE}, {Meta.UNREADABLE}, None, Action.FAIL,
         "the consensus metadata cannot be read: what was promised is unknown"),
    _row("E", {Block.DELETED}, {Meta.ABSENT}, None, Action.FAIL,
         "a tombstone whose consensus metadata is gone: what was promised is unknown"),
    _row("F", {Block.DELETED}, {Meta.PRESENT}, {Log.ABSENT}, Action.TOMBSTONE,
         "deleted"),
    _row("G", {Block.DELETED}, {Meta.PRESENT}, set(Log) - {Log.ABSENT}, Action.ROLL_FORWARD,
         "deleted, but its log is still there: the deletion was cut short"),
    _row("H", {Block.COPYING}, _UNDERSTOOD, None, Action.DELETE_SELF,
         "a copy was cut short"),
    _row("I", {Block.READY}, {Meta.ABSENT}, None, Action.FAIL,
         "the consensus metadata is gone: what was promised is unknown"),
    _row("J", {Block.READY}, {Meta.PRESENT}, {Log.ABSENT}, Action.FAIL,
         "the log is gone"),
    _row("K", {Block.READY}, {Meta.PRESENT}, {Log.DAMAGED}, Action.FAIL,
         "the log is damaged"),
    _row("L", {Block.READY}, {Meta.PRESENT}, {Log.EMPTY, Log.PRESENT}, Action.START,
         "ready"),
)  # fmt: skip
"""The whole table; every combination of findings meets exactly one row."""


def decide(block: Block, meta: Meta, log: Log) -> Decision:
    """Return what to do with a tablet, given what was found of it."""
    for row in ROWS:
        if block in row.blocks and meta in row.metas and log in row.logs:
            return Decision(row.action, row.letter, row.why)
    raise AssertionError(f"the startup table has no row for {block}, {meta}, {log}")


def block_of(state: DataState) -> Block:
    """Return the finding for a superblock that was read."""
    return Block(state.value)
