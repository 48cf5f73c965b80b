"""A segment in memory, and the chain of segments of a log."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.services import File
from stelae_shared.log_files.term_runs import TermRuns
from stelae_wal_segmented.footer import decode_footer
from stelae_wal_segmented.format import SegmentHeader
from stelae_wal_segmented.index import IndexSummary, SegmentIndex


class Segment:
    """One segment file. Its attributes change only under the log's lock.

    The index of an open segment is in memory, 8 bytes for each entry. The index of a closed segment stays in its
    footer, where readers look up one page at a time. So closed segments cost no memory.

    Attributes:
        path: of the file.
        header: of the segment.
        first: the lowest index that the segment holds, or that it voids in earlier segments.
        end: offset where its data end.
        closed: it has a footer, or a successor that records where it ends. It takes no more entries.
        index: the offsets of its entries; ``None`` while they are only in the footer.
        summary: the rest of the footer; ``None`` while the index is in memory.
        index_version: how often the index moved to the footer or back. A reader that reads the footer without the lock
            may trust it only if this number has not changed.
        reader_count: number of readers and views that may read the file. After the log has removed the segment from its
            chain, no reader is added. Only then, and when the count is zero, may the file be written again.
    """

    __slots__ = ("closed", "end", "first", "header", "index", "index_version", "path", "reader_count", "summary")

    def __init__(self, path: str, header: SegmentHeader, index: SegmentIndex | IndexSummary, *, closed: bool = False):
        self.path = path
        self.header = header
        self.first = index.first
        self.end = index.end
        self.closed = closed
        self.index = index if isinstance(index, SegmentIndex) else None
        self.summary = index if isinstance(index, IndexSummary) else None
        self.index_version = 0
        self.reader_count = 0

    @property
    def footer(self) -> bool:
        """Whether the segment has a footer with the index."""
        return self.summary is not None

    def has_readers(self) -> bool:
        """Say whether a reader or a view may still read the file."""
        return self.reader_count > 0

    def mark_closed(self, summary: IndexSummary | None) -> None:
        """Record that the segment takes no more entries, and the summary of its footer if it has one."""
        self.closed = True
        self.index_version += 1
        if summary is not None:
            self.summary, self.index = summary, None

    def mark_open(self, index: SegmentIndex) -> None:
        """Record that the segment takes entries again. Called before its footer is removed."""
        self.index_version += 1
        self.summary, self.index = None, index
        self.closed = False


def load_footer(file: File, segment: Segment, summary: IndexSummary) -> SegmentIndex:
    """Return the complete index of a segment that has a footer.

    Raises:
        Corrupt: the footer fails its checksums.
        StorageError: the file cannot be read.
    """
    index = decode_footer(file.pread(file.size() - summary.end, summary.end), segment.header.nonce)
    if index is None:
        raise Corrupt("the footer fails its checksum", path=segment.path, offset=summary.end)
    return index


class EntryPosition(NamedTuple):
    """The segment of an entry; ``end`` is the first higher index that is in another segment."""

    segment: Segment
    end: int


class SegmentChain:
    """The segments of a log in order, and which of them holds the valid entry of each index.

    The entry of an index is in the last segment that begins at or below the index. A segment that begins at or below
    the beginning of an earlier one has voided all entries of the earlier one. Not safe for several threads."""

    __slots__ = ("_firsts", "_holders", "runs", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.runs = TermRuns()
        self._firsts: list[int] = []
        self._holders: list[Segment] = []

    def add(self, segment: Segment, runs: TermRuns) -> None:
        """Append a segment whose entries have these terms."""
        self.segments.append(segment)
        self.runs.cut(segment.first)
        self.runs.extend(runs)
        self._hold(segment)

    def void_from(self, from_index: int) -> None:
        """Record that the last segment has voided every entry at or above an index."""
        self.runs.cut(from_index)
        last = self.segments[-1]
        if from_index < last.first:
            last.first = from_index
            self._hold(last)

    def locate(self, index: int, last: int) -> EntryPosition:
        """Return where the entry of an index is. The log holds the index; ``last`` is the last index of the log."""
        position = bisect_right(self._firsts, index) - 1
        behind = position + 1
        end = self._firsts[behind] if behind < len(self._firsts) else last + 1
        return EntryPosition(self._holders[position], end)

    def op_id_at(self, index: int) -> OpId:
        """Return the op id of an index that the log holds."""
        return OpId(self.runs.term_at(index), index)

    def collectable(self, upto: int, last: int) -> tuple[int, int]:
        """Return how many segments may be removed, and the highest index in them (0 for none).

        Segments are removed from the front only. One that takes entries, or has an entry above ``upto``, stays."""
        highest, reader_count = 0, set(self._holders)
        for count, segment in enumerate(self.segments):
            if not segment.closed:
                return count, highest
            if segment in reader_count:
                end = self.locate(segment.first, last).end
                if end - 1 > upto:
                    return count, highest
                highest = max(highest, end - 1)
        return len(self.segments), highest

    def drop_front(self, count: int) -> list[Segment]:
        """Remove the first ``count`` segments from the chain and return them."""
        gone, self.segments = self.segments[:count], self.segments[count:]
        kept = set(self.segments)
        holders = [segment for segment in self._holders if segment in kept]
        self._holders, self._firsts = holders, [segment.first for segment in holders]
        return gone

    def _hold(self, segment: Segment) -> None:
        while self._firsts and self._firsts[-1] >= segment.first:
            self._firsts.pop()
            self._holders.pop()
        self._firsts.append(segment.first)
        self._holders.append(segment)
