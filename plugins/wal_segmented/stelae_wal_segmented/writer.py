"""The open end of a log: the one segment that takes entries."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.errors import Full
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae_shared.log_files.buffers import joined
from stelae_wal_segmented.footer import encode_footer
from stelae_wal_segmented.group import EncodedGroup, encode_group
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.segment import Segment


class SegmentWriter:
    """Appends groups to one segment, through the system's cache. One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        segment: what is written to.
        index: its entries; published by the log under its lock.
        end: where the next group goes.
        synced: everything before this offset is durable.
        target: length from which a fresh segment is wanted.
        prepare_from: length from which its space is prepared.
    """

    __slots__ = ("_allocated", "_file", "end", "index", "prepare_from", "segment", "synced", "target")

    def __init__(self, file: File, segment: Segment, index: SegmentIndex, target: int, prepare_from: int) -> None:
        self._file = file
        self.segment = segment
        self.index = index
        self.end = self.synced = segment.end
        self.target = target
        self.prepare_from = prepare_from
        self._allocated = _preallocate(file, target)

    def encode(self, entries: Sequence[Entry], *, replace_from: int | None, commit_hint: int) -> EncodedGroup:
        """Make one group for the end; nothing is written.

        Raises:
            TooLarge: an entry is above the maximum.
        """
        return encode_group(
            entries,
            nonce=self.segment.header.nonce,
            at=self.end,
            synced=self.synced,
            replace_from=replace_from,
            commit_hint=commit_hint,
        )

    def write(self, group: EncodedGroup, *, sync: bool) -> None:
        """Write a group at the end; with ``sync`` it and everything before it is durable on return.

        Raises:
            Full, SyncFailed: see ``File.pwritev``. ``end`` and ``synced`` are unchanged.
        """
        alone = self.synced == self.end
        self._file.pwritev(joined(group.buffers), self.end, dsync=sync and alone)
        end = self.end + group.size
        if sync:
            if not alone:
                self._file.sync(data_only=end <= self._allocated)
            self.synced = end
        self.end = end

    def sync(self) -> None:
        """Make every group durable. Cheap while the segment is within its preallocated length."""
        if self.synced < self.end:
            self._file.sync(data_only=self.end <= self._allocated)
            self.synced = self.end

    def forget_unsynced(self) -> None:
        """After a full disk: cut everything that was not synced, durably."""
        self._file.truncate(self.synced)
        self._file.sync()
        self.end = self.synced

    def park(self) -> None:
        """Give back preallocated space and the handle; the segment stays open for entries."""
        self._file.truncate(self.end)
        self._file.sync()
        self.synced = self.end
        self._file.close()

    def seal(self) -> bool:
        """Close the segment for good; true if it got a footer, which a full disk may prevent.

        A segment without a footer is closed by the header of its successor."""
        # A footer may survive a crash that what it vouches for does not.
        self.sync()
        footer = encode_footer(self.index, self.segment.header.nonce)
        length = self.end + len(footer)
        try:
            self._write_footer(footer, length)
        except Full:
            self._file.truncate(self.end)
            length = self.end
        self._file.sync()
        self.synced = self.end
        self._file.close()
        return length > self.end

    def _write_footer(self, footer: bytes, length: int) -> None:
        self._file.truncate(length)
        self._file.pwritev([footer], self.end)

    def abandon(self) -> None:
        """Close the handle and touch nothing: the file is not trusted any more."""
        self._file.close()


def _preallocate(file: File, size: int) -> int:
    """Reserve the segment's space; a disk that has not so much is used up bit by bit."""
    try:
        file.preallocate(size)
    except Full:
        return file.size()
    return size
