"""A segment as the log knows it, and the chain of segments that make up a log."""

from __future__ import annotations

import threading
from bisect import bisect_right
from contextlib import closing
from typing import NamedTuple

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.services import Files
from stelae_wal_segmented.footer import TRAILER_BYTES, decode_footer, decode_trailer
from stelae_wal_segmented.format import SegmentHeader
from stelae_wal_segmented.index import SegmentIndex, TermRuns


class Segment:
    """One segment file. What changes of it changes under the log's lock.

    Attributes:
        path, header: which it is.
        first: lowest index that it holds, or voids in earlier segments.
        end: where its data end.
        closed: it has a footer, or a successor that says where it ends; no entry is added.
        footer: it has a footer, from which the index can be had again.
        index: where its entries are; ``None`` while it is left in the footer.
    """

    __slots__ = ("_seals", "closed", "end", "first", "footer", "header", "index", "path")

    def __init__(
        self, path: str, header: SegmentHeader, index: SegmentIndex, *, closed: bool = False, footer: bool = False
    ) -> None:
        self.path = path
        self.header = header
        self.first = index.first
        self.end = index.end
        self.closed = closed
        self.footer = footer
        self.index: SegmentIndex | None = None if footer else index
        self._seals = 0

    def sealed(self, *, footer: bool) -> None:
        """Take note that no more entries come, and that the index can be left in the footer."""
        self.closed = True
        self.footer = footer
        self._seals += 1
        self.forget_index()

    def unsealed(self, index: SegmentIndex) -> None:
        """Take note that the segment takes entries again; before its footer is cut away."""
        self.index = index
        self.closed = self.footer = False

    def forget_index(self) -> None:
        """Keep no index in memory if the footer has it."""
        if self.footer:
            self.index = None

    def load(self, files: Files, lock: threading.Lock) -> SegmentIndex:
        """Return the index, from the footer if need be. Any thread, without the lock.

        Raises:
            Corrupt: the footer is no longer as it was written.
            FileNotFoundError: the segment was collected meanwhile.
        """
        while True:
            with lock:
                if self.index is not None:
                    return self.index
                seals = self._seals
            found = read_footer(files, self.path, self.header.nonce)
            with lock:
                if self.index is None and self._seals == seals:
                    if found is None:
                        fact = "the footer fails its checksum"
                        raise Corrupt(fact, path=self.path, offset=self.end)
                    self.index = found


def read_footer(files: Files, path: str, nonce: int) -> SegmentIndex | None:
    """Return the index in the footer at the end of a file; ``None`` if there is no valid one."""
    with closing(files.open(path)) as file:
        size = file.size()
        trailer = decode_trailer(file.pread(TRAILER_BYTES, max(0, size - TRAILER_BYTES)), nonce)
        if trailer is None or trailer.data_end + trailer.size != size:
            return None
        return decode_footer(file.pread(trailer.size, trailer.data_end), nonce)


class Place(NamedTuple):
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

    def place_of(self, index: int, last: int) -> Place:
        """Say where the entry of an index is that the log holds; ``last`` is the log's last."""
        position = bisect_right(self._firsts, index) - 1
        behind = position + 1
        end = self._firsts[behind] if behind < len(self._firsts) else last + 1
        return Place(self._holders[position], end)

    def op_id_at(self, index: int) -> OpId:
        """Op id of an index that the log holds."""
        return OpId(self.runs.term_at(index), index)

    def collectable(self, upto: int, last: int) -> tuple[int, int]:
        """Return how many segments may go, and the highest index that is in them (0 for none).

        Only from the front, never one that takes entries, and none that holds one above ``upto``."""
        highest = 0
        for count, segment in enumerate(self.segments):
            if not segment.closed:
                return count, highest
            if segment in self._holders:
                end = self.place_of(segment.first, last).end
                if end - 1 > upto:
                    return count, highest
                highest = max(highest, end - 1)
        return len(self.segments), highest

    def drop_front(self, count: int) -> list[Segment]:
        """Take the first segments out and return them."""
        gone, self.segments = self.segments[:count], self.segments[count:]
        held = [segment for segment in self._holders if segment not in gone]
        self._holders, self._firsts = held, [segment.first for segment in held]
        return gone

    def _hold(self, segment: Segment) -> None:
        while self._firsts and self._firsts[-1] >= segment.first:
            self._firsts.pop()
            self._holders.pop()
        self._firsts.append(segment.first)
        self._holders.append(segment)
