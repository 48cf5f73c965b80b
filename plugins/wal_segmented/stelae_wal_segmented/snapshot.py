"""An immutable view of a log: the offsets of its entries, and open files to read them from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stelae.spi.errors import CallerError, Compacted, Corrupt
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae.spi.wal import SnapshotUnit, WalSnapshot
from stelae_wal_segmented.footer import read_window
from stelae_wal_segmented.index import FIRST_OF_GROUP, PAGE_ENTRIES, IndexSummary, count_within
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.reader import SegmentRead, check_collected, read_entries
from stelae_wal_segmented.segment import Segment, load_footer

_READ_BYTES = 1 << 20


@dataclass(slots=True)
class SnapshotSegment:
    """The entries of one segment in a view.

    Attributes:
        segment: the segment. The view ignores later changes of it.
        first, stop: the range of indexes, ``stop`` excluded.
        offsets: offsets of the entries and the end of the last one; ``None`` if they are in the footer.
        summary: the rest of that footer.
        index_version: version of the segment's index when the view was taken.
        file: the open file of the segment.
    """

    segment: Segment
    first: int
    stop: int
    offsets: array[int] | None
    summary: IndexSummary | None
    index_version: int
    file: File | None = None

    def window(self, index: int) -> list[int]:
        """Do what ``SegmentIndex.window`` does."""
        if self.offsets is not None:
            position = index - self.first
            return self.offsets[position : min(position + PAGE_ENTRIES + 1, len(self.offsets))].tolist()
        assert self.file is not None and self.summary is not None, "a part is opened before it is read"
        return read_window(self.file, self.segment.header.nonce, self.summary, index, self.stop)


class SegmentedSnapshot(WalSnapshot):
    """A view that holds its files open, so it stays readable when the segments are removed.

    It counts as a reader of its segments, so their files are not used again. In memory it has the offsets of the newest
    segment. Those of older segments stay in their footers, which no longer change."""

    def __init__(self, log: TabletLog, parts: Sequence[SnapshotSegment]) -> None:
        self._log = log
        self._parts = list(parts)

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """Empty: a copy of this log gets entries, not files."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Every entry of the view in index order, checksums verified."""
        for part in list(self._parts):
            index = part.first
            while index < part.stop:
                offsets = part.window(index)
                count = count_within(offsets, _READ_BYTES)
                piece = SegmentRead(part.segment, index, offsets[:count], offsets[count] & ~FIRST_OF_GROUP)
                assert part.file is not None, "a view has every file open"
                yield from read_entries(part.file, piece)
                index += count

    def release(self) -> None:
        """Close the files and stop being a reader of the segments. Releasing twice is harmless."""
        parts, self._parts = self._parts, []
        for part in parts:
            if part.file is not None:
                part.file.close()
        with self._log.lock:
            for part in parts:
                part.segment.reader_count -= 1


def take_snapshot(log: TabletLog, first: int) -> SegmentedSnapshot:
    """Take a view from ``first`` to the present last entry.

    Raises:
        Compacted, CallerError, Corrupt: as ``read``.
    """
    while True:
        parts = _parts(log, first)
        try:
            if _opened(log, parts):
                return SegmentedSnapshot(log, parts)
        except BaseException:
            SegmentedSnapshot(log, parts).release()
            raise
        SegmentedSnapshot(log, parts).release()  # The log changed meanwhile: try again.


def _parts(log: TabletLog, first: int) -> list[SnapshotSegment]:
    """Return the segments of the entries from ``first`` on, as of one moment, and count as their reader."""
    with log.lock:
        end = log.last.index + 1
        if first <= log.base.base.index:
            raise Compacted(log.base.base)
        if first > end:
            raise CallerError(f"log {log.log} ends at {end - 1}: no view begins at {first}")
        parts: list[SnapshotSegment] = []
        while first < end:
            segment, stop = log.chain.locate(first, log.last.index)
            offsets: array[int] | None = None
            if segment.index is not None:
                offsets = segment.index.offsets[first - segment.index.first : stop - segment.index.first + 1]
                if stop == segment.index.next:
                    offsets.append(segment.index.end)
            segment.reader_count += 1
            parts.append(SnapshotSegment(segment, first, stop, offsets, segment.summary, segment.index_version))
            first = stop
        return parts


def _opened(log: TabletLog, parts: Sequence[SnapshotSegment]) -> bool:
    """Open the files; return false if the log changed meanwhile and the view has to be taken again."""
    for part in parts:
        try:
            part.file = log.context.files.open(part.segment.path)
        except FileNotFoundError:
            check_collected(log, part.segment)
            return False
    if not parts or parts[-1].summary is None:
        return True
    # The last segment may take entries again later, without its footer. So its offsets are copied.
    newest, summary = parts[-1], parts[-1].summary
    assert newest.file is not None, "it was opened"
    try:
        index = load_footer(newest.file, newest.segment, summary)
    except Corrupt:
        if newest.segment.index_version != newest.index_version:
            return False
        raise
    newest.offsets = index.offsets[newest.first - index.first : newest.stop - index.first + 1]
    if newest.stop == index.next:
        newest.offsets.append(index.end)
    return newest.segment.index_version == newest.index_version
