"""The one segment that takes records."""

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
        segment: what is written to; its ``end`` is what readers may see.
        end, synced: where the next group goes; up to where everything is durable.
        target: length at which another segment is wanted.
        prepare_from: length from which its space is prepared.
        room: offset beyond which only records go that free space: a full disk can still be collected.
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
        """Say whether something was written and not synced."""
        return self.synced < self.end

    def write(self, buffers: Sequence[Buffer], size: int, *, sync: bool) -> None:
        """Write a group; with ``sync`` it and everything before it is durable on return.

        Raises:
            Full, SyncFailed: see ``File.pwritev``; ``end`` and ``synced`` stand where they were.
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
            SyncFailed: nothing behind ``synced`` is to be trusted.
        """
        if self.unsynced:
            self._file.sync(data_only=self.end <= self._allocated)
            self.synced = self.end

    def seal(self, footer: bytes) -> bool:
        """Cut the file to its data, which are durable, and add a footer; true if it got one.

        Without one, the head of the segment that follows says where the data end."""
        sealed = False
        try:
            self._file.truncate(self.end)
            # A group of which nobody waited to hear may stand there: a footer that is torn over it would not look torn.
            self._file.sync()
            try:
                self._file.pwritev([footer], self.end)
                sealed = True
            except Full:
                self._file.truncate(self.end)
            self._file.sync()
        except (StorageError, OSError):
            # Nothing that counts is at stake: the data were durable before.
            sealed = False
        self.abandon()
        return sealed

    def abandon(self) -> None:
        """Let go of the file as it is."""
        with suppress(OSError):
            self._file.close()
