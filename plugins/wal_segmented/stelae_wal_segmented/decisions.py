"""What recovery does with what it finds: one table, one lettered row per situation.

The rule behind it: bytes that are known to have been durable are never cut away. They are known to
be so when they stand in a segment that has a footer or a successor, or before a synced offset that
a group records. All else behind the last valid entry is a tail that a crash left, unless all of its group
was written, which the mark at the end of that tells, and no sector of what is invalid is as it was before:
such bytes were whole once, and changed.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from stelae_wal_segmented.scan import Scan, Stop


class Verdict(Enum):
    """What becomes of a file, or of the log it belongs to."""

    REMOVE = auto()
    """The file goes: nothing that counts is in it."""
    CLOSED = auto()
    """The segment is complete and takes no more entries."""
    OPEN = auto()
    """The segment ends cleanly and takes more entries."""
    CUT = auto()
    """The tail behind the last valid entry goes, durably, and the segment takes more entries."""
    DAMAGE = auto()
    """The log is corrupt from there on and refuses appends."""


class Row(NamedTuple):
    """One row of the table."""

    letter: str
    situation: str
    verdict: Verdict


class Found(Enum):
    """The situations, as rows of the table."""

    UNBORN = Row("A", "a file in the making that was never renamed", Verdict.REMOVE)
    COLLECTED = Row("B", "a segment numbered below the base's first one", Verdict.REMOVE)
    DROPPED = Row("C", "a log whose base file says that it is being dropped", Verdict.REMOVE)
    NO_BASE = Row("D", "no base file, or neither slot of it is valid", Verdict.DAMAGE)
    LEAVING = Row("E", "a base file that says the log is being set aside", Verdict.DAMAGE)
    SYNC_FAILED = Row("F", "a base file that says a sync failed", Verdict.DAMAGE)
    BAD_HEADER = Row("G", "a segment whose header is invalid or of another log", Verdict.DAMAGE)
    BROKEN_CHAIN = Row("H", "a segment that does not continue the one before it", Verdict.DAMAGE)
    FOOTER = Row("I", "a valid footer at the end of the file", Verdict.CLOSED)
    SEALED = Row("J", "has a successor; ends, valid, where that says it ends", Verdict.CLOSED)
    BAD_SEALED = Row("K", "has a successor; invalid before where that says it ends", Verdict.DAMAGE)
    BAD_FOOTER = Row("L", "has a successor; more behind its end than a footer", Verdict.DAMAGE)
    UNCUT_FOOTER = Row("M", "last; a whole footer where the data end, more behind it", Verdict.CUT)
    UNFIT = Row("N", "last; a valid group that does not fit what precedes it", Verdict.DAMAGE)
    BEFORE_SYNCED = Row("O", "last; ends or is invalid before an offset that is recorded as synced", Verdict.DAMAGE)
    CHANGED = Row("P", "last; invalid, though all of it was written", Verdict.DAMAGE)
    TORN = Row("Q", "last; invalid, and part of it was never written", Verdict.CUT)
    CLEAN = Row("R", "last; the end of the file, or what follows was never written", Verdict.OPEN)
    UNUSABLE = Row("S", "last; its end cannot be written once more and synced", Verdict.DAMAGE)
    MISSING = Row("T", "the base file names a segment newer than any that is there", Verdict.DAMAGE)
    KEPT = Row("U", "a file of a collected segment, kept to be used again", Verdict.REMOVE)


def judge_last(scan: Scan) -> Found:
    """Judge a scan of the last segment, which has no footer at the end of its file."""
    if scan.stop is Stop.UNFIT:
        return Found.UNFIT
    if scan.stop is Stop.FOOTER:
        return Found.UNCUT_FOOTER
    if scan.stop_at < scan.synced:
        return Found.BEFORE_SYNCED
    if scan.stop is Stop.INVALID:
        return Found.CHANGED
    return Found.TORN if scan.stop is Stop.TORN else Found.CLEAN


def judge_sealed(scan: Scan, ends_there: bool) -> Found:
    """Judge a segment without a valid footer that has a successor.

    Args:
        scan: of its data up to where the successor says that they end.
        ends_there: the file has nothing behind that.
    """
    if scan.stop is not Stop.LIMIT:
        return Found.BAD_SEALED
    return Found.SEALED if ends_there else Found.BAD_FOOTER


def table() -> list[Row]:
    """The rows in order, for the documentation and for the test that every row is tested."""
    return [found.value for found in Found]
