"""What recovery does with what it finds: one table, one lettered row per situation.

The rule behind it: what was durable is never cut away, and damage is told to the logs it touches and
to no other. Bytes are known to have been durable when they stand in a segment that is not the newest,
before a footer, or before a synced offset; all else behind the last valid record is a tail that a
crash left, unless every part of it was written."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Verdict(Enum):
    """What becomes of a file, or of the logs it touches."""

    REMOVE = auto()
    """The file goes: nothing that counts is in it."""
    USE = auto()
    """It is whole, or its other copy is."""
    CUT = auto()
    """What is behind the last valid record goes, durably."""
    DAMAGE = auto()
    """The logs it touches are corrupt from there on and refuse appends; the others work."""
    REFUSE = auto()
    """The directory is not opened."""


class Row(NamedTuple):
    """One row of the table."""

    letter: str
    situation: str
    verdict: Verdict


class Found(Enum):
    """The situations, as rows of the table."""

    UNBORN = Row("A", "a file in the making that was never renamed", Verdict.REMOVE)
    COLLECTED = Row("B", "a segment in which no log has an entry", Verdict.REMOVE)
    GONE = Row("C", "the marker knows of segments, and there is none, or none with a valid head", Verdict.REFUSE)
    NEWEST_MISSING = Row("D", "the marker knows of a newer segment than there is: every log", Verdict.DAMAGE)
    NEWEST_HEADLESS = Row("E", "newest; neither copy of its head is valid: every log", Verdict.DAMAGE)
    CLOSED = Row("F", "newest; a whole footer with an image of all logs", Verdict.USE)
    SEALED = Row("G", "newest; a whole footer without an image, or one that was cut short", Verdict.USE)
    CLEAN = Row("H", "newest; the end of the file, or only zeros follow", Verdict.CUT)
    TORN = Row("I", "newest; invalid, and part of it was never written", Verdict.CUT)
    BAD_BODY = Row("J", "newest; a body that was durable is invalid: its log", Verdict.DAMAGE)
    BAD_RECORD = Row(
        "K", "newest; bytes that were durable are invalid: logs with no whole record behind", Verdict.DAMAGE
    )
    MISSED = Row("L", "newest; records of a log are missing before a valid one: that log", Verdict.DAMAGE)
    UNFIT = Row("M", "newest; a valid record that does not fit its log: that log", Verdict.DAMAGE)
    UNPROVEN = Row(
        "N", "newest; its end cannot be written once more and synced: logs with records there", Verdict.DAMAGE
    )
    MISSING = Row("O", "older; a segment with entries of logs is missing: those logs", Verdict.DAMAGE)
    BAD_SEGMENT = Row(
        "P", "older; its head is of another segment, or its data are cut short: those logs", Verdict.DAMAGE
    )
    SYNC_FAILED = Row("Q", "a head says that a sync of a log's entries failed: that log", Verdict.DAMAGE)


def table() -> list[Row]:
    """The rows in order, for the documentation and for the test that every row is tested."""
    return [found.value for found in Found]
