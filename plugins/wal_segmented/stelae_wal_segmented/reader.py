"""Reads entries. Any thread may read, in parallel to appends: files only grow, and a reader looks up the valid entries
under the log's lock before it reads. From then on it counts as a reader of the segment. So the segment's file is not
used again before the read is over, even if the segment is collected meanwhile."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from stelae.spi.errors import CallerError, Compacted, Corrupt, StorageError
from stelae.spi.ids import OpId
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae_wal_segmented.footer import page_start, read_window
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    ENTRY_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    decode_group_header,
    end_mark_of,
    stored_bytes_at,
)
from stelae_wal_segmented.group import decode_entry
from stelae_wal_segmented.index import FIRST_OF_GROUP, IndexSummary, count_within
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """Consecutive entries to read from one segment."""

    segment: Segment
    first: int  #: Index of the first entry.
    offsets: list[int]  #: As in ``SegmentIndex.offsets``.
    end: int  #: Offset where the last entry ends.


def op_id_at(log: TabletLog, index: int) -> OpId:
    """Return the op id at an index between the base and the last entry, both included.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    with log.lock:
        if index < log.base.base.index:
            raise Compacted(log.base.base)
        if index > log.last.index:
            raise _past_the_end(log, index)
        return log.op_id_at(index)


def read(log: TabletLog, first: int, end: int, bytes_max: int) -> list[Entry]:
    """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    if end <= first:
        raise CallerError(f"log {log.log}: the range from {first} to {end} is empty")
    while (entries := _read(log, first, end, bytes_max)) is None:
        pass
    return entries


def _read(log: TabletLog, first: int, end: int, bytes_max: int) -> list[Entry] | None:
    """Do what ``read`` does; return ``None`` if what it met was void by then, and the caller must begin again."""
    entries: list[Entry] = []
    left = bytes_max
    while first < end and (left > 0 or not entries):
        location, piece = _locate(log, first, end), None
        try:
            with closing(log.context.files.open(location.segment.path)) as file:
                piece = _read_at(location, file, left)
                for entry in read_entries(file, piece) if piece is not None else ():
                    left -= entry.size_bytes
                    if left < 0 and entries:
                        return entries
                    entries.append(entry)
                    first += 1
        except FileNotFoundError:
            check_collected(log, location.segment)
        except Corrupt as error:
            if not _condemns(log, location, piece, error):
                return None
            raise
        finally:
            with log.lock:
                location.segment.reader_count -= 1
    return entries


@dataclass(frozen=True, slots=True)
class _EntryLocation:
    """The segment that has the entries ``first <= index < stop``.

    Attributes:
        segment: the segment.
        first, stop: the range of indexes.
        offsets: as of ``SegmentIndex.window``; ``None`` if they are in the footer.
        summary: the rest of the footer, if the offsets are in it.
        index_version: version of the segment's index. If it has changed after a page of the footer was read, that page
            must not be used.
    """

    segment: Segment
    first: int
    stop: int
    offsets: list[int] | None
    summary: IndexSummary | None
    index_version: int


def _locate(log: TabletLog, first: int, end: int) -> _EntryLocation:
    """Return the segment of the entries from ``first`` on, and count as its reader.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    with log.lock:
        if first <= log.base.base.index:
            raise Compacted(log.base.base)
        if end > log.last.index + 1:
            raise _past_the_end(log, end - 1)
        segment, behind = log.chain.locate(first, log.last.index)
        stop = min(end, behind)
        offsets = segment.index.window(first, stop) if segment.index is not None else None
        segment.reader_count += 1
        return _EntryLocation(segment, first, stop, offsets, segment.summary, segment.index_version)


def _read_at(location: _EntryLocation, file: File, bytes_max: int) -> SegmentRead | None:
    """Return what to read from a segment; ``None`` if its index changed meanwhile and the caller must look it up again.

    Raises:
        Corrupt: the footer fails its checksum.
        StorageError: the file cannot be read.
    """
    segment, offsets = location.segment, location.offsets
    if offsets is None:
        assert location.summary is not None, "an index is in memory or in the footer"
        offsets = read_window(file, segment.header.nonce, location.summary, location.first, location.stop)
        if segment.index_version != location.index_version:
            return None
    count = count_within(offsets, bytes_max)
    return SegmentRead(segment, location.first, offsets[:count], offsets[count] & ~FIRST_OF_GROUP)


def read_entries(file: File, piece: SegmentRead) -> Iterator[Entry]:
    """Yield entries after verifying their checksums, and the headers and end marks of their groups.

    Raises:
        Corrupt: a checksum fails, or another entry is found.
    """
    begin = piece.segment.header.data_start
    start = max(begin, (piece.offsets[0] & ~FIRST_OF_GROUP) - GROUP_HEADER_BYTES - END_MARK_BYTES)
    data = file.pread(piece.end - start, start)
    path, nonce = piece.segment.path, piece.segment.header.nonce
    for position, marked in enumerate(piece.offsets):
        offset = marked & ~FIRST_OF_GROUP
        at = offset - start
        if marked & FIRST_OF_GROUP:
            header_at = at - GROUP_HEADER_BYTES
            if header_at + start > begin:
                _check_end_mark(data, header_at, piece, start)
            if decode_group_header(data[header_at:at], nonce) is None:
                raise Corrupt("a group header fails its checksum", path=path, offset=start + header_at)
        entry = decode_entry(data, at, nonce, path, offset)
        if entry.op_id.index != piece.first + position:
            fact = f"found entry {entry.op_id} in place of entry {piece.first + position}"
            raise Corrupt(fact, path=path, offset=offset)
        yield entry
    if at + ENTRY_HEADER_BYTES + stored_bytes_at(data, at) + END_MARK_BYTES == len(data):
        _check_end_mark(data, len(data), piece, start)


def _check_end_mark(data: bytes, end: int, piece: SegmentRead, start: int) -> None:
    """Check the end mark of a group that ends at ``data[end]``; ``data`` begins at offset ``start`` of the file.

    Raises:
        Corrupt: the mark has changed.
    """
    at = end - END_MARK_BYTES
    if data[at:end] != end_mark_of(piece.segment.header.nonce):
        raise Corrupt("the end mark of a group has changed", path=piece.segment.path, offset=start + at)


def check_collected(log: TabletLog, segment: Segment) -> None:
    """Handle the missing file of a segment. Return if the segment was collected meanwhile; the caller looks up again.

    Raises:
        Corrupt: the log still has the segment, but the file is missing. The log is damaged from there on.
    """
    error = Corrupt("the segment is missing", path=segment.path, offset=0)
    with log.lock:
        if segment not in log.chain.segments:
            return
        log.note_damage(error, log.op_id_at(max(segment.first - 1, log.base.base.index)))
    raise error


def _condemns(log: TabletLog, location: _EntryLocation, piece: SegmentRead | None, error: Corrupt) -> bool:
    """Record damage that a reader met, if the log still has the entry where it was read. Otherwise return false.

    Meanwhile the entry may have been replaced or collected. After a full disk it may have been cut, and another one
    written. All of that is no damage.

    Args:
        piece: what was read; ``None`` if the footer is damaged, from the page of ``location.first`` on.
    """
    bad, offset = location.first, None
    if piece is not None:
        at = bisect_left(piece.offsets, error.offset or 0, key=lambda marked: marked & ~FIRST_OF_GROUP)
        at = min(at, len(piece.offsets) - 1)
        bad, offset = piece.first + at, piece.offsets[at]
    with log.lock:
        if not _is_still_there(log, location, bad, offset):
            return False
        if piece is None:
            assert location.summary is not None, "the footer was read"
            bad = page_start(location.summary, bad)
        log.note_damage(error, log.op_id_at(max(bad - 1, log.base.base.index)))
    return True


def _is_still_there(log: TabletLog, location: _EntryLocation, index: int, offset: int | None) -> bool:
    """Say whether the entry of an index is where a reader found it. The caller holds the lock."""
    if not log.base.base.index < index <= log.last.index:
        return False
    segment = log.chain.locate(index, log.last.index).segment
    # Recovery after a full disk makes new objects of all segments.
    if segment is not location.segment or segment.index_version != location.index_version:
        return False
    return segment.index is None or segment.index.window(index, index + 1)[0] == offset


def _past_the_end(log: TabletLog, index: int) -> StorageError | CallerError:
    corrupt = log.corrupt()
    if corrupt is not None:
        return corrupt
    return CallerError(f"log {log.log} ends at {log.last}: there is no entry {index}")
