"""The writer of a log's active segment."""

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
        segment: the segment.
        index: its entries. The log adds to the index under its lock.
        end: offset of the next group.
        synced: everything before this offset is durable.
        target: length at which the segment is full.
        prepare_from: length at which the file of the next segment is requested.
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
        """Encode a group for the end of the segment. Nothing is written.

        Raises:
            TooLarge: an entry is larger than ``ENTRY_BYTES_MAX``.
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
        """Write a group at the end. With ``sync``, the group and everything before it is durable on return.

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
        """Make every group durable. This is cheap while the segment is within its preallocated length."""
        if self.synced < self.end:
            self._file.sync(data_only=self.end <= self._allocated)
            self.synced = self.end

    def forget_unsynced(self) -> None:
        """Cut everything that was not synced, durably. Called after a full disk."""
        self.cut_unsynced()
        self._file.sync()

    def cut_unsynced(self) -> None:
        """Cut everything that was not synced. If it fails, the file is as it was."""
        self._file.truncate(self.synced)
        self.end = self.synced

    def park(self) -> None:
        """Release the preallocated space and the handle. The segment may take entries again later."""
        self._file.truncate(self.end)
        self._file.sync()
        self.synced = self.end
        self._file.close()

    def seal(self) -> bool:
        """Close the segment; return whether it got a footer. A full disk may prevent that.

        A segment without a footer is closed by the header of its successor."""
        # Without this sync a crash could leave the footer but not the entries that it lists.
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
        """Close the handle and change nothing: the file is no longer trusted."""
        self._file.close()


def _preallocate(file: File, size: int) -> int:
    """Reserve the segment's space; return the file's length. On a full disk the file grows with each write."""
    try:
        file.preallocate(size)
    except Full:
        return file.size()
    return size
