"""Makes segments in the files of collected segments, and decides which files a log keeps for that."""

from __future__ import annotations

from stelae.spi.services import File
from stelae_shared.log_files.spare_file import SpareFile, Wanted
from stelae_wal_segmented.fast.kept_files import KeptFiles, ReusedFile
from stelae_wal_segmented.fast.write_digests import DigestPool, WriteDigests
from stelae_wal_segmented.fast.writer import SegmentedBlockWriter
from stelae_wal_segmented.format import NEW_SPACE
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.sectors import SECTOR_BYTES, ReusedSpace
from stelae_wal_segmented.segment import Segment
from stelae_wal_segmented.space import SegmentedContext, SegmentSpace
from stelae_wal_segmented.writer import SegmentWriter

KEPT_MAX = 2
"""Number of files of collected segments that a log keeps: one becomes the next segment while another is filled. They
take 128 MiB of the disk with the default sizes."""

DIGESTED_SEGMENTS_MAX = 4
"""Number of newest segments of a log whose digests stay in memory, half a megabyte for 64 MiB. A log that is collected
as it grows has no more segments. The file of an older segment is read before it is used again."""


class ReusedSegments(SegmentSpace):
    """A ``SegmentSpace`` whose next segment gets the file of a collected one where that is possible.

    A file is used again if it is large (``prewrite_bytes_min``), at least as long as the next segment, and no reader
    has it open. The log must sync each group.

    Args:
        pool: bounds the memory for digests.
        context: what all logs of the engine share.
        directory: of the log.

    Attributes:
        kept: the kept files.
        reused: number of segments that were begun in such a file.
    """

    def __init__(self, pool: DigestPool, context: SegmentedContext, directory: str) -> None:
        super().__init__(context, directory)
        self._pool = pool
        self._used: ReusedFile | None = None
        self._noted: dict[Segment, WriteDigests | None] = {}
        self.kept = KeptFiles(context.files, directory, KEPT_MAX)
        self.reused = 0

    def prepare(self, path: str, size: int, writer: SegmentWriter) -> SpareFile:
        """Return a kept file if there is one, else a new file."""
        kept = None if _is_lazy(writer) else self.kept.take()
        if kept is None:
            return super().prepare(path, size, writer)
        self._used = ReusedFile(self._context.files, kept, path, size)
        return _ReusedSpare(self._used, self._context, path, size)

    def give_up(self) -> None:
        """Remove the kept file that was being prepared, because its worker may never begin."""
        used, self._used = self._used, None
        if used is not None:
            used.remove()

    def adopt(self, spare: SpareFile) -> ReusedSpace:
        """Return the space of a re-used file with its table, or new space."""
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
        """Return a writer of whole blocks, which computes the digests of what it writes to a new segment."""
        noted = None
        is_new = segment.end == segment.header.data_start
        if is_new and (prewritten or segment.header.space.sectors):
            noted = self._noted[segment] = self._pool.make(segment.header.data_start, target)
            for old in list(self._noted)[:-DIGESTED_SEGMENTS_MAX]:
                del self._noted[old]
        return SegmentedBlockWriter(file, segment, index, target, prepare_from, prewritten=prewritten, noted=noted)

    def continues(self, segment: Segment) -> bool:
        """Return true: this engine can append to any segment."""
        return True

    def keep(self, segment: Segment, writer: SegmentWriter, size: int) -> bool:
        """Keep the file of a segment if the next segment can be made in it."""
        noted = self._noted.pop(segment, None)
        long_enough = segment.end >= size - size % SECTOR_BYTES
        if _is_lazy(writer) or not long_enough or not self._context.config.prewritten(size):
            return False
        return self.kept.keep(segment, noted)

    def drop(self) -> None:
        """Remove all kept files and forget all digests."""
        self.kept.drop()
        self._noted.clear()

    def figures(self) -> dict[str, float]:
        """Return how many files are kept, and how many segments were begun in one."""
        return {"segments_kept": len(self.kept), "segments_reused": self.reused}


class _ReusedSpare(SpareFile):
    """A spare file that a worker makes from a kept file."""

    def __init__(self, used: ReusedFile, context: SegmentedContext, path: str, size: int) -> None:
        super().__init__(context.files, path, size, prewritten=False)
        self._used = used

    def make_file(self, wanted: Wanted) -> File:
        """Write the digests of the file's sectors durably; see ``ReusedFile.make``."""
        return self._used.make(wanted)


def _is_lazy(writer: SegmentWriter) -> bool:
    assert isinstance(writer, SegmentedBlockWriter), "ReusedSegments makes no other writers"
    return writer.lazy
