"""The writer of the open segment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import Buffer, File
from stelae_shared.log_files.buffers import joined
from stelae_wal_shared.segment import SharedSegment

RESERVE_SHARE = 16
RESERVE_BYTES_MIN = 512


class SharedWriter:
    """Appends groups to a segment, through the system's cache. One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        segment: the segment. Readers see it up to its ``end``.
        end: offset of the next group.
        synced: everything before this offset is durable.
        target: length at which the segment is full.
        prepare_from: length at which the file of the next segment is requested.
        room: offset behind which only records that free space are written, so that a full disk can be freed.
    """

    __slots__ = ("_allocated", "_file", "end", "prepare_from", "room", "segment", "synced", "target")

    def __init__(self, file: File, segment: SharedSegment, target: int, prepare_from: int) -> None:
        self._file = file
        self.segment = segment
        self.end = self.synced = segment.end
        self.target = target
        self.prepare_from = prepare_from
        self.room = target - max(RESERVE_BYTES_MIN, target // RESERVE_SHARE)
        self._allocated = file.size()

    @property
    def unsynced(self) -> bool:
        """Whether groups were written that are not synced."""
        return self.synced < self.end

    def write(self, buffers: Sequence[Buffer], size: int, *, sync: bool) -> None:
        """Write a group at the end. With ``sync``, the group and everything before it is durable on return.

        Raises:
            Full, SyncFailed: see ``File.pwritev``. ``end`` and ``synced`` are unchanged.
        """
        alone = self.synced == self.end
        self._file.pwritev(joined(buffers), self.end, dsync=sync and alone)
        end = self.end + size
        if sync:
            if not alone:
                self._file.sync(data_only=end <= self._allocated)
            self.synced = end
        self.end = end

    def sync(self) -> None:
        """Make everything durable.

        Raises:
            SyncFailed: nothing behind ``synced`` may be trusted.
        """
        if self.unsynced:
            self._file.sync(data_only=self.end <= self._allocated)
            self.synced = self.end

    def seal(self, footer: bytes) -> bool:
        """Cut the file to its data, which are durable, and add a footer; return whether the footer was written.

        Without a footer, the head of the next segment records where the data end."""
        sealed = False
        try:
            self._file.truncate(self.end)
            # A begun group that was never finished may be in the file. A footer torn over it would not look torn.
            self._file.sync()
            try:
                self._file.pwritev([footer], self.end)
                sealed = True
            except Full:
                self._file.truncate(self.end)
            self._file.sync()
        except (StorageError, OSError):
            # No data are lost: they were durable before.
            sealed = False
        self.abandon()
        return sealed

    def abandon(self) -> None:
        """Close the handle and change nothing."""
        with suppress(OSError):
            self._file.close()
