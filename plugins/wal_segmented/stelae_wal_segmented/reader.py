"""Reading entries back. Any thread, beside appends: files only grow, and winners are looked up
under the log's lock before anything is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from stelae.spi.errors import CallerError, Compacted, Corrupt
from stelae.spi.ids import OpId
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae_wal_segmented.format import GROUP_HEADER_BYTES, decode_group_header
from stelae_wal_segmented.group import decode_entry
from stelae_wal_segmented.index import LEADS
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.segment import Segment


@dataclass(frozen=True, slots=True)
class Piece:
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
        piece = find(log, first, end, left)
        try:
            with closing(log.setting.files.open(piece.segment.path)) as file:
                found = list(read_piece(file, piece))
        except FileNotFoundError:
            continue  # Collected meanwhile: looking it up again says so.
        except Corrupt as error:
            _judge(log, piece, error)
            raise
        entries.extend(found)
        first += len(found)
        left -= sum(entry.size_bytes for entry in found)
    return entries


def find(log: TabletLog, first: int, end: int, bytes_max: int) -> Piece:
    """Say where the entries from ``first`` on stand, as far as they are in one segment.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    while True:
        with log.lock:
            if first <= log.base.base.index:
                raise Compacted(log.base.base)
            if end > log.last.index + 1:
                raise _past_the_end(log, end - 1)
            place = log.chain.place_of(first, log.last.index)
            index = place.segment.index
            if index is not None:
                start = index.offset_of(first)
                stop = min(end, place.end)
                reach = first + 1
                while reach < stop and index.end_of(reach) - start <= bytes_max:
                    reach += 1
                offsets = index.offsets[first - index.first : reach - index.first].tolist()
                return Piece(place.segment, first, offsets, index.end_of(reach - 1))
        try:
            place.segment.load(log.setting.files, log.lock)
        except FileNotFoundError:
            continue
        except Corrupt as error:
            with log.lock:
                last_good = log.op_id_at(max(place.segment.first - 1, log.base.base.index))
            log.note_damage(error, last_good)
            raise


def read_piece(file: File, piece: Piece) -> Iterator[Entry]:
    """Yield the entries of a piece, checksums verified, those of their groups' headers too.

    Raises:
        Corrupt: a checksum fails, or another entry stands there.
    """
    start = (piece.offsets[0] & ~LEADS) - GROUP_HEADER_BYTES
    data = file.pread(piece.end - start, start)
    path, nonce = piece.segment.path, piece.segment.header.nonce
    for position, marked in enumerate(piece.offsets):
        offset = marked & ~LEADS
        at = offset - start
        if marked & LEADS and decode_group_header(data[at - GROUP_HEADER_BYTES : at], nonce) is None:
            fact = "a group header fails its checksum"
            raise Corrupt(fact, path=path, offset=offset - GROUP_HEADER_BYTES)
        entry = decode_entry(data, at, nonce, path, offset)
        if entry.op_id.index != piece.first + position:
            fact = f"entry {entry.op_id} stands where {piece.first + position} belongs"
            raise Corrupt(fact, path=path, offset=offset)
        yield entry


def _judge(log: TabletLog, piece: Piece, error: Corrupt) -> None:
    """Take note of damage, unless the entry was cut off meanwhile after a failed write.

    Raises:
        CallerError: the log no longer has that entry.
    """
    at = bisect_left(piece.offsets, error.offset or 0, key=lambda marked: marked & ~LEADS)
    bad = piece.first + at
    with log.lock:
        gone = bad > log.last.index
        last_good = log.op_id_at(max(min(bad - 1, log.last.index), log.base.base.index))
    if gone:
        raise _past_the_end(log, bad) from error
    log.note_damage(error, last_good)


def _past_the_end(log: TabletLog, index: int) -> Corrupt | CallerError:
    corrupt = log.corrupt()
    if corrupt is not None:
        return corrupt
    return CallerError(f"log {log.log} ends at {log.last}: there is no entry {index}")
