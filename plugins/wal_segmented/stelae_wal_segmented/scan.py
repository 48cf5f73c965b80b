"""Reading a segment group by group, up to where it ends or is no longer valid.

A scan judges nothing. It says what it found: the index of the valid entries, how far the segment is
known to have been synced, and at what the scan stopped. ``stelae_wal_segmented.decisions`` says
what that means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from crc32c import crc32c

from stelae.spi.services import File
from stelae_wal_segmented.footer import TRAILER_BYTES, decode_footer, decode_head, decode_trailer
from stelae_wal_segmented.format import (
    ENTRY_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    EntryHeader,
    GroupHeader,
    SegmentHeader,
    decode_entry_header,
    decode_group_header,
    group_mark_of,
    salt_of,
)
from stelae_wal_segmented.index import LEADS, SegmentIndex
from stelae_wal_segmented.sectors import SECTOR_BYTES, Before, read_before, tail_sector

_WINDOW_BYTES = 256 << 10
_ZEROS = bytes(_WINDOW_BYTES)


class Stop(Enum):
    """At what a scan ended."""

    LIMIT = auto()
    """Where the data are known to end."""
    BLANK = auto()
    """The file ends here, or all that follows was never written."""
    FOOTER = auto()
    """A whole footer."""
    TORN = auto()
    """Something invalid, part of which was never written: the file ends in it, its last byte is zero, or a sector of
    it is zero or what stood there before; in space that was used before the sector behind it counts, too, and the tail
    of the record before is as good as zeros."""
    INVALID = auto()
    """Something invalid although all of it was written."""
    UNFIT = auto()
    """A valid group that does not fit to what stands before it."""


@dataclass(slots=True)
class Scan:
    """What a scan found.

    Attributes:
        index: the valid entries; ``index.end`` is where they end.
        synced: everything before this offset was durable once: groups say so.
        stop: at what the scan ended, and at which offset ``stop_at``.
        unfinished: offset and header of a last group of which only some entries are valid; the
            header has the number of those.
        unknown: the space was used before, and what stood in it is not known."""

    index: SegmentIndex
    synced: int
    stop_at: int
    stop: Stop = Stop.BLANK
    unfinished: tuple[int, GroupHeader] | None = None
    unknown: bool = False


class _Window:
    """Reads a file forwards in large pieces.

    Attributes:
        size: where the file ends, for whoever scans it.
        before: what stood in its space before, if that is known and of interest.
        tail: the sector that marks the end of a record there; zeros in new space.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self.before: Before | None = None
        self.tail = _ZEROS[:SECTOR_BYTES]
        self._start = 0
        self._data = b""
        self.size = file.size()

    def get(self, offset: int, size: int) -> bytes:
        position = offset - self._start
        if position < 0 or position + size > len(self._data):
            self._data = self._file.pread(max(size, _WINDOW_BYTES), offset)
            self._start = offset
            position = 0
        return self._data[position : position + size]

    def is_blank(self, start: int, end: int) -> bool:
        """Say whether no record was ever written there: every sector is zero, a tail, or what stood there before."""
        while start < end:
            stop = min(end, (start // _WINDOW_BYTES + 1) * _WINDOW_BYTES)
            if not self._is_zero(start, stop) and not self._is_old(start, stop):
                return False
            start = stop
        return True

    def is_unwritten(self, start: int, stop: int) -> bool:
        """Say whether bytes of one sector are as they are before a record is written, where another one may end."""
        piece, skip = self.get(start, stop - start), start % SECTOR_BYTES
        return piece in (_ZEROS[: len(piece)], self.tail[skip : skip + len(piece)])

    def was_never_reached(self, end: int) -> bool:
        """Say whether the write of what ends there, in space that was used before, did not come to its end.

        It would have written all of the next sector (see ``tail_behind``), also where that makes the file longer. Where
        the write before had filled its block with zeros, those tell, as in new space."""
        if self.before is None:
            return False
        at = -(-end // SECTOR_BYTES) * SECTOR_BYTES
        if at + SECTOR_BYTES > min(self.size, self.before.end):
            return at == self.before.end == self.size
        return not any(self.before.written(self.get(at, SECTOR_BYTES), at))

    def _is_zero(self, start: int, stop: int) -> bool:
        piece = self.get(start, stop - start)
        return piece == _ZEROS[: len(piece)]

    def _is_old(self, start: int, stop: int) -> bool:
        """Say whether sectors are what stood there before, if that is known, but for those that are zero or a tail."""
        at, behind = start // SECTOR_BYTES * SECTOR_BYTES, -(-stop // SECTOR_BYTES) * SECTOR_BYTES
        sectors: Iterable[int] = range(at, behind, SECTOR_BYTES)
        if self.before is not None:
            sectors = self.before.written(self.get(at, behind - at), at)
        return all(self.is_unwritten(max(start, one), min(stop, one + SECTOR_BYTES)) for one in sectors)


def scan_segment(file: File, header: SegmentHeader, limit: int | None = None) -> Scan:
    """Scan a segment from behind its header up to ``limit``, or as far as it is valid.

    Raises:
        StorageError: the file cannot be read.
    """
    start = header.previous.index + 1
    begin = header.data_start
    scan = Scan(SegmentIndex(start, begin, header.commit_hint), synced=begin, stop_at=begin)
    window = _Window(file)
    if limit is not None:
        window.size = min(window.size, limit)
    elif header.space.sectors:
        window.before = read_before(file, SEGMENT_HEADER_BYTES, header.space)
        window.tail = tail_sector(header.nonce)
        scan.unknown = window.before is None
    while _take_group(window, header.nonce, scan):
        pass
    if limit is not None and scan.index.end == limit:
        scan.stop = Stop.LIMIT
    elif limit is None:
        scan.synced = max(scan.synced, _synced_behind(window, header.nonce, scan.stop_at))
    return scan


def _take_group(window: _Window, nonce: int, scan: Scan) -> bool:
    """Take in the next group, or the entries that are valid of it; false when the scan ends."""
    at = scan.index.end
    group = decode_group_header(window.get(at, GROUP_HEADER_BYTES), nonce)
    if group is None:
        _stop_without_group(window, nonce, scan)
        return False
    if not _fits(group, scan.index):
        return _stop(scan, Stop.UNFIT, at)
    offset, salt = at + GROUP_HEADER_BYTES, salt_of(nonce)
    for position in range(group.count):
        entry, end = _entry_at(window, offset, salt)
        if entry is None:
            return _stop(scan, _torn_or_invalid(window, offset, end), offset)
        if position == 0 and group.replace_from:
            scan.index.replace(group.replace_from)
        if not _follows(entry, scan.index):
            return _stop(scan, Stop.UNFIT, offset)
        scan.index.add(entry.op_id.term, offset | LEADS if position == 0 else offset)
        scan.index.end = offset = end
        scan.unfinished = (at, replace(group, count=position + 1))
    if group.count == 0:
        scan.index.replace(group.replace_from)
        scan.index.end = offset
    scan.unfinished = None
    scan.index.commit_hint = max(scan.index.commit_hint, group.commit_hint)
    scan.synced = max(scan.synced, group.synced)
    return True


def _stop(scan: Scan, stop: Stop, at: int) -> bool:
    scan.stop = stop
    scan.stop_at = at
    return False


def _stop_without_group(window: _Window, nonce: int, scan: Scan) -> None:
    at = scan.index.end
    size = decode_head(window.get(at, GROUP_HEADER_BYTES), nonce)
    if size is None and window.is_blank(at, window.size):
        _stop(scan, Stop.BLANK, at)
        return
    if size is None:
        size = _size_by_trailer(window, nonce, at)
    if size is None:
        _stop(scan, _torn_or_invalid(window, at, at + GROUP_HEADER_BYTES), at)
    elif at + size <= window.size and decode_footer(window.get(at, size), nonce) is not None:
        _stop(scan, Stop.FOOTER, at)
    else:
        _stop(scan, _torn_or_invalid(window, at, at + size), at)


def _size_by_trailer(window: _Window, nonce: int, data_end: int) -> int | None:
    """Return the length of the footer that begins at ``data_end``, if a trailer tells of one."""
    start = max(data_end, window.size - TRAILER_BYTES)
    trailer = decode_trailer(window.get(start, TRAILER_BYTES), nonce)
    if trailer is None or trailer.data_end != data_end:
        return None
    return trailer.size


def _entry_at(window: _Window, offset: int, salt: int) -> tuple[EntryHeader | None, int]:
    """Return the entry's header if all of it is valid, and where it ends as far as is known."""
    body_at = offset + ENTRY_HEADER_BYTES
    header = decode_entry_header(window.get(offset, ENTRY_HEADER_BYTES), salt)
    if header is None:
        return None, body_at
    end = body_at + header.size
    if end > window.size or crc32c(window.get(body_at, header.size), salt) != header.body_crc:
        return None, end
    return header, end


def _fits(group: GroupHeader, index: SegmentIndex) -> bool:
    does_something = group.count > 0 or group.replace_from > 0
    return does_something and group.synced <= index.end and group.replace_from <= index.next


def _follows(entry: EntryHeader, index: SegmentIndex) -> bool:
    if entry.op_id.index != index.next:
        return False
    return not index.offsets or entry.op_id.term >= index.runs.term_at(index.next - 1)


def _torn_or_invalid(window: _Window, start: int, end: int) -> Stop:
    """Tell a record that was never written as a whole from one that changed afterwards.

    Space is zero, the tail of the record before, or what stood there before, until it is written: so is what a crash
    left out, by sectors, or from some byte on to the end."""
    if end > window.size or window.is_unwritten(end - 1, end) or window.was_never_reached(end):
        return Stop.TORN
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if window.is_blank(start, stop):
            return Stop.TORN
        start = stop
    return Stop.INVALID


def _synced_behind(window: _Window, nonce: int, start: int) -> int:
    """Return the highest synced offset that any group behind ``start`` records."""
    mark = group_mark_of(nonce).to_bytes(8, "little")
    highest = 0
    while start < window.size:
        piece = window.get(start, min(_WINDOW_BYTES, window.size - start))
        found = piece.find(mark)
        while found >= 0:
            group = decode_group_header(window.get(start + found, GROUP_HEADER_BYTES), nonce)
            if group is not None:
                highest = max(highest, group.synced)
            piece = window.get(start, min(_WINDOW_BYTES, window.size - start))
            found = piece.find(mark, found + 1)
        if len(piece) < _WINDOW_BYTES:
            break
        start += len(piece) - len(mark) + 1
    return highest
