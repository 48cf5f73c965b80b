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


def reserve_bytes(target: int) -> int:
    """Return the reserve of a segment that is full at ``target`` bytes."""
    return max(RESERVE_BYTES_MIN, target // RESERVE_SHARE)


class SharedWriter:
    """Appends groups to a segment, through the system's cache. One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        segment: the segment. Readers see it up to its ``end``.
        end: offset of the next group.
        synced: everything before this offset is durable.
        target: length at which the segment is full.
        prepare_from: length at which the file of the next segment is requested.
        room: offset behind which the next segment takes the entries, once its file is ready.
        reserve: space in bytes that entries leave behind them for records that free more. So a full disk can be freed.
    """

    __slots__ = ("_allocated", "_file", "end", "prepare_from", "reserve", "room", "segment", "synced", "target")

    def __init__(self, file: File, segment: SharedSegment, target: int, prepare_from: int) -> None:
        self._file = file
        self.segment = segment
        self.end = self.synced = segment.end
        self.target = target
        self.prepare_from = prepare_from
        self.reserve = reserve_bytes(target)
        self.room = target - self.reserve
        self._allocated = file.size()

    @property
    def unsynced(self) -> bool:
        """Whether groups were written that are not synced."""
        return self.synced < self.end

    def has_claimed(self, size: int) -> bool:
        """Say whether ``claim`` would return at once."""
        return self.end + size + self.reserve <= self._allocated

    def claim(self, size: int) -> None:
        """Reserve space for the next ``size`` bytes of entries, and ``reserve`` behind them.

        Raises:
            Full: there is no space. Nothing has changed: the segment takes control records, for which it has space.
            SyncFailed: as ``File.preallocate``.
        """
        if self.has_claimed(size):
            return
        wanted = self.end + size + self.reserve
        try:
            self._file.preallocate(wanted + self.target // RESERVE_SHARE)
        except Full:
            self._file.preallocate(wanted)
        self._allocated = self._file.size()

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
