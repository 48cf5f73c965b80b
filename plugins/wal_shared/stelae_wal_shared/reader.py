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
from stelae_wal_shared.group import decode_entries
from stelae_wal_shared.index import Places
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tablet_log import SharedTabletLog

GAP_BYTES_MAX = 16 << 10
"""Bytes of other logs that are read along rather than skipped by another call."""

READ_BYTES_MAX = 4 << 20
"""How much one call reads, unless one entry is larger."""


class SharedRead(NamedTuple):
    """Consecutive entries of a log, from index ``first`` on, that stand in one segment."""

    segment: SharedSegment
    log: int
    first: int
    places: Places


def read(book: Book, log: SharedTabletLog, first: int, end: int, bytes_max: int) -> list[Entry]:
    """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    if end <= first:
        raise CallerError(f"log {log.name}: the range from {first} to {end} is empty")
    entries: list[Entry] = []
    left = bytes_max
    while first < end and (found := read_from(book, log, first, end, left, 0 if entries else 1)):
        entries.extend(found)
        first += len(found)
        left -= sum([entry.size_bytes for entry in found])
    return entries


def read_from(book: Book, log: SharedTabletLog, first: int, end: int, bytes_max: int, least: int = 1) -> list[Entry]:
    """Return ``least`` entries from ``first`` on, and those behind it in the same segment, up to a size.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    while True:
        piece = find(book, log, first, end, bytes_max, least)
        if not piece.places.offsets:
            return []
        try:
            with closing(book.files.open(piece.segment.path)) as file:
                return list(read_piece(file, piece))
        except FileNotFoundError:
            check_removed(book, log, piece.segment, first)
        except Corrupt as error:
            index = _index_at(piece, error.offset)
            raise book.note_damage(log, index, error) from error


def find(book: Book, log: SharedTabletLog, first: int, end: int, bytes_max: int, least: int = 1) -> SharedRead:
    """Say where the entries from ``first`` on stand, as far as they are in one segment and within a size.

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
                places = index.places(log.number, first, min(end, extent.end), bytes_max, least)
                if places is not None:
                    return SharedRead(segment, log.number, first, places)
        if index is not None:
            fact = f"segment {segment.number} does not tell where entry {first} stands"
            error = Corrupt(fact, path=segment.path, offset=segment.start)
            raise book.note_damage(log, first, error) from error
        try:
            book.load(segment)
        except FileNotFoundError:
            check_removed(book, log, segment, first)


def read_piece(file: File, piece: SharedRead) -> Iterator[Entry]:
    """Yield the entries of a piece, checksums verified.

    Raises:
        Corrupt: a checksum fails, or another entry stands there.
    """
    segment, offsets = piece.segment, piece.places.offsets
    for at, stop, end in _batches(piece.places):
        data = file.pread(end - offsets[at], offsets[at])
        yield from decode_entries(data, offsets[at:stop], segment.nonce, piece.log, piece.first + at, segment.path)


def _batches(places: Places) -> Iterator[tuple[int, int, int]]:
    """Neighbours that one call reads: positions of the first and behind the last, and where that one ends."""
    offsets, sizes = places
    first = end = 0
    for at, offset in enumerate(offsets):
        behind = offset + RECORD_BYTES + sizes[at]
        if at and (not 0 <= offset - end <= GAP_BYTES_MAX or behind - offsets[first] > READ_BYTES_MAX):
            yield first, at, end
            first = at
        end = behind
    yield first, len(offsets), end


def _index_at(piece: SharedRead, offset: int | None) -> int:
    at = (number for number, found in enumerate(piece.places.offsets) if found == offset)
    return piece.first + next(at, 0)


def check_removed(book: Book, log: SharedTabletLog, segment: SharedSegment, first: int) -> None:
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
