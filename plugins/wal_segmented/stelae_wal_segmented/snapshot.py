"""An immutable view of a log: where its entries stand, and open files to read them from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stelae.spi.errors import CallerError, Compacted, Corrupt
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae.spi.wal import SnapshotUnit, WalSnapshot
from stelae_wal_segmented.footer import read_window
from stelae_wal_segmented.index import LEADS, PAGE_ENTRIES, Summary, fitting
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.reader import SegmentRead, check_collected, read_piece
from stelae_wal_segmented.segment import Segment, load_footer

_PIECE_BYTES = 1 << 20


@dataclass(slots=True)
class SnapshotSegment:
    """What one segment gives to a view.

    Attributes:
        segment: which; what changes of it later is not looked at.
        first, stop: indexes of its entries, ``stop`` excluded.
        offsets: where they are, and where the last of them ends; ``None`` if the footer says so.
        summary: of that footer.
        turns: of the segment when it was looked at.
        file: the segment, open.
    """

    segment: Segment
    first: int
    stop: int
    offsets: array[int] | None
    summary: Summary | None
    turns: int
    file: File | None = None

    def window(self, index: int) -> list[int]:
        """As ``SegmentIndex.window``."""
        if self.offsets is not None:
            position = index - self.first
            return self.offsets[position : min(position + PAGE_ENTRIES + 1, len(self.offsets))].tolist()
        assert self.file is not None and self.summary is not None, "a part is opened before it is read"
        return read_window(self.file, self.segment.header.nonce, self.summary, index, self.stop)


class SegmentedSnapshot(WalSnapshot):
    """Holds its files open, so that removing their names takes nothing from it, and its segments held, so
    that no file of them is used again.

    In memory it has the offsets of the newest segment; those of older ones stay in their footers,
    which no longer change."""

    def __init__(self, log: TabletLog, parts: Sequence[SnapshotSegment]) -> None:
        self._log = log
        self._parts = list(parts)

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """None: segments cross as entries, not as files."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Every entry of the view in index order, checksums verified."""
        for part in list(self._parts):
            index = part.first
            while index < part.stop:
                offsets = part.window(index)
                count = fitting(offsets, _PIECE_BYTES)
                piece = SegmentRead(part.segment, index, offsets[:count], offsets[count] & ~LEADS)
                assert part.file is not None, "a view has every file open"
                yield from read_piece(part.file, piece)
                index += count

    def release(self) -> None:
        """Close the files and hold nothing any more. Releasing twice is harmless."""
        parts, self._parts = self._parts, []
        for part in parts:
            if part.file is not None:
                part.file.close()
        with self._log.lock:
            for part in parts:
                part.segment.holders -= 1


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
        SegmentedSnapshot(log, parts).release()  # The log changed meanwhile: look again.


def _parts(log: TabletLog, first: int) -> list[SnapshotSegment]:
    """Say which segments have the entries from ``first`` on, all at one moment, and hold them."""
    with log.lock:
        end = log.last.index + 1
        if first <= log.base.base.index:
            raise Compacted(log.base.base)
        if first > end:
            raise CallerError(f"log {log.log} ends at {end - 1}: no view begins at {first}")
        parts: list[SnapshotSegment] = []
        while first < end:
            segment, stop = log.chain.place_of(first, log.last.index)
            offsets: array[int] | None = None
            if segment.index is not None:
                offsets = segment.index.offsets[first - segment.index.first : stop - segment.index.first + 1]
                if stop == segment.index.next:
                    offsets.append(segment.index.end)
            segment.holders += 1
            parts.append(SnapshotSegment(segment, first, stop, offsets, segment.summary, segment.turns))
            first = stop
        return parts


def _opened(log: TabletLog, parts: Sequence[SnapshotSegment]) -> bool:
    """Open the files; false if the log changed meanwhile in a way that matters."""
    for part in parts:
        try:
            part.file = log.setting.files.open(part.segment.path)
        except FileNotFoundError:
            check_collected(log, part.segment)
            return False
    if not parts or parts[-1].summary is None:
        return True
    # The last one may go on later, its footer cut away: its offsets are copied.
    newest, summary = parts[-1], parts[-1].summary
    assert newest.file is not None, "it was opened"
    try:
        index = load_footer(newest.file, newest.segment, summary)
    except Corrupt:
        if newest.segment.turns != newest.turns:
            return False
        raise
    newest.offsets = index.offsets[newest.first - index.first : newest.stop - index.first + 1]
    if newest.stop == index.next:
        newest.offsets.append(index.end)
    return newest.segment.turns == newest.turns
