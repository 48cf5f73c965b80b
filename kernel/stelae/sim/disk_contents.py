"""The contents of one virtual file: its visible bytes, and the changes that are not durable yet.

A file keeps its visible bytes and, for every change that is not durable, the data to undo and redo
it. So a synced write has no extra cost. A crash undoes all changes and then redoes the ones that
survive."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum, auto

from stelae.sim.draw import below, chance

SECTOR_BYTES = 512
"""Size that a disk writes atomically. A crash may also tear inside a sector, as with a page cache."""


class Survival(Enum):
    """Which un-synced changes survive a power loss."""

    DRAWN = auto()
    """Drawn for each file: all changes, none, a torn prefix, or scattered sectors."""
    KEPT = auto()
    """All changes survive, as when only the process ends."""
    LOST = auto()
    """No change survives."""


@dataclass(slots=True)
class FileChange:
    """One change of a file that may not be durable.

    Attributes:
        offset: offset at which ``old`` and ``new`` begin.
        old: bytes of the old contents from ``offset`` on that the change overwrote or cut off.
        new: bytes written; empty for a change of the file's length.
        size_old, size_new: length of the file before and after the change.
        forced: the change is durable, although an earlier change may not be.
        sync_failed: a sync that covered the change failed. A later sync does not make the change durable.
    """

    offset: int
    old: bytes
    new: bytes
    size_old: int
    size_new: int
    forced: bool = False
    sync_failed: bool = False


class FileContents:
    """The inode of a virtual file.

    Attributes:
        number: number of the inode, in order of creation.
        linked: false once the name was removed. Open handles still work.
        sync_failed: a sync of the file has failed, and neither the process nor the machine has ended since.
    """

    __slots__ = ("changes", "data", "linked", "number", "sync_failed")

    def __init__(self, number: int, data: bytes | bytearray = b"") -> None:
        self.number = number
        self.data = bytearray(data)
        self.changes: list[FileChange] = []
        self.linked = True
        self.sync_failed = False

    def write(self, payload: bytes, offset: int) -> None:
        """Write. The bytes are visible at once and durable after ``sync``. A gap before ``offset`` reads as zeros."""
        data, size = self.data, len(self.data)
        end = offset + len(payload)
        change = FileChange(offset, bytes(data[offset:end]), payload, size, max(size, end))
        self.changes.append(change)
        _redo(data, change)

    def write_durably(self, payload: bytes, offset: int) -> None:
        """Write bytes that are durable at once. Allowed only while the file has no un-synced change."""
        data = self.data
        if len(data) < offset:
            data.extend(bytes(offset - len(data)))
        data[offset : offset + len(payload)] = payload

    def resize(self, size: int) -> None:
        """Truncate the file, or extend it with zeros."""
        data = self.data
        change = FileChange(size, bytes(data[size:]), b"", len(data), size)
        self.changes.append(change)
        _redo(data, change)

    def sync(self) -> None:
        """Make every change durable, except those that an earlier failed sync covered."""
        if any(change.sync_failed for change in self.changes):
            for change in self.changes:
                change.forced = not change.sync_failed
        else:
            self.changes.clear()

    def sync_last(self) -> None:
        """Make only the newest change durable, as a write with dsync does."""
        if len(self.changes) == 1:
            self.changes.clear()
        else:
            self.changes[-1].forced = True

    def fail_sync(self) -> None:
        """Record a failed sync: the changes that it covered stay visible and never become durable.

        Later syncs succeed, but do not change that."""
        self.sync_failed = True
        for change in self.changes:
            change.sync_failed = not change.forced

    def after_crash(self, rng: random.Random, survival: Survival) -> bytes:
        """Return the bytes that are on disk after a power loss now."""
        data = bytearray(self.data)
        for change in reversed(self.changes):
            del data[change.size_old :]
            data[change.offset : change.offset + len(change.old)] = change.old
        _redo_survivors(data, self.changes, rng, survival)
        return bytes(data)

    def copy(self) -> FileContents:
        """Return an independent copy, with the un-synced changes."""
        twin = FileContents(self.number, self.data)
        if self.changes:
            twin.changes = [replace(change) for change in self.changes]
        twin.linked = self.linked
        return twin


def _redo(data: bytearray, change: FileChange) -> None:
    if change.new:
        if len(data) < change.offset:
            data.extend(bytes(change.offset - len(data)))
        data[change.offset : change.offset + len(change.new)] = change.new
    elif change.size_new < len(data):
        del data[change.size_new :]
    else:
        data.extend(bytes(change.size_new - len(data)))


def _redo_survivors(data: bytearray, changes: list[FileChange], rng: random.Random, survival: Survival) -> None:
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


def _redo_torn(data: bytearray, change: FileChange, rng: random.Random) -> None:
    """Redo a prefix of a write that ends at any byte or at the end of a sector."""
    length = below(rng, len(change.new) + 1)
    if chance(rng, 0.5):
        length = max(0, (change.offset + length) // SECTOR_BYTES * SECTOR_BYTES - change.offset)
    if length:
        _redo(data, FileChange(change.offset, b"", change.new[:length], 0, change.offset + length))


def _redo_scattered(data: bytearray, change: FileChange, rng: random.Random) -> None:
    """Redo each sector of a write, or a change of length, with a probability of one half."""
    if not change.new:
        if chance(rng, 0.5):
            _redo(data, change)
        return
    start, end = change.offset, change.offset + len(change.new)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance(rng, 0.5):
            piece = change.new[start - change.offset : stop - change.offset]
            _redo(data, FileChange(start, b"", piece, 0, stop))
        start = stop


__all__ = ["SECTOR_BYTES", "FileChange", "FileContents", "Survival"]
