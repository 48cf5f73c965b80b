"""The decision table of recovery: one lettered row for each situation.

The rule behind the table: bytes that are known to have been durable are never cut. Bytes are known to have been durable
if their segment has a footer or a successor, or if they are before a synced offset that a group records. All other
bytes behind the last valid entry are a tail that a crash left, with one exception. If their group has its end mark, and
no invalid sector holds what it held before, the group was written completely and has changed since. That is damage.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from stelae_wal_segmented.scan import SegmentScan, SegmentScanStop


class SegmentVerdict(Enum):
    """What recovery does with a file, or with the log that the file belongs to."""

    REMOVE = auto()
    """Remove the file: it has nothing that counts."""
    CLOSED = auto()
    """Keep the segment, which is complete and takes no more entries."""
    OPEN = auto()
    """Keep the segment, which ends cleanly and takes more entries."""
    CUT = auto()
    """Cut the tail behind the last valid entry, durably. The segment takes more entries."""
    DAMAGE = auto()
    """Report damage: the log is corrupt from there on and refuses appends."""


class SegmentRow(NamedTuple):
    """One row of the table."""

    letter: str
    situation: str
    verdict: SegmentVerdict


class SegmentFinding(Enum):
    """The situations that recovery can find. Each value is a row of the table."""

    NEVER_RENAMED = SegmentRow("A", "a file in the making that was never renamed", SegmentVerdict.REMOVE)
    COLLECTED = SegmentRow("B", "a segment numbered below the base's first one", SegmentVerdict.REMOVE)
    DROPPED = SegmentRow("C", "a log whose base file says that it is being dropped", SegmentVerdict.REMOVE)
    NO_BASE = SegmentRow("D", "no base file, or neither slot of it is valid", SegmentVerdict.DAMAGE)
    LEAVING = SegmentRow("E", "a base file that says the log is being set aside", SegmentVerdict.DAMAGE)
    SYNC_FAILED = SegmentRow("F", "a base file that says a sync failed", SegmentVerdict.DAMAGE)
    BAD_HEADER = SegmentRow("G", "a segment whose header is invalid or of another log", SegmentVerdict.DAMAGE)
    BROKEN_CHAIN = SegmentRow("H", "a segment that does not continue the one before it", SegmentVerdict.DAMAGE)
    FOOTER = SegmentRow("I", "a valid footer at the end of the file", SegmentVerdict.CLOSED)
    SEALED = SegmentRow("J", "has a successor; ends, valid, where that says it ends", SegmentVerdict.CLOSED)
    BAD_SEALED = SegmentRow("K", "has a successor; invalid before where that says it ends", SegmentVerdict.DAMAGE)
    BAD_FOOTER = SegmentRow("L", "has a successor; more behind its end than a footer", SegmentVerdict.DAMAGE)
    UNCUT_FOOTER = SegmentRow("M", "last; a whole footer where the data end, more behind it", SegmentVerdict.CUT)
    UNFIT = SegmentRow("N", "last; a valid group that does not fit what precedes it", SegmentVerdict.DAMAGE)
    BEFORE_SYNCED = SegmentRow(
        "O", "last; ends or is invalid before an offset that is recorded as synced", SegmentVerdict.DAMAGE
    )
    CHANGED = SegmentRow("P", "last; invalid, though all of it was written", SegmentVerdict.DAMAGE)
    TORN = SegmentRow("Q", "last; invalid, and part of it was never written", SegmentVerdict.CUT)
    CLEAN = SegmentRow("R", "last; the end of the file, or what follows was never written", SegmentVerdict.OPEN)
    UNUSABLE = SegmentRow("S", "last; its end cannot be written once more and synced", SegmentVerdict.DAMAGE)
    MISSING = SegmentRow("T", "the base file names a segment newer than any that is there", SegmentVerdict.DAMAGE)
    KEPT = SegmentRow("U", "a file of a collected segment, kept to be used again", SegmentVerdict.REMOVE)


def judge_last(scan: SegmentScan) -> SegmentFinding:
    """Return the row for the scan of a last segment without a footer at the end of its file."""
    if scan.stop is SegmentScanStop.UNFIT:
        return SegmentFinding.UNFIT
    if scan.stop is SegmentScanStop.FOOTER:
        return SegmentFinding.UNCUT_FOOTER
    if scan.stop_at < scan.synced:
        return SegmentFinding.BEFORE_SYNCED
    if scan.stop is SegmentScanStop.INVALID:
        return SegmentFinding.CHANGED
    return SegmentFinding.TORN if scan.stop is SegmentScanStop.TORN else SegmentFinding.CLEAN


def judge_sealed(scan: SegmentScan, ends_there: bool) -> SegmentFinding:
    """Return the row for a segment that has a successor and no valid footer.

    Args:
        scan: scan of its data, up to the end that the successor records.
        ends_there: the file ends there too.
    """
    if scan.stop is not SegmentScanStop.LIMIT:
        return SegmentFinding.BAD_SEALED
    return SegmentFinding.SEALED if ends_there else SegmentFinding.BAD_FOOTER


def table() -> list[SegmentRow]:
    """Return the rows in order, for the documentation and for the test that every row is tested."""
    return [found.value for found in SegmentFinding]
