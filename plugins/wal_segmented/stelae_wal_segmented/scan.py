"""Scans a segment group by group, up to its end or to the first invalid bytes.

A scan does not decide anything. It reports the index of the valid entries, the offset up to which the segment was
synced, and why the scan stopped. ``stelae_wal_segmented.decisions`` says what that means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.services import File
from stelae_wal_segmented.footer import TRAILER_BYTES, decode_footer, decode_head, decode_trailer
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    ENTRY_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    EntryHeader,
    GroupHeader,
    SegmentHeader,
    decode_entry_header,
    decode_group_header,
    end_mark_of,
    footer_mark_of,
    group_mark_of,
    salt_of,
)
from stelae_wal_segmented.index import FIRST_OF_GROUP, SegmentIndex
from stelae_wal_segmented.sectors import SECTOR_BYTES, SectorTable, read_sector_table

_WINDOW_BYTES = 256 << 10
_ZEROS = bytes(_WINDOW_BYTES)


class SegmentScanStop(Enum):
    """Why a scan stopped."""

    LIMIT = auto()
    """The scan reached the known end of the data."""
    BLANK = auto()
    """The file ends here, or everything behind was never written."""
    FOOTER = auto()
    """A complete footer begins here."""
    TORN = auto()
    """Invalid bytes, part of which were never written. Their group has no end mark, or one of the invalid sectors, as
    far as it belongs to the group, is zero or holds what it held before."""
    INVALID = auto()
    """Invalid bytes that were written completely, or that this engine did not write."""
    UNFIT = auto()
    """A valid group that does not continue what is before it."""


class UnfinishedGroup(NamedTuple):
    """A last group that is incomplete: only some entries are valid, or all are and the end mark is missing.

    Attributes:
        at: offset of the group.
        group: header of the group.
        entries: number of its valid entries.
    """

    at: int
    group: GroupHeader
    entries: int


@dataclass(slots=True)
class SegmentScan:
    """The result of a scan.

    Attributes:
        index: the valid entries; they end at ``index.end``.
        synced: everything before this offset was durable once, as groups record.
        stop_at: offset at which the scan stopped.
        stop: why it stopped.
        unfinished: the group at which it stopped, if ``index`` includes part of this group."""

    index: SegmentIndex
    synced: int
    stop_at: int
    stop: SegmentScanStop = SegmentScanStop.BLANK
    unfinished: UnfinishedGroup | None = None


class _ScanWindow:
    """Reads a file forwards in large pieces.

    Attributes:
        size: the offset at which the scan ends: the end of the file or a limit.
        before: digests of what the file's space held before, if they are known and needed.
        used: the space of the file was used before.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self.before: SectorTable | None = None
        self.used = False
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
        """Say whether a range was never written: every sector is zero or holds what it held before."""
        while start < end:
            stop = min(end, (start // _WINDOW_BYTES + 1) * _WINDOW_BYTES)
            if not self._is_zero(start, stop) and not self._is_old(start, stop):
                return False
            start = stop
        return True

    def has_blank_sector(self, start: int, end: int, within: tuple[int, int]) -> bool:
        """Say whether a sector of the range from ``start`` to ``end`` was never written.

        Args:
            within: begin and end of the group that the range is part of. Bytes of other groups in a sector do not
                count.
        """
        begin, stop = within
        for sector in range(start // SECTOR_BYTES * SECTOR_BYTES, end, SECTOR_BYTES):
            if self.is_blank(max(sector, begin), min(sector + SECTOR_BYTES, stop)):
                return True
        return False

    def find(self, mark: bytes, start: int) -> Iterator[int]:
        """Yield the offsets of a mark from ``start`` on. The caller may read the window between two results."""
        while start < self.size:
            piece = self.get(start, min(_WINDOW_BYTES, self.size - start))
            found = piece.find(mark)
            while found >= 0:
                yield start + found
                found = piece.find(mark, found + 1)
            if len(piece) < _WINDOW_BYTES:
                return
            start += len(piece) - len(mark) + 1

    def _is_zero(self, start: int, stop: int) -> bool:
        piece = self.get(start, stop - start)
        return piece == _ZEROS[: len(piece)]

    def _is_old(self, start: int, stop: int) -> bool:
        """Say whether every sector is zero or holds what it held before, as far as that is known."""
        at, behind = start // SECTOR_BYTES * SECTOR_BYTES, -(-stop // SECTOR_BYTES) * SECTOR_BYTES
        sectors: Iterable[int] = range(at, behind, SECTOR_BYTES)
        if self.before is not None:
            sectors = self.before.written(self.get(at, behind - at), at)
        return all(self._is_zero(max(start, one), min(stop, one + SECTOR_BYTES)) for one in sectors)


def scan_segment(file: File, header: SegmentHeader, limit: int | None = None) -> SegmentScan:
    """Scan a segment from its first group up to ``limit``, or as far as it is valid.

    Raises:
        StorageError: the file cannot be read.
    """
    start = header.previous.index + 1
    begin = header.data_start
    scan = SegmentScan(SegmentIndex(start, begin, header.commit_hint), synced=begin, stop_at=begin)
    window = _ScanWindow(file)
    if limit is not None:
        window.size = min(window.size, limit)
    elif header.space.sectors:
        window.before = read_sector_table(file, SEGMENT_HEADER_BYTES, header.space)
        window.used = True
    while _take_group(window, header.nonce, scan):
        pass
    if limit is not None and scan.index.end == limit:
        scan.stop = SegmentScanStop.LIMIT
    elif limit is None:
        scan.synced = max(scan.synced, _synced_behind(window, header.nonce, scan.stop_at))
    return scan


def _take_group(window: _ScanWindow, nonce: int, scan: SegmentScan) -> bool:
    """Add the next group, or the valid part of it, to the scan; return false when the scan ends."""
    at = scan.index.end
    group = decode_group_header(window.get(at, GROUP_HEADER_BYTES), nonce)
    if group is None:
        _stop_without_group(window, nonce, scan)
        return False
    if not _fits(group, scan.index):
        return _stop(scan, SegmentScanStop.UNFIT, at)
    offset, salt, mark_at = at + GROUP_HEADER_BYTES, salt_of(nonce), at + group.size - END_MARK_BYTES
    for position in range(group.count):
        entry, end = _entry_at(window, offset, min(mark_at, window.size), salt)
        if entry is None:
            return _stop(scan, _torn_or_invalid(window, nonce, offset, end, (at, at + group.size)), offset)
        if position == 0 and group.replace_from:
            scan.index.replace(group.replace_from)
        if not _follows(entry, scan.index):
            return _stop(scan, SegmentScanStop.UNFIT, offset)
        scan.index.add(entry.op_id.term, offset | FIRST_OF_GROUP if position == 0 else offset)
        scan.index.end = offset = end
        scan.unfinished = UnfinishedGroup(at, group, position + 1)
    if group.count == 0:
        scan.index.replace(group.replace_from)
        scan.index.end = offset
        scan.unfinished = UnfinishedGroup(at, group, 0)
    if offset != mark_at:
        return _stop(scan, SegmentScanStop.UNFIT, offset)
    if not _is_ended(window, nonce, at + group.size):
        return _stop(scan, SegmentScanStop.TORN, offset)
    scan.index.end = at + group.size
    scan.unfinished = None
    scan.index.commit_hint = max(scan.index.commit_hint, group.commit_hint)
    scan.synced = max(scan.synced, group.synced)
    return True


def _stop(scan: SegmentScan, stop: SegmentScanStop, at: int) -> bool:
    scan.stop = stop
    scan.stop_at = at
    return False


def _stop_without_group(window: _ScanWindow, nonce: int, scan: SegmentScan) -> None:
    """Record what is at an offset where no valid group begins: blank space, a footer, or an invalid group or footer."""
    at = scan.index.end
    size = decode_head(window.get(at, GROUP_HEADER_BYTES), nonce)
    if size is None and window.is_blank(at, window.size):
        _stop(scan, SegmentScanStop.BLANK, at)
        return
    if size is None:
        size = _size_by_trailer(window, nonce, at)
    if size is not None:
        _stop(scan, _stop_in_footer(window, nonce, at, at + size), at)
        return
    found = next(window.find(end_mark_of(nonce), at + GROUP_HEADER_BYTES), None)
    if found is None:
        _stop(scan, SegmentScanStop.TORN if _may_begin(window, nonce, at) else SegmentScanStop.INVALID, at)
        return
    # Without a sync between two groups, the later one may be on the disk although this one was never written.
    behind = at + GROUP_HEADER_BYTES
    if window.get(behind - 1, 1) == b"\0" or window.has_blank_sector(at, behind, (at, found + END_MARK_BYTES)):
        _stop(scan, SegmentScanStop.TORN, at)
    else:
        _stop(scan, SegmentScanStop.INVALID, at)


def _stop_in_footer(window: _ScanWindow, nonce: int, at: int, end: int) -> SegmentScanStop:
    """Judge a footer. It was written completely if it ends with the end mark, in which one bit may have changed."""
    if end > window.size:
        return SegmentScanStop.TORN
    if decode_footer(window.get(at, end - at), nonce) is not None:
        return SegmentScanStop.FOOTER
    found, mark = window.get(end - END_MARK_BYTES, END_MARK_BYTES), end_mark_of(nonce)
    differing = int.from_bytes(found, "little") ^ int.from_bytes(mark, "little")
    if differing.bit_count() > 1 or window.has_blank_sector(at, end, (at, end)):
        return SegmentScanStop.TORN
    return SegmentScanStop.INVALID


def _may_begin(window: _ScanWindow, nonce: int, at: int) -> bool:
    """Say whether a crash may have left the first bytes of a group or a footer here, or none of its bytes.

    In re-used space any bytes may follow a group that was torn in the zeros behind it."""
    marks = 0, group_mark_of(nonce), footer_mark_of(nonce)
    return window.used or window.get(at, 1) in [mark.to_bytes(8, "little")[:1] for mark in marks]


def _size_by_trailer(window: _ScanWindow, nonce: int, data_end: int) -> int | None:
    """Return the length of the footer that begins at ``data_end``, if the file ends with its trailer."""
    start = max(data_end, window.size - TRAILER_BYTES)
    trailer = decode_trailer(window.get(start, TRAILER_BYTES), nonce)
    if trailer is None or trailer.data_end != data_end:
        return None
    return trailer.size


def _entry_at(window: _ScanWindow, offset: int, limit: int, salt: int) -> tuple[EntryHeader | None, int]:
    """Return the header of an entry that is valid and ends before ``limit``, else ``None``; and where the entry ends.

    The end of an invalid entry is given as far as it is known."""
    body_at = offset + ENTRY_HEADER_BYTES
    header = decode_entry_header(window.get(offset, ENTRY_HEADER_BYTES), salt) if body_at <= limit else None
    if header is None:
        return None, min(body_at, limit)
    end = body_at + header.size
    if end > limit or crc32c(window.get(body_at, header.size), salt) != header.body_crc:
        return None, min(end, limit)
    return header, end


def _fits(group: GroupHeader, index: SegmentIndex) -> bool:
    empty = group.size == GROUP_HEADER_BYTES + END_MARK_BYTES
    does_something = group.count > 0 or (group.replace_from > 0 and empty)
    return does_something and group.synced <= index.end and group.replace_from <= index.next


def _follows(entry: EntryHeader, index: SegmentIndex) -> bool:
    if entry.op_id.index != index.next:
        return False
    return not index.offsets or entry.op_id.term >= index.runs.term_at(index.next - 1)


def _is_ended(window: _ScanWindow, nonce: int, end: int) -> bool:
    """Say whether a group that ends at ``end`` has its end mark."""
    return end <= window.size and window.get(end - END_MARK_BYTES, END_MARK_BYTES) == end_mark_of(nonce)


def _torn_or_invalid(window: _ScanWindow, nonce: int, start: int, end: int, group: tuple[int, int]) -> SegmentScanStop:
    """Tell a group that was never written completely from one that changed later.

    A crash leaves out the end of a group or some of its sectors. Such sectors hold what they held before.

    Args:
        start, end: begin and end of the invalid part of the group.
        group: begin and end of the group."""
    if not _is_ended(window, nonce, group[1]) or window.has_blank_sector(start, end, group):
        return SegmentScanStop.TORN
    return SegmentScanStop.INVALID


def _synced_behind(window: _ScanWindow, nonce: int, start: int) -> int:
    """Return the highest offset that was synced, as the groups and footers behind ``start`` show.

    A group records its synced offset. A footer is written when everything before it is durable."""
    highest = 0
    for found in window.find(group_mark_of(nonce).to_bytes(8, "little"), start):
        group = decode_group_header(window.get(found, GROUP_HEADER_BYTES), nonce)
        if group is not None:
            highest = max(highest, group.synced)
    for found in window.find(footer_mark_of(nonce).to_bytes(8, "little"), start):
        if decode_head(window.get(found, GROUP_HEADER_BYTES), nonce) is not None:
            highest = max(highest, found)
    return highest
