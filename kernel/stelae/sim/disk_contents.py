"""What one virtual file holds: the bytes that are visible, and how to get back to the durable ones.

A file keeps its visible bytes and, for every change that is not yet durable, how to undo and redo
it. So a synced write costs nothing extra, and a crash is computed, not logged: undo everything,
then redo what survives."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum, auto

from stelae.sim.draw import below, chance

SECTOR_BYTES = 512
"""What a disk writes atomically; a crash may also tear inside it, as page caches do."""


class Survival(Enum):
    """What becomes of changes that were not synced when power was lost."""

    DRAWN = auto()
    """Per file one of: all kept, all lost, a torn prefix, scattered sectors."""
    KEPT = auto()
    """All of them are on disk, as after the death of the process alone."""
    LOST = auto()
    """None of them is on disk."""


@dataclass(slots=True)
class Change:
    """One change of a file that may not be durable.

    Attributes:
        offset: where ``old`` and ``new`` begin.
        old: bytes of the old contents from ``offset`` on that the change overwrote or cut.
        new: bytes written; empty for a change of size.
        size_old, size_new: length of the file before and after.
        forced: durable, although a change before it may not be.
        doomed: a sync that should have covered it failed; a later sync does not make up for it.
    """

    offset: int
    old: bytes
    new: bytes
    size_old: int
    size_new: int
    forced: bool = False
    doomed: bool = False


class FileContents:
    """The inode of a virtual file.

    Attributes:
        number: orders inodes by creation.
        linked: false once its name was removed; handles go on working.
        failed: a sync of it has failed, and neither the process nor the machine has ended since.
    """

    __slots__ = ("changes", "data", "failed", "linked", "number")

    def __init__(self, number: int, data: bytes | bytearray = b"") -> None:
        self.number = number
        self.data = bytearray(data)
        self.changes: list[Change] = []
        self.linked = True
        self.failed = False

    def write(self, payload: bytes, offset: int) -> None:
        """Write, visible at once, durable after ``sync``. Writing past the end leaves zeros."""
        data, size = self.data, len(self.data)
        end = offset + len(payload)
        change = Change(offset, bytes(data[offset:end]), payload, size, max(size, end))
        self.changes.append(change)
        _redo(data, change)

    def write_durably(self, payload: bytes, offset: int) -> None:
        """Write what is durable at once; allowed only while nothing else is un-synced."""
        data = self.data
        if len(data) < offset:
            data.extend(bytes(offset - len(data)))
        data[offset : offset + len(payload)] = payload

    def resize(self, size: int) -> None:
        """Cut or extend with zeros."""
        data = self.data
        change = Change(size, bytes(data[size:]), b"", len(data), size)
        self.changes.append(change)
        _redo(data, change)

    def sync(self) -> None:
        """Make every change durable that no failed sync has doomed."""
        if any(change.doomed for change in self.changes):
            for change in self.changes:
                change.forced = not change.doomed
        else:
            self.changes.clear()

    def sync_last(self) -> None:
        """Make the newest change durable and nothing before it, as a write with dsync does."""
        if len(self.changes) == 1:
            self.changes.clear()
        else:
            self.changes[-1].forced = True

    def doom(self) -> None:
        """A sync failed: what it should have made durable is visible and never will be durable, though later syncs
        succeed."""
        self.failed = True
        for change in self.changes:
            change.doomed = not change.forced

    def after_crash(self, rng: random.Random, survival: Survival) -> bytes:
        """Return what is on disk after power was lost now."""
        data = bytearray(self.data)
        for change in reversed(self.changes):
            del data[change.size_old :]
            data[change.offset : change.offset + len(change.old)] = change.old
        _redo_survivors(data, self.changes, rng, survival)
        return bytes(data)

    def copy(self) -> FileContents:
        """An independent copy, un-synced changes included."""
        twin = FileContents(self.number, self.data)
        if self.changes:
            twin.changes = [replace(change) for change in self.changes]
        twin.linked = self.linked
        return twin


def _redo(data: bytearray, change: Change) -> None:
    if change.new:
        if len(data) < change.offset:
            data.extend(bytes(change.offset - len(data)))
        data[change.offset : change.offset + len(change.new)] = change.new
    elif change.size_new < len(data):
        del data[change.size_new :]
    else:
        data.extend(bytes(change.size_new - len(data)))


def _redo_survivors(data: bytearray, changes: list[Change], rng: random.Random, survival: Survival) -> None:
    if survival is Survival.DRAWN:
        fate = below(rng, 4)
        kept_whole = (0, len(changes), below(rng, len(changes) + 1), 0)[fate] if changes else 0
    else:
        fate = 1 if survival is Survival.KEPT else 0
        kept_whole = len(changes) if survival is Survival.KEPT else 0
    for position, change in enumerate(changes):
        if change.forced or position < kept_whole:
            _redo(data, change)
        elif fate == 2 and position == kept_whole:
            _redo_torn(data, change, rng)
        elif fate == 3:
            _redo_scattered(data, change, rng)


def _redo_torn(data: bytearray, change: Change, rng: random.Random) -> None:
    """Keep a prefix of a write, cut at any byte or at a sector."""
    length = below(rng, len(change.new) + 1)
    if chance(rng, 0.5):
        length = max(0, (change.offset + length) // SECTOR_BYTES * SECTOR_BYTES - change.offset)
    if length:
        _redo(data, Change(change.offset, b"", change.new[:length], 0, change.offset + length))


def _redo_scattered(data: bytearray, change: Change, rng: random.Random) -> None:
    """Keep each sector of a write, or a change of size, with even chance."""
    if not change.new:
        if chance(rng, 0.5):
            _redo(data, change)
        return
    start, end = change.offset, change.offset + len(change.new)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance(rng, 0.5):
            piece = change.new[start - change.offset : stop - change.offset]
            _redo(data, Change(start, b"", piece, 0, stop))
        start = stop


__all__ = ["SECTOR_BYTES", "Change", "FileContents", "Survival"]
