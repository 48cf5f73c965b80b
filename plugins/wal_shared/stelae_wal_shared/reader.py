"""Reads entries. Any thread may read, in parallel to commits: positions are looked up under the lock, and the bytes at
a position never change. If the segment is removed meanwhile, the entry is looked up again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from stelae.spi.errors import CallerError, Compacted, Corrupt
from stelae.spi.log import Entry
from stelae.spi.services import File
from stelae_wal_shared.engine_state import EngineState, past_the_end
from stelae_wal_shared.format import RECORD_BYTES
from stelae_wal_shared.group import decode_entries
from stelae_wal_shared.index import RecordSpans
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tablet_log import SharedTabletLog

GAP_BYTES_MAX = 16 << 10
"""Up to this many bytes of other logs are read too. A larger gap is skipped, at the cost of another call."""

READ_BYTES_MAX = 4 << 20
"""Bytes that one call reads at most, unless one entry is larger."""


class SharedRead(NamedTuple):
    """Consecutive entries of a log in one segment, from index ``first`` on."""

    segment: SharedSegment
    log: int
    first: int
    spans: RecordSpans


def read(state: EngineState, log: SharedTabletLog, first: int, end: int, bytes_max: int) -> list[Entry]:
    """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    if end <= first:
        raise CallerError(f"log {log.name}: the range from {first} to {end} is empty")
    entries: list[Entry] = []
    left = bytes_max
    while first < end and (found := read_from(state, log, first, end, left, 0 if entries else 1)):
        entries.extend(found)
        first += len(found)
        left -= sum([entry.size_bytes for entry in found])
    return entries


def read_from(
    state: EngineState, log: SharedTabletLog, first: int, end: int, bytes_max: int, least: int = 1
) -> list[Entry]:
    """Return ``least`` entries from ``first`` on, and further entries of the same segment, up to a size.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    while True:
        piece = find(state, log, first, end, bytes_max, least)
        if not piece.spans.offsets:
            return []
        try:
            with closing(state.files.open(piece.segment.path)) as file:
                return list(read_entries(file, piece))
        except FileNotFoundError:
            check_removed(state, log, piece.segment, first)
        except Corrupt as error:
            at = _position_of(piece, error.offset)
            state.note_damage(log, first + at, error, piece.segment, piece.spans.offsets[at])


def find(state: EngineState, log: SharedTabletLog, first: int, end: int, bytes_max: int, least: int = 1) -> SharedRead:
    """Return the positions of the entries from ``first`` on, as far as they are in one segment and within a size.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    while True:
        with state.lock:
            if first <= log.base.index:
                raise Compacted(log.base)
            if end > log.last.index + 1:
                raise past_the_end(log, end - 1)
            extent = log.extent_of(first)
            segment, index = extent.segment, extent.segment.index
            if index is not None:
                state.touch_index(segment)
                spans = index.spans(log.number, first, min(end, extent.end), bytes_max, least)
                if spans is not None:
                    return SharedRead(segment, log.number, first, spans)
        if index is not None:
            fact = f"segment {segment.number} does not have entry {first}"
            state.note_damage(log, first, Corrupt(fact, path=segment.path, offset=segment.start), segment)
            continue
        try:
            state.load(segment)
        except FileNotFoundError:
            check_removed(state, log, segment, first)


def read_entries(file: File, piece: SharedRead) -> Iterator[Entry]:
    """Yield entries after verifying their checksums.

    Raises:
        Corrupt: a checksum fails, or another entry is found.
    """
    segment, offsets = piece.segment, piece.spans.offsets
    for at, stop, end in _batches(piece.spans):
        data = file.pread(end - offsets[at], offsets[at])
        yield from decode_entries(data, offsets[at:stop], segment.nonce, piece.log, piece.first + at, segment.path)


def _batches(spans: RecordSpans) -> Iterator[tuple[int, int, int]]:
    """Yield batches of adjacent entries that one call reads: first position, position behind the last, end offset."""
    offsets, sizes = spans
    first = end = 0
    for at, offset in enumerate(offsets):
        behind = offset + RECORD_BYTES + sizes[at]
        if at and (not 0 <= offset - end <= GAP_BYTES_MAX or behind - offsets[first] > READ_BYTES_MAX):
            yield first, at, end
            first = at
        end = behind
    yield first, len(offsets), end


def _position_of(piece: SharedRead, offset: int | None) -> int:
    return next((at for at, found in enumerate(piece.spans.offsets) if found == offset), 0)


def check_removed(state: EngineState, log: SharedTabletLog, segment: SharedSegment, first: int) -> None:
    """Handle the missing file of a segment. Return if the log no longer needs it; otherwise it is damage.

    Raises:
        Corrupt: the log still needs the segment for the entry at ``first``.
    """
    state.note_damage(log, first, Corrupt("the segment is missing", path=segment.path, offset=0), segment)
