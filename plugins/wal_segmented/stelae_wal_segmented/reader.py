"""Reading entries back. Any thread, beside appends: files only grow, and winners are looked up
under the log's lock before anything is read. A segment is held from then on until it was read, so that
nothing else is written into its file if it is collected meanwhile."""

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
from stelae_wal_segmented.index import LEADS, Summary, fitting
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """Entries that stand in one segment: offsets as in its index, and where the last one ends."""

    segment: Segment
    first: int
    offsets: list[int]
    end: int


def op_id_at(log: TabletLog, index: int) -> OpId:
    """Return the op id at an index, from the base's to the last one.

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
    entries: list[Entry] = []
    left = bytes_max
    while first < end and (left > 0 or not entries):
        place = _place_of(log, first, end)
        try:
            with closing(log.setting.files.open(place.segment.path)) as file:
                piece = _piece_at(log, place, file, left)
                for entry in _verified(log, file, piece) if piece is not None else ():
                    left -= entry.size_bytes
                    if left < 0 and entries:
                        return entries
                    entries.append(entry)
                    first += 1
        except FileNotFoundError:
            check_collected(log, place.segment)
        finally:
            with log.lock:
                place.segment.holders -= 1
    return entries


@dataclass(frozen=True, slots=True)
class _Place:
    """The segment that has the entries from ``first`` on, below ``stop``.

    ``offsets`` are those of a window, unless they are in the footer; then ``summary`` is of that
    footer, and ``turns`` tells whether it still was the same when its page had been read."""

    segment: Segment
    first: int
    stop: int
    offsets: list[int] | None
    summary: Summary | None
    turns: int


def _place_of(log: TabletLog, first: int, end: int) -> _Place:
    """Say where the entries from ``first`` on stand, as far as they are in one segment, and hold that.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    with log.lock:
        if first <= log.base.base.index:
            raise Compacted(log.base.base)
        if end > log.last.index + 1:
            raise _past_the_end(log, end - 1)
        segment, behind = log.chain.place_of(first, log.last.index)
        stop = min(end, behind)
        offsets = segment.index.window(first, stop) if segment.index is not None else None
        segment.holders += 1
        return _Place(segment, first, stop, offsets, segment.summary, segment.turns)


def _piece_at(log: TabletLog, place: _Place, file: File, bytes_max: int) -> SegmentRead | None:
    """Return what to read there; ``None`` if the segment changed meanwhile: look again.

    Raises:
        Corrupt: the footer is not as it was written; the log is damaged from that page on.
        StorageError: the file cannot be read.
    """
    segment, offsets = place.segment, place.offsets
    if offsets is None:
        assert place.summary is not None, "an index is in memory or in the footer"
        try:
            offsets = read_window(file, segment.header.nonce, place.summary, place.first, place.stop)
        except Corrupt as error:
            if segment.turns != place.turns:
                return None
            with log.lock:
                last_good = log.op_id_at(max(page_start(place.summary, place.first) - 1, log.base.base.index))
            log.note_damage(error, last_good)
            raise
        if segment.turns != place.turns:
            return None
    count = fitting(offsets, bytes_max)
    return SegmentRead(segment, place.first, offsets[:count], offsets[count] & ~LEADS)


def _verified(log: TabletLog, file: File, piece: SegmentRead) -> Iterator[Entry]:
    """As ``read_piece``; takes note of damage."""
    try:
        yield from read_piece(file, piece)
    except Corrupt as error:
        _judge(log, piece, error)
        raise


def read_piece(file: File, piece: SegmentRead) -> Iterator[Entry]:
    """Yield the entries of a piece, checksums verified, those of their groups' headers too, and the end marks.

    Raises:
        Corrupt: a checksum fails, or something else stands there.
    """
    begin = piece.segment.header.data_start
    start = max(begin, (piece.offsets[0] & ~LEADS) - GROUP_HEADER_BYTES - END_MARK_BYTES)
    data = file.pread(piece.end - start, start)
    path, nonce = piece.segment.path, piece.segment.header.nonce
    for position, marked in enumerate(piece.offsets):
        offset = marked & ~LEADS
        at = offset - start
        if marked & LEADS:
            header_at = at - GROUP_HEADER_BYTES
            if header_at + start > begin:
                _check_end_mark(data, header_at, piece, start)
            if decode_group_header(data[header_at:at], nonce) is None:
                raise Corrupt("a group header fails its checksum", path=path, offset=start + header_at)
        entry = decode_entry(data, at, nonce, path, offset)
        if entry.op_id.index != piece.first + position:
            fact = f"entry {entry.op_id} stands where {piece.first + position} belongs"
            raise Corrupt(fact, path=path, offset=offset)
        yield entry
    if at + ENTRY_HEADER_BYTES + stored_bytes_at(data, at) + END_MARK_BYTES == len(data):
        _check_end_mark(data, len(data), piece, start)


def _check_end_mark(data: bytes, end: int, piece: SegmentRead, start: int) -> None:
    """Where a group ends in ``data``, which stand at ``start``, its mark does.

    Raises:
        Corrupt: it does not.
    """
    at = end - END_MARK_BYTES
    if data[at:end] != end_mark_of(piece.segment.header.nonce):
        raise Corrupt("the end mark of a group has changed", path=piece.segment.path, offset=start + at)


def check_collected(log: TabletLog, segment: Segment) -> None:
    """A segment's file is not there: return if it was collected meanwhile, so that the caller looks
    again.

    Raises:
        Corrupt: the log still has the segment, but no file; the log is damaged from there on.
    """
    with log.lock:
        if segment not in log.chain.segments:
            return
        last_good = log.op_id_at(max(segment.first - 1, log.base.base.index))
    error = Corrupt("the segment is missing", path=segment.path, offset=0)
    log.note_damage(error, last_good)
    raise error


def _judge(log: TabletLog, piece: SegmentRead, error: Corrupt) -> None:
    """Take note of damage, unless the entry was cut off meanwhile after a failed write.

    Raises:
        CallerError: the log no longer has that entry.
    """
    at = bisect_left(piece.offsets, error.offset or 0, key=lambda marked: marked & ~LEADS)
    bad = piece.first + min(at, len(piece.offsets) - 1)
    with log.lock:
        gone = bad > log.last.index
        last_good = log.op_id_at(max(min(bad - 1, log.last.index), log.base.base.index))
    if gone:
        raise _past_the_end(log, bad) from error
    log.note_damage(error, last_good)


def _past_the_end(log: TabletLog, index: int) -> StorageError | CallerError:
    corrupt = log.corrupt()
    if corrupt is not None:
        return corrupt
    return CallerError(f"log {log.log} ends at {log.last}: there is no entry {index}")
