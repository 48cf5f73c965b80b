"""The decision table of recovery: one lettered row for each situation.

The rule behind the table: bytes that were durable are never cut, and damage is reported for the logs that it affects
and for no other log. Bytes are known to have been durable if they are in a segment that is not the newest, before a
footer, or before a synced offset. All other bytes behind the last valid record are a tail that a crash left, unless
every part of them was written."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class SharedVerdict(Enum):
    """What recovery does with a file, or with the logs that the file belongs to."""

    REMOVE = auto()
    """Remove the file: it has nothing that counts."""
    USE = auto()
    """Use the file: it is complete, or its second copy is."""
    CUT = auto()
    """Cut what is behind the last valid record, durably."""
    DAMAGE = auto()
    """Report damage: the affected logs are corrupt from there on and refuse appends. The other logs work."""
    REFUSE = auto()
    """Do not open the directory."""


class SharedRow(NamedTuple):
    """One row of the table."""

    letter: str
    situation: str
    verdict: SharedVerdict


class SharedFinding(Enum):
    """The situations that recovery can find. Each value is a row of the table."""

    NEVER_RENAMED = SharedRow("A", "a file in the making that was never renamed", SharedVerdict.REMOVE)
    COLLECTED = SharedRow("B", "a segment in which no log has an entry", SharedVerdict.REMOVE)
    GONE = SharedRow(
        "C", "the marker knows of segments, and there is none, or none with a valid head", SharedVerdict.REFUSE
    )
    NEWEST_MISSING = SharedRow(
        "D", "the marker knows of a newer segment than there is: every log", SharedVerdict.DAMAGE
    )
    NEWEST_HEADLESS = SharedRow("E", "newest; neither copy of its head is valid: every log", SharedVerdict.DAMAGE)
    CLOSED = SharedRow("F", "newest; a whole footer with an image of all logs", SharedVerdict.USE)
    SEALED = SharedRow("G", "newest; a whole footer without an image, or one that was cut short", SharedVerdict.USE)
    CLEAN = SharedRow("H", "newest; the end of the file, or only zeros follow", SharedVerdict.CUT)
    TORN = SharedRow("I", "newest; invalid, and part of it was never written", SharedVerdict.CUT)
    BAD_BODY = SharedRow("J", "newest; a body that was durable is invalid: its log", SharedVerdict.DAMAGE)
    BAD_RECORD = SharedRow(
        "K", "newest; bytes that were durable are invalid: logs with no whole record behind", SharedVerdict.DAMAGE
    )
    MISSED = SharedRow("L", "newest; records of a log are missing before a valid one: that log", SharedVerdict.DAMAGE)
    UNFIT = SharedRow("M", "newest; a valid record that does not fit its log: that log", SharedVerdict.DAMAGE)
    UNPROVEN = SharedRow(
        "N", "newest; its end cannot be written once more and synced: logs with records there", SharedVerdict.DAMAGE
    )
    MISSING = SharedRow("O", "older; a segment with entries of logs is missing: those logs", SharedVerdict.DAMAGE)
    BAD_SEGMENT = SharedRow(
        "P", "older; its head is of another segment, or its data are cut short: those logs", SharedVerdict.DAMAGE
    )
    SYNC_FAILED = SharedRow("Q", "a head says that a sync of a log's entries failed: that log", SharedVerdict.DAMAGE)
    UNREAD = SharedRow("R", "older; its head is not read now: each entry is verified when it is", SharedVerdict.USE)


def table() -> list[SharedRow]:
    """Return the rows in order, for the documentation and for the test that every row is tested."""
    return [found.value for found in SharedFinding]
