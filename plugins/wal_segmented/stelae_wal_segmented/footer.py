"""The footer of a closed segment: an index of its entries, so that no reader needs to scan the segment.

::

    footer   head | pages | term runs (16 bytes each) | trailer
    head     mark, length of the footer, CRC32C
    page     offsets of 512 entries, fewer in the last page (8 bytes each), end of the last of
             these entries, CRC32C
    trailer  mark, length, end of data, first index, entries, runs, commit hint,
             CRC32C of the runs, CRC32C of the trailer, end mark

When a log is opened, only the head, the trailer and the runs are read. A reader reads the one page that has the entry.
So neither time nor memory grows with the number of entries.

The head tells a footer that was torn while it was written from one that was damaged later. Recovery finds the head at
the end of the data. It then knows how long the footer should be and how it should end."""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from operator import lt

from crc32c import crc32c

from stelae.spi.errors import Corrupt
from stelae.spi.services import File
from stelae_shared.log_files.term_runs import TermRuns
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    end_mark_of,
    footer_mark_of,
    salt_of,
)
from stelae_wal_segmented.index import FIRST_OF_GROUP, PAGE_ENTRIES, IndexSummary, SegmentIndex

_HEAD = struct.Struct("<QQ")
_TRAILER = struct.Struct("<QQQQQQQI")
_RUN = struct.Struct("<QQ")
_CRC = struct.Struct("<I")

HEAD_BYTES = _HEAD.size + _CRC.size
TRAILER_BYTES = _TRAILER.size + _CRC.size + END_MARK_BYTES
_PAGE_BYTES = 8 * (PAGE_ENTRIES + 1) + _CRC.size


@dataclass(frozen=True, slots=True)
class FooterTrailer:
    """The last bytes of a closed segment."""

    size: int  #: Length of the footer in bytes.
    data_end: int  #: Offset where the data end and the footer begins.
    first: int  #: Index of the first entry.
    count: int  #: Number of entries.
    runs: int  #: Number of term runs.
    commit_hint: int  #: Highest commit index that was recorded up to here.
    crc: int  #: CRC32C of the runs.


def encode_footer(index: SegmentIndex, nonce: int) -> bytes:
    """Return the footer of a segment with this index. It is written at ``index.end``."""
    salt, mark = salt_of(nonce), footer_mark_of(nonce)
    count = len(index.offsets)
    runs = b"".join(_RUN.pack(first, term) for first, term in index.runs)
    size = _size_of(count, len(index.runs))
    head = _HEAD.pack(mark, size)
    parts = [head, _CRC.pack(crc32c(head, salt))]
    offsets = _packed(index.offsets + array("Q", (index.end,)))
    for begin in range(0, 8 * count, 8 * PAGE_ENTRIES):
        page = offsets[begin : begin + 8 * (PAGE_ENTRIES + 1)]
        parts += [page, _CRC.pack(crc32c(page, salt))]
    trailer = _TRAILER.pack(
        mark, size, index.end, index.first, count, len(index.runs), index.commit_hint, crc32c(runs, salt)
    )
    parts += [runs, trailer, _CRC.pack(crc32c(trailer, salt)), end_mark_of(nonce)]
    return b"".join(parts)


def decode_head(data: bytes, nonce: int) -> int | None:
    """Return the length of the footer that begins with ``data``, or ``None`` if ``data`` is no valid head."""
    if len(data) < HEAD_BYTES:
        return None
    mark, size = _HEAD.unpack_from(data)
    if mark != footer_mark_of(nonce):
        return None
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(data[: _HEAD.size], salt_of(nonce)):
        return None
    return int(size)


def decode_trailer(data: bytes, nonce: int) -> FooterTrailer | None:
    """Return the trailer in ``data``, or ``None`` if it is no valid trailer of this segment."""
    if len(data) != TRAILER_BYTES or data[-END_MARK_BYTES:] != end_mark_of(nonce):
        return None
    mark, *fields = _TRAILER.unpack_from(data)
    if mark != footer_mark_of(nonce):
        return None
    if _CRC.unpack_from(data, _TRAILER.size)[0] != crc32c(data[: _TRAILER.size], salt_of(nonce)):
        return None
    trailer = FooterTrailer(*fields)
    return trailer if trailer.size == _size_of(trailer.count, trailer.runs) else None


def decode_footer(data: bytes, nonce: int) -> SegmentIndex | None:
    """Return the index in a complete footer, or ``None`` if any part of the footer is invalid."""
    trailer = decode_trailer(data[-TRAILER_BYTES:], nonce)
    if trailer is None or trailer.size != len(data) or decode_head(data, nonce) != len(data):
        return None
    runs_at = HEAD_BYTES + _pages_size(trailer.count)
    runs = _decode_runs(data[runs_at:-TRAILER_BYTES], trailer, nonce)
    if runs is None:
        return None
    index = SegmentIndex(trailer.first, trailer.data_end, trailer.commit_hint)
    index.runs = runs
    for at in range(HEAD_BYTES, runs_at, _PAGE_BYTES):
        page = _decode_page(data[at : min(at + _PAGE_BYTES, runs_at)], nonce)
        if page is None:
            return None
        index.offsets.extend(page[:-1])
    return index


def read_summary(file: File, nonce: int) -> IndexSummary | None:
    """Return what the footer at the end of a file says, without the offsets; ``None`` without a valid footer.

    Reads a few hundred bytes, and 16 bytes for each run of terms.

    Raises:
        StorageError: the file cannot be read.
    """
    size = file.size()
    trailer = decode_trailer(file.pread(TRAILER_BYTES, max(0, size - TRAILER_BYTES)), nonce)
    if trailer is None or trailer.data_end + trailer.size != size:
        return None
    if decode_head(file.pread(HEAD_BYTES, trailer.data_end), nonce) != trailer.size:
        return None
    length = trailer.runs * _RUN.size
    runs = _decode_runs(file.pread(length, size - TRAILER_BYTES - length), trailer, nonce)
    if runs is None:
        return None
    return IndexSummary(trailer.first, trailer.count, trailer.data_end, trailer.commit_hint, runs)


def read_window(file: File, nonce: int, summary: IndexSummary, index: int, stop: int) -> list[int]:
    """Do what ``SegmentIndex.window`` does, with the page of the footer that has ``index``.

    Raises:
        Corrupt: that page fails its checksum; ``offset`` is where the page begins.
        StorageError: the file cannot be read.
    """
    number, position = divmod(index - summary.first, PAGE_ENTRIES)
    begin = number * PAGE_ENTRIES
    at = summary.end + HEAD_BYTES + number * _PAGE_BYTES
    length = _pages_size(min(summary.count - begin, PAGE_ENTRIES))
    page = _decode_page(file.pread(length, at), nonce)
    behind = min(stop - summary.first, begin + PAGE_ENTRIES) - begin
    offsets = page[position : behind + 1].tolist() if page is not None else []
    if len(offsets) != behind + 1 - position or not _within(offsets, summary.end):
        fact = f"the footer's page with the entries from {summary.first + begin} on fails its checksum"
        raise Corrupt(fact, path=file.path, offset=at)
    return offsets


def page_start(summary: IndexSummary, index: int) -> int:
    """Return the index of the first entry in the page that has ``index``."""
    return index - (index - summary.first) % PAGE_ENTRIES


def _size_of(count: int, runs: int) -> int:
    return HEAD_BYTES + _pages_size(count) + _RUN.size * runs + TRAILER_BYTES


def _pages_size(count: int) -> int:
    return 8 * count + -(-count // PAGE_ENTRIES) * (8 + _CRC.size)


def _decode_page(data: bytes, nonce: int) -> array[int] | None:
    body = data[: -_CRC.size]
    if len(body) % 8 or not body or _CRC.unpack_from(data, len(body))[0] != crc32c(body, salt_of(nonce)):
        return None
    return _unpacked(body)


def _within(marked: list[int], end: int) -> bool:
    """Say whether the offsets ascend and are inside the segment's data."""
    offsets = [offset & ~FIRST_OF_GROUP for offset in marked]
    ascend = all(map(lt, offsets, offsets[1:]))
    return ascend and offsets[0] >= SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES and offsets[-1] <= end


def _decode_runs(data: bytes, trailer: FooterTrailer, nonce: int) -> TermRuns | None:
    if len(data) != trailer.runs * _RUN.size or crc32c(data, salt_of(nonce)) != trailer.crc:
        return None
    runs = list(_RUN.iter_unpack(data))
    firsts = [first for first, _ in runs]
    if bool(trailer.count) != bool(runs) or firsts != sorted(firsts) or (runs and firsts[0] != trailer.first):
        return None
    return TermRuns(runs)


def _packed(offsets: array[int]) -> bytes:
    """Return the bytes of an array. May change the array, so the caller must not use it afterwards."""
    if sys.byteorder != "little":
        offsets.byteswap()
    return offsets.tobytes()


def _unpacked(data: bytes) -> array[int]:
    offsets: array[int] = array("Q", data)
    if sys.byteorder != "little":
        offsets.byteswap()
    return offsets
