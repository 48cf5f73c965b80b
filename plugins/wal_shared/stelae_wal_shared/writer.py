"""The one segment that takes records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from stelae.log_support.block_end import BlockEnd
from stelae.log_support.buffers import joined
from stelae.spi.errors import Full, StorageError
from stelae.spi.services import Buffer, File
from stelae.spi.wal import Write
from stelae_wal_shared.segment import Segment

RESERVE_SHARE = 16
RESERVE_BYTES_MIN = 512


class Writer:
    """Appends groups to a segment. One caller at a time: see ``stelae.spi.wal``.

    Args:
        zeros: all of its space was written with zeros.

    Attributes:
        segment: what is written to; its ``end`` is what readers may see.
        end, synced: where the next group goes; up to where everything is durable.
        target: length at which another segment is wanted.
        prepare_from: length from which its space is prepared.
        room: offset beyond which only records go that free space: a full disk can still be collected.
    """

    __slots__ = ("_allocated", "_blocks", "_file", "end", "prepare_from", "room", "segment", "synced", "target")

    def __init__(self, file: File, segment: Segment, target: int, prepare_from: int, *, zeros: bool = False) -> None:
        self._file = file
        self._blocks = BlockEnd(file, file.size()) if zeros else None
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
        if not (sync and alone):
            self._blocks = None  # It would write once more what is not durable, and a tear leave part of that.
        write = self.write_of(buffers, size)
        self._file.pwritev(write.buffers, write.offset, dsync=sync and alone)
        end = self.end + size
        if sync:
            if not alone:
                self._file.sync(data_only=end <= self._allocated)
            self.synced = end
        self._stands(write, end)

    def write_of(self, buffers: Sequence[Buffer], size: int) -> Write:
        """The durable write of a group at the end, where all before it is durable; ``wrote`` follows it."""
        if self._blocks is not None:
            return self._blocks.write_of(buffers, self.end, size)
        return Write(self._file, joined(buffers), self.end)

    def wrote(self, write: Write, size: int) -> None:
        """A group stands at the end, durably."""
        self.synced = self.end + size
        self._stands(write, self.synced)

    def _stands(self, write: Write, end: int) -> None:
        if self._blocks is not None:
            self._blocks.wrote(write, end)
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
