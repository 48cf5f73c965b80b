"""The open end of a log: the one segment that takes entries."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.log_support.block_end import BlockEnd
from stelae.log_support.buffers import joined
from stelae.spi.errors import Full
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae.spi.wal import Write
from stelae_wal_segmented.compression import Compressor
from stelae_wal_segmented.footer import encode_footer
from stelae_wal_segmented.group import EncodedGroup, encode_group
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.sectors import SECTOR_BYTES
from stelae_wal_segmented.segment import Segment


class SegmentWriter:
    """Appends groups to one segment. One caller at a time: see ``stelae.spi.wal``.

    In space that was used before each group is synced, wanted or not, before the next one is written: recovery
    tells a group that a crash tore by what stood there before it, and another one behind it would have changed that.

    Args:
        zeros: all of its space was written with zeros.

    Attributes:
        segment: what is written to.
        index: its entries; published by the log under its lock.
        end: where the next group goes.
        synced: everything before this offset is durable.
        target: length from which a fresh segment is wanted.
        prepare_from: length from which its space is prepared.
        lazy: groups were written without sync.
    """

    __slots__ = (
        "_allocated",
        "_begun",
        "_blocks",
        "_compressor",
        "_file",
        "_used",
        "end",
        "index",
        "lazy",
        "prepare_from",
        "segment",
        "synced",
        "target",
    )

    def __init__(
        self,
        file: File,
        segment: Segment,
        index: SegmentIndex,
        target: int,
        prepare_from: int,
        compressor: Compressor | None = None,
        *,
        zeros: bool = False,
    ) -> None:
        self._file = file
        self._compressor = compressor
        self.segment = segment
        self.index = index
        self.end = self.synced = segment.end
        self.target = target
        self.prepare_from = prepare_from
        self.lazy = False
        self._used = segment.header.space.sectors > 0
        self._begun = False
        unit = SECTOR_BYTES if self._used else 1
        self._blocks = BlockEnd(file, file.size(), unit=unit) if self._used or zeros else None
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
            compressor=self._compressor,
        )

    def write_of(self, group: EncodedGroup) -> Write:
        """The durable write of a group at the end, where all before it is durable; ``note`` and ``wrote`` follow it."""
        if self._blocks is not None:
            return self._blocks.write_of(group.buffers, self.end, group.size)
        return Write(self._file, joined(group.buffers), self.end)

    def begin(self, group: EncodedGroup) -> Write:
        """As ``write_of``, for a write that is made next. What becomes of it may never be known here: see ``seal``."""
        self._begun = True
        return self.write_of(group)

    def note(self, group: EncodedGroup, write: Write) -> None:
        """Note what the write of a group leaves at the end, for whoever uses the space next: but for the sector that
        the next write begins with, and for groups that are written from where their bodies are."""
        noted = self.segment.noted
        if self._blocks is not None and noted is not None and len(write.buffers) == 1:
            noted.note(memoryview(write.buffers[0])[: self.end + group.size - write.offset], write.offset)

    def wrote(self, group: EncodedGroup, write: Write) -> None:
        """The group stands at the end, durably."""
        self.end = self.synced = self.end + group.size
        self._begun = False
        if self._blocks is not None:
            self._blocks.wrote(write, self.end)

    def write(self, group: EncodedGroup, *, sync: bool) -> None:
        """Write a group at the end; durable on return when ``sync`` or where ``synced`` says so, else not yet.

        Raises:
            Full, SyncFailed: see ``File.pwritev``. ``end`` and ``synced`` stand where they were.
        """
        alone = self.synced == self.end
        sync = sync or self._used
        self.lazy = self.lazy or not sync
        if not (sync and alone):
            self._blocks = None  # It would write once more what is not durable, and a tear leave part of that.
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
        self._begun = False

    def park(self) -> None:
        """Give back preallocated space and the handle; the segment stays open for entries."""
        self._file.truncate(self.end)
        self._file.sync()
        self.synced = self.end
        self._file.close()

    def seal(self) -> bool:
        """Close the segment for good; true if it got a footer, which a full disk may prevent.

        A segment without a footer is closed by the header of its successor."""
        if self._begun:
            # A group may stand there of which nobody waited to hear: a footer that is torn over it would not look torn.
            self.forget_unsynced()
        # A footer may survive a crash that what it vouches for does not.
        self.sync()
        footer = encode_footer(self.index, self.segment.header.nonce)
        length = self.end + len(footer)
        try:
            if self._used:
                # What stood there before has to be there whole, until the footer is.
                self._file.pwritev([footer, bytes(-length % SECTOR_BYTES)], self.end, dsync=True)
                self._file.truncate(length)
            else:
                self._file.truncate(length)
                self._file.pwritev([footer], self.end)
        except Full:
            self._file.truncate(self.end)
            length = self.end
        self._file.sync()
        self.synced = self.end
        self._file.close()
        return length > self.end

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
