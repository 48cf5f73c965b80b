"""Segments in the files of collected segments: which files a log keeps, and how one becomes the next segment."""

from __future__ import annotations

from stelae.spi.services import File
from stelae_shared.log_files.spare import Spare, Wanted
from stelae_wal_segmented.fast.kept_files import KeptFiles, UsedFile
from stelae_wal_segmented.fast.noted import Noted, NotedPool
from stelae_wal_segmented.fast.writer import SegmentedBlockWriter
from stelae_wal_segmented.format import NEW_SPACE
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.sectors import SECTOR_BYTES, UsedSpace
from stelae_wal_segmented.segment import Segment
from stelae_wal_segmented.space import SegmentSpace, Setting
from stelae_wal_segmented.writer import SegmentWriter

KEPT_MAX = 2
"""Files of collected segments that a log keeps: one becomes the next segment while another one is filled. They take
space on the disk, 128 MiB with the default sizes."""

NOTED_MAX = 4
"""Digests are kept of so many newest segments of a log, half a megabyte for 64 MiB. A log that is collected as it grows
has no more segments; the file of an older one is read before it is used again."""


class ReusedSegments(SegmentSpace):
    """As ``SegmentSpace``; the next segment gets the file of a collected one where that is possible.

    Only large files (``prewrite_bytes_min``), as long as the next segment, which no reader has open, and only in a log
    that syncs each group.

    Args:
        pool: bounds the memory for digests.

    Attributes:
        kept: the files that are kept.
        reused: how many segments were begun in such a file.
    """

    def __init__(self, pool: NotedPool, setting: Setting, directory: str) -> None:
        super().__init__(setting, directory)
        self._pool = pool
        self._used: UsedFile | None = None
        self._noted: dict[Segment, Noted | None] = {}
        self.kept = KeptFiles(setting.files, directory, KEPT_MAX)
        self.reused = 0

    def prepare(self, path: str, size: int, writer: SegmentWriter) -> Spare:
        """A kept file if there is one, else a new one."""
        kept = None if _is_lazy(writer) else self.kept.take()
        if kept is None:
            return super().prepare(path, size, writer)
        self._used = UsedFile(self._setting.files, kept, path, size)
        return _SpareOf(self._used, self._setting, path, size)

    def give_up(self) -> None:
        """Remove the kept file that was being prepared: its worker may never have begun."""
        used, self._used = self._used, None
        if used is not None:
            used.remove()

    def adopt(self, spare: Spare) -> UsedSpace:
        """The table of a re-used file, or new space."""
        used, self._used = self._used, None
        if used is None:
            return NEW_SPACE
        self.reused += 1
        return used.space

    def writer(
        self,
        file: File,
        segment: Segment,
        index: SegmentIndex,
        target: int,
        prepare_from: int,
        *,
        prewritten: bool = False,
    ) -> SegmentWriter:
        """A writer of whole blocks, which notes what it writes into a new segment."""
        noted = None
        is_new = segment.end == segment.header.data_start
        if is_new and (prewritten or segment.header.space.sectors):
            noted = self._noted[segment] = self._pool.make(segment.header.data_start, target)
            for old in list(self._noted)[:-NOTED_MAX]:
                del self._noted[old]
        return SegmentedBlockWriter(file, segment, index, target, prepare_from, prewritten=prewritten, noted=noted)

    def continues(self, segment: Segment) -> bool:
        """Any segment can be continued."""
        return True

    def keep(self, segment: Segment, writer: SegmentWriter, size: int) -> bool:
        """Keep the file of a segment if the next segment could be made in it."""
        noted = self._noted.pop(segment, None)
        long_enough = segment.end >= size - size % SECTOR_BYTES
        if _is_lazy(writer) or not long_enough or not self._setting.config.prewritten(size):
            return False
        return self.kept.keep(segment, noted)

    def drop(self) -> None:
        """Remove all files that are kept, and forget all digests."""
        self.kept.drop()
        self._noted.clear()

    def figures(self) -> dict[str, float]:
        """How many files are kept, and how many segments were begun in one."""
        return {"segments_kept": len(self.kept), "segments_reused": self.reused}


class _SpareOf(Spare):
    """A spare that a worker makes of a kept file."""

    def __init__(self, used: UsedFile, setting: Setting, path: str, size: int) -> None:
        super().__init__(setting.files, path, size, prewritten=False)
        self._used = used

    def make_file(self, wanted: Wanted) -> File:
        """Note durably what is in the file; see ``UsedFile.make``."""
        return self._used.make(wanted)


def _is_lazy(writer: SegmentWriter) -> bool:
    assert isinstance(writer, SegmentedBlockWriter), "this space makes no other"
    return writer.lazy
