"""A segment as the log knows it, and the chain of segments that make up a log."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.services import File
from stelae_wal_segmented.footer import decode_footer
from stelae_wal_segmented.format import SegmentHeader
from stelae_wal_segmented.index import SegmentIndex, Summary, TermRuns


class Segment:
    """One segment file. What changes of it changes under the log's lock.

    The index of an open segment is in memory, 8 bytes an entry. That of a closed one stays in its
    footer, where readers look up a page at a time, so that closed segments cost no memory.

    Attributes:
        path, header: which it is.
        first: lowest index that it holds, or voids in earlier segments.
        end: where its data end.
        closed: it has a footer, or a successor that says where it ends; no entry is added.
        index: where its entries are; ``None`` while that is left in the footer.
        summary: the rest of what the footer says; ``None`` while the index is in memory.
        turns: how often the index moved to the footer or back. Who looked at the footer without
            the lock saw what it said only if this number is still the same.
        holders: how many readers and views may read the file. Once the log has let go of the segment
            no more are added, and only then, at zero, may something else be written there.
    """

    __slots__ = ("closed", "end", "first", "header", "holders", "index", "path", "summary", "turns")

    def __init__(self, path: str, header: SegmentHeader, index: SegmentIndex | Summary, *, closed: bool = False):
        self.path = path
        self.header = header
        self.first = index.first
        self.end = index.end
        self.closed = closed
        self.index = index if isinstance(index, SegmentIndex) else None
        self.summary = index if isinstance(index, Summary) else None
        self.turns = 0
        self.holders = 0

    @property
    def footer(self) -> bool:
        """Say whether it has a footer, which has the index."""
        return self.summary is not None

    def held(self) -> bool:
        """Say whether a reader or a view may still read the file."""
        return self.holders > 0

    def sealed(self, summary: Summary | None) -> None:
        """Take note that no more entries come, and of the footer if there is one."""
        self.closed = True
        self.turns += 1
        if summary is not None:
            self.summary, self.index = summary, None

    def unsealed(self, index: SegmentIndex) -> None:
        """Take note that the segment takes entries again; before its footer is cut away."""
        self.turns += 1
        self.summary, self.index = None, index
        self.closed = False


def load_footer(file: File, segment: Segment, summary: Summary) -> SegmentIndex:
    """Return the whole index of a segment that has a footer.

    Raises:
        Corrupt: the footer is no longer as it was written.
        StorageError: the file cannot be read.
    """
    index = decode_footer(file.pread(file.size() - summary.end, summary.end), segment.header.nonce)
    if index is None:
        raise Corrupt("the footer fails its checksum", path=segment.path, offset=summary.end)
    return index


class EntryPosition(NamedTuple):
    """Where a range of entries stands; ``end`` is the first index behind it that is elsewhere."""

    segment: Segment
    end: int


class Chain:
    """The segments of a log in order, and which of them holds the winner of each index.

    An index is held by the last segment that begins at or below it: a segment that begins at or
    below the beginning of an earlier one has voided that one whole. Not safe for several threads."""

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

    def replaced(self, from_index: int) -> None:
        """The last segment has voided every entry at or above an index."""
        self.runs.cut(from_index)
        last = self.segments[-1]
        if from_index < last.first:
            last.first = from_index
            self._hold(last)

    def place_of(self, index: int, last: int) -> EntryPosition:
        """Say where the entry of an index is that the log holds; ``last`` is the log's last."""
        position = bisect_right(self._firsts, index) - 1
        behind = position + 1
        end = self._firsts[behind] if behind < len(self._firsts) else last + 1
        return EntryPosition(self._holders[position], end)

    def op_id_at(self, index: int) -> OpId:
        """Op id of an index that the log holds."""
        return OpId(self.runs.term_at(index), index)

    def collectable(self, upto: int, last: int) -> tuple[int, int]:
        """Return how many segments may go, and the highest index that is in them (0 for none).

        Only from the front, never one that takes entries, and none that holds one above ``upto``."""
        highest, holders = 0, set(self._holders)
        for count, segment in enumerate(self.segments):
            if not segment.closed:
                return count, highest
            if segment in holders:
                end = self.place_of(segment.first, last).end
                if end - 1 > upto:
                    return count, highest
                highest = max(highest, end - 1)
        return len(self.segments), highest

    def drop_front(self, count: int) -> list[Segment]:
        """Take the first segments out and return them."""
        gone, self.segments = self.segments[:count], self.segments[count:]
        kept = set(self.segments)
        held = [segment for segment in self._holders if segment in kept]
        self._holders, self._firsts = held, [segment.first for segment in held]
        return gone

    def _hold(self, segment: Segment) -> None:
        while self._firsts and self._firsts[-1] >= segment.first:
            self._firsts.pop()
            self._holders.pop()
        self._firsts.append(segment.first)
        self._holders.append(segment)
