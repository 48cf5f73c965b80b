"""The segment writer of the fast engine: whole blocks, begun writes, and segments in re-used files."""

from __future__ import annotations

from stelae.spi.services import File
from stelae.spi.wal import Write
from stelae_shared.log_files.buffers import joined
from stelae_shared.log_files.whole_blocks import WholeBlocks
from stelae_wal_segmented.fast.write_digests import WriteDigests
from stelae_wal_segmented.group import EncodedGroup
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.sectors import SECTOR_BYTES
from stelae_wal_segmented.segment import Segment
from stelae_wal_segmented.writer import SegmentWriter


class SegmentedBlockWriter(SegmentWriter):
    """A ``SegmentWriter`` that writes whole blocks over space that was written before.

    In a re-used file it syncs each group before the next one, even without ``sync``. Recovery recognizes a torn group
    by what its sectors held before, and a later group would change that.

    Args:
        prewritten: the file was written with zeros.
        noted: takes the digests of what is written; ``None``: they are not computed.

    Attributes:
        lazy: groups were written without sync.
    """

    __slots__ = ("_begun", "_blocks", "_noted", "_used", "lazy")

    def __init__(
        self,
        file: File,
        segment: Segment,
        index: SegmentIndex,
        target: int,
        prepare_from: int,
        *,
        prewritten: bool,
        noted: WriteDigests | None,
    ) -> None:
        self._used = segment.header.space.sectors > 0
        unit = SECTOR_BYTES if self._used else 1
        self._blocks = WholeBlocks(file, file.size(), unit=unit) if self._used or prewritten else None
        self._noted = noted
        self._begun = False
        self.lazy = False
        super().__init__(file, segment, index, target, prepare_from)

    def write_of(self, group: EncodedGroup) -> Write:
        """Return the durable write of a group at the end of a segment whose groups are all durable.

        Call ``note`` and ``wrote`` after it."""
        if self._blocks is not None:
            return self._blocks.write_of(group.buffers, self.end, group.size)
        return Write(self._file, joined(group.buffers), self.end)

    def begin(self, group: EncodedGroup) -> Write:
        """Return ``write_of`` for a write that is made next. If the node stops, no result arrives: see ``seal``."""
        self._begun = True
        return self.write_of(group)

    def note(self, group: EncodedGroup, write: Write) -> None:
        """Compute the digests of a group's write, without the zeros at its end, over which the next write begins.

        A group in more than one buffer is skipped."""
        if self._blocks is not None and self._noted is not None and len(write.buffers) == 1:
            self._noted.note(memoryview(write.buffers[0])[: self.end + group.size - write.offset], write.offset)

    def wrote(self, group: EncodedGroup, write: Write) -> None:
        """Record that a group was written durably at the end."""
        self.end = self.synced = self.end + group.size
        self._begun = False
        if self._blocks is not None:
            self._blocks.wrote(write, self.end)

    def write(self, group: EncodedGroup, *, sync: bool) -> None:
        """Do what ``SegmentWriter.write`` does. In a re-used file every group is durable on return."""
        alone = self.synced == self.end
        sync = sync or self._used
        self.lazy = self.lazy or not sync
        if not (sync and alone):
            # It would repeat bytes that are not durable yet, and a torn write could leave part of them.
            self._blocks = None
        write = self.begin(group)
        self._file.pwritev(write.buffers, write.offset, dsync=sync and alone)
        end = self.end + group.size
        if sync:
            if not alone:
                self._file.sync(data_only=end <= self._allocated)
            self.synced = end
        self.note(group, write)
        if self._blocks is not None:
            self._blocks.wrote(write, end)
        self.end = end
        self._begun = False

    def forget_unsynced(self) -> None:
        """Do what ``SegmentWriter.forget_unsynced`` does."""
        super().forget_unsynced()
        self._begun = False

    def seal(self) -> bool:
        """Do what ``SegmentWriter.seal`` does, after cutting a group that was begun and never finished.

        Such a group may be complete in the file. A footer that is torn over it would not look torn."""
        if self._begun:
            self.forget_unsynced()
        return super().seal()

    def _write_footer(self, footer: bytes, length: int) -> None:
        if not self._used:
            super()._write_footer(footer, length)
            return
        # Until the footer is complete, its sectors must hold what the table says. So the file is cut afterwards.
        self._file.pwritev([footer, bytes(-length % SECTOR_BYTES)], self.end, dsync=True)
        self._file.truncate(length)
