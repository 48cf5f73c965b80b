"""Reading entries back. Any thread, beside commits: places are looked up under the lock, and what
stands there never changes. A segment that is removed meanwhile is looked up again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from stelae.spi.errors import CallerError, Compacted, Corrupt
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae_wal_shared.book import Book, past_the_end
from stelae_wal_shared.format import RECORD_BYTES
from stelae_wal_shared.group import decode_entry
from stelae_wal_shared.index import Place
from stelae_wal_shared.segment import Segment
from stelae_wal_shared.tablet_log import TabletLog

GAP_BYTES_MAX = 16 << 10
"""Bytes of other logs that are read along rather than skipped by another call."""

READ_BYTES_MAX = 4 << 20
"""How much one call reads, unless one entry is larger."""


class Piece(NamedTuple):
    """Consecutive entries of a log, from index ``first`` on, that stand in one segment."""

    segment: Segment
    log: int
    first: int
    places: list[Place]


def read(book: Book, log: TabletLog, first: int, end: int, bytes_max: int) -> list[Entry]:
    """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    if end <= first:
        raise CallerError(f"log {log.name}: the range from {first} to {end} is empty")
    entries: list[Entry] = []
    left = bytes_max
    while first < end and (left > 0 or not entries):
        found = read_from(book, log, first, end, left)
        entries.extend(found)
        first += len(found)
        left -= sum(entry.size_bytes for entry in found)
    return entries


def read_from(book: Book, log: TabletLog, first: int, end: int, bytes_max: int) -> list[Entry]:
    """Return at least the entry at ``first``, and those behind it in the same segment, up to a size.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    while True:
        piece = find(book, log, first, end, bytes_max)
        try:
            with closing(book.files.open(piece.segment.path)) as file:
                return list(read_piece(file, piece))
        except FileNotFoundError:
            check_removed(book, log, piece.segment, first)
        except Corrupt as error:
            index = _index_at(piece, error.offset)
            raise book.note_damage(log, index, error) from error


def find(book: Book, log: TabletLog, first: int, end: int, bytes_max: int) -> Piece:
    """Say where the entries from ``first`` on stand, as far as they are in one segment.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    while True:
        with book.lock:
            if first <= log.base.index:
                raise Compacted(log.base)
            if end > log.last.index + 1:
                raise past_the_end(log, end - 1)
            extent = log.extent_of(first)
            segment, index = extent.segment, extent.segment.index
            if index is not None:
                book.used(segment)
                places = index.places(log.number, first, min(end, extent.end))
                if places:
                    return Piece(segment, log.number, first, _up_to(places, bytes_max))
        if index is not None:
            fact = f"segment {segment.number} does not tell where entry {first} stands"
            error = Corrupt(fact, path=segment.path, offset=segment.start)
            raise book.note_damage(log, first, error) from error
        try:
            book.load(segment)
        except FileNotFoundError:
            check_removed(book, log, segment, first)


def read_piece(file: File, piece: Piece) -> Iterator[Entry]:
    """Yield the entries of a piece, checksums verified.

    Raises:
        Corrupt: a checksum fails, or another entry stands there.
    """
    segment = piece.segment
    index = piece.first
    for places in _batches(piece.places):
        start = places[0].offset
        end = places[-1].offset + RECORD_BYTES + places[-1].size
        data = file.pread(end - start, start)
        for offset, _ in places:
            yield decode_entry(data, offset - start, segment.nonce, piece.log, index, segment.path, offset)
            index += 1


def _batches(places: list[Place]) -> Iterator[list[Place]]:
    """Neighbours that one call reads."""
    batch: list[Place] = []
    for place in places:
        if batch:
            end = batch[-1].offset + RECORD_BYTES + batch[-1].size
            apart = not 0 <= place.offset - end <= GAP_BYTES_MAX
            if apart or place.offset + place.size - batch[0].offset > READ_BYTES_MAX:
                yield batch
                batch = []
        batch.append(place)
    if batch:
        yield batch


def _up_to(places: list[Place], bytes_max: int) -> list[Place]:
    for count, place in enumerate(places):
        bytes_max -= place.size + RECORD_BYTES
        if bytes_max < 0:
            return places[: max(1, count)]
    return places


def _index_at(piece: Piece, offset: int | None) -> int:
    at = (number for number, place in enumerate(piece.places) if place.offset == offset)
    return piece.first + next(at, 0)


def check_removed(book: Book, log: TabletLog, segment: Segment, first: int) -> None:
    """A file is gone: either the log no longer needs it, or it is damage.

    Raises:
        Corrupt: the entry at ``first`` is still said to be there.
    """
    with book.lock:
        held = log.base.index < first <= log.last.index
        needed = held and log.extent_of(first).segment is segment
    if needed:
        error = Corrupt("the segment is missing", path=segment.path, offset=0)
        raise book.note_damage(log, first, error) from error
