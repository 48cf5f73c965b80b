"""The footer of a closed segment: an index of its entries, so that opening need not read it whole.

::

    footer   head | offsets (8 bytes an entry) | term runs (16 bytes each) | trailer
    head     mark, length of the footer, CRC32C
    trailer  mark, length, end of data, first index, entries, runs, commit hint,
             CRC32C of all before the trailer, CRC32C of the trailer

The head tells a footer that was torn while it was written from one that was damaged afterwards:
recovery finds the head where the data end, and knows how long the footer ought to be."""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass

from crc32c import crc32c

from stelae_wal_segmented.format import footer_mark_of, salt_of
from stelae_wal_segmented.index import SegmentIndex, TermRuns

_HEAD = struct.Struct("<QQ")
_TRAILER = struct.Struct("<QQQQQQQI")
_RUN = struct.Struct("<QQ")
_CRC = struct.Struct("<I")

HEAD_BYTES = _HEAD.size + _CRC.size
TRAILER_BYTES = _TRAILER.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Trailer:
    """Last bytes of a closed segment."""

    size: int
    data_end: int
    first: int
    count: int
    runs: int
    commit_hint: int
    crc: int


def encode_footer(index: SegmentIndex, nonce: int) -> bytes:
    """Return the footer for a segment with this index; it belongs at ``index.end``."""
    salt, mark = salt_of(nonce), footer_mark_of(nonce)
    size = HEAD_BYTES + 8 * len(index.offsets) + _RUN.size * len(index.runs) + TRAILER_BYTES
    head = _HEAD.pack(mark, size)
    runs = b"".join(_RUN.pack(first, term) for first, term in index.runs)
    body = head + _CRC.pack(crc32c(head, salt)) + _packed(index.offsets) + runs
    trailer = _TRAILER.pack(
        mark, size, index.end, index.first, len(index.offsets), len(index.runs), index.commit_hint, crc32c(body, salt)
    )
    return body + trailer + _CRC.pack(crc32c(trailer, salt))


def decode_head(data: bytes, nonce: int) -> int | None:
    """Return the length of the footer that begins with ``data``; ``None`` if none does."""
    if len(data) < HEAD_BYTES:
        return None
    mark, size = _HEAD.unpack_from(data)
    if mark != footer_mark_of(nonce):
        return None
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(data[: _HEAD.size], salt_of(nonce)):
        return None
    return int(size)


def decode_trailer(data: bytes, nonce: int) -> Trailer | None:
    """Return the trailer that ``data`` is; ``None`` if it is not one of this segment."""
    if len(data) != TRAILER_BYTES:
        return None
    mark, *fields = _TRAILER.unpack_from(data)
    if mark != footer_mark_of(nonce):
        return None
    if _CRC.unpack_from(data, _TRAILER.size)[0] != crc32c(data[: _TRAILER.size], salt_of(nonce)):
        return None
    return Trailer(*fields)


def decode_footer(data: bytes, nonce: int) -> SegmentIndex | None:
    """Return the index in a whole footer; ``None`` if any part of it is not as it was written."""
    trailer = decode_trailer(data[-TRAILER_BYTES:], nonce)
    if trailer is None or trailer.size != len(data) or decode_head(data, nonce) != len(data):
        return None
    body = data[:-TRAILER_BYTES]
    runs_at = HEAD_BYTES + 8 * trailer.count
    if crc32c(body, salt_of(nonce)) != trailer.crc:
        return None
    if len(body) != runs_at + _RUN.size * trailer.runs:
        return None
    index = SegmentIndex(trailer.first, trailer.data_end, trailer.commit_hint)
    index.offsets = _unpacked(body[HEAD_BYTES:runs_at])
    index.runs = TermRuns([(first, term) for first, term in _RUN.iter_unpack(body[runs_at:])])
    return index


def _packed(offsets: array[int]) -> bytes:
    if sys.byteorder == "little":
        return offsets.tobytes()
    swapped = offsets[:]
    swapped.byteswap()
    return swapped.tobytes()


def _unpacked(data: bytes) -> array[int]:
    offsets: array[int] = array("Q", data)
    if sys.byteorder != "little":
        offsets.byteswap()
    return offsets
