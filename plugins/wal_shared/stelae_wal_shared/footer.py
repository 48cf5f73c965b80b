"""The footer of a closed segment: an index of its entries, so that no reader needs to scan the segment.

::

    footer   mark, length, CRC32C | contents | mark, length, end of data, CRC32C of contents, CRC32C

The contents are the index of the segment. If the engine was closed with this segment as the newest one, they also have
an image of all logs at its end, so that the next start reads no record. A footer is written only after everything
before it was synced. It may be missing; then the segment is scanned."""

from __future__ import annotations

import struct
import sys
from array import array
from contextlib import closing

import msgspec
from crc32c import crc32c

from stelae.spi.services import File, Files
from stelae_wal_shared.format import footer_mark_of, salt_of
from stelae_wal_shared.index import EntryRun, SharedSegmentIndex

_LEAD = struct.Struct("<QQ")
_TRAIL = struct.Struct("<QQQI")
_CRC = struct.Struct("<I")

LEAD_BYTES = _LEAD.size + _CRC.size
TRAIL_BYTES = _TRAIL.size + _CRC.size


class EntryRunImage(msgspec.Struct, frozen=True, array_like=True):
    """A ``EntryRun``: 8 bytes an offset, 4 bytes a size, little-endian."""

    log: int
    first: int
    offsets: bytes
    sizes: bytes


class FooterContents(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a footer. ``image`` is empty unless the engine was closed with this segment."""

    entries: int
    runs: list[EntryRunImage]
    image: bytes = b""


def encode_footer(index: SharedSegmentIndex, entries: int, end: int, nonce: int, image: bytes) -> bytes:
    """Return the footer of a segment whose data end at ``end``, where the footer is written."""
    mark, salt = footer_mark_of(nonce), salt_of(nonce)
    runs = [
        EntryRunImage(log, run.first, _packed(run.offsets), _packed(run.sizes))
        for log, found in index.runs.items()
        for run in found
    ]
    contents = msgspec.msgpack.encode(FooterContents(entries, runs, image))
    size = LEAD_BYTES + len(contents) + TRAIL_BYTES
    lead = _LEAD.pack(mark, size)
    trail = _TRAIL.pack(mark, size, end, crc32c(contents, salt))
    return b"".join((lead, _CRC.pack(crc32c(lead, salt)), contents, trail, _CRC.pack(crc32c(trail, salt))))


def is_lead(data: bytes, at: int, nonce: int) -> bool:
    """Say whether a footer begins at ``data[at]``, complete or not."""
    raw = data[at : at + LEAD_BYTES]
    if len(raw) < LEAD_BYTES or _CRC.unpack_from(raw, _LEAD.size)[0] != crc32c(raw[: _LEAD.size], salt_of(nonce)):
        return False
    return bool(_LEAD.unpack_from(raw)[0] == footer_mark_of(nonce))


def read_trail(file: File, nonce: int) -> tuple[int, int, int] | None:
    """Return the end of the data, and the length and checksum of the contents; ``None`` without a valid trailer."""
    size = file.size()
    raw = file.pread(TRAIL_BYTES, max(0, size - TRAIL_BYTES))
    if len(raw) < TRAIL_BYTES or _CRC.unpack_from(raw, _TRAIL.size)[0] != crc32c(raw[: _TRAIL.size], salt_of(nonce)):
        return None
    mark, length, end, crc = _TRAIL.unpack_from(raw)
    if mark != footer_mark_of(nonce) or end + length != size:
        return None
    return end, length - LEAD_BYTES - TRAIL_BYTES, crc


def read_footer(file: File, nonce: int) -> FooterContents | None:
    """Return the contents of the footer at the end of an open segment; ``None`` without a valid one."""
    trail = read_trail(file, nonce)
    if trail is None:
        return None
    end, length, crc = trail
    data = file.pread(length, end + LEAD_BYTES)
    if len(data) < length or crc32c(data, salt_of(nonce)) != crc:
        return None
    return _DECODER.decode(data)


def index_of(contents: FooterContents) -> SharedSegmentIndex:
    """Return the index in a footer."""
    index = SharedSegmentIndex()
    for image in contents.runs:
        run = EntryRun(image.first)
        run.offsets = _unpacked("Q", image.offsets)
        run.sizes = _unpacked("I", image.sizes)
        index.runs.setdefault(image.log, []).append(run)
    return index


def load_footer(files: Files, path: str, nonce: int) -> SharedSegmentIndex | None:
    """Return the index in the footer of a segment; ``None`` without a valid one.

    Raises:
        FileNotFoundError: the segment was removed.
        StorageError: the segment cannot be read.
    """
    with closing(files.open(path)) as file:
        contents = read_footer(file, nonce)
    return None if contents is None else index_of(contents)


def _packed(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        return values.tobytes()
    swapped = values[:]
    swapped.byteswap()
    return swapped.tobytes()


def _unpacked(code: str, data: bytes) -> array[int]:
    values: array[int] = array(code, data)
    if sys.byteorder != "little":
        values.byteswap()
    return values


_DECODER = msgspec.msgpack.Decoder(FooterContents)
