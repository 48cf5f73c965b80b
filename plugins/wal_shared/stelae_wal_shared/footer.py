"""The footer of a closed segment: where its entries stand, so that it is never read whole for that.

::

    footer   mark, length, CRC32C | contents | mark, length, end of data, CRC32C of contents, CRC32C

The contents are the segment's index, and, if the engine was closed with this segment as the newest
one, an image of all logs at its end, so that the next start reads no record at all. A footer is
written only after everything before it was synced; it may be missing, and is then replaced by a
scan."""

from __future__ import annotations

import struct
import sys
from array import array
from contextlib import closing

import msgspec
from crc32c import crc32c

from stelae.spi.services import File, Files
from stelae_wal_shared.format import footer_mark_of, salt_of
from stelae_wal_shared.index import LogRuns, SharedSegmentIndex

_LEAD = struct.Struct("<QQ")
_TRAIL = struct.Struct("<QQQI")
_CRC = struct.Struct("<I")

LEAD_BYTES = _LEAD.size + _CRC.size
TRAIL_BYTES = _TRAIL.size + _CRC.size


class PartImage(msgspec.Struct, frozen=True, array_like=True):
    """A ``LogRuns``: 8 bytes an offset, 4 bytes a size, little-endian."""

    log: int
    first: int
    offsets: bytes
    sizes: bytes


class FooterContents(msgspec.Struct, frozen=True, array_like=True):
    """What a footer holds; ``image`` is empty unless the engine was closed here."""

    entries: int
    parts: list[PartImage]
    image: bytes = b""


def encode_footer(index: SharedSegmentIndex, entries: int, end: int, nonce: int, image: bytes) -> bytes:
    """Return the footer of a segment whose data end at ``end``, where it belongs."""
    mark, salt = footer_mark_of(nonce), salt_of(nonce)
    parts = [
        PartImage(log, part.first, _packed(part.offsets), _packed(part.sizes))
        for log, found in index.parts.items()
        for part in found
    ]
    contents = msgspec.msgpack.encode(FooterContents(entries, parts, image))
    size = LEAD_BYTES + len(contents) + TRAIL_BYTES
    lead = _LEAD.pack(mark, size)
    trail = _TRAIL.pack(mark, size, end, crc32c(contents, salt))
    return b"".join((lead, _CRC.pack(crc32c(lead, salt)), contents, trail, _CRC.pack(crc32c(trail, salt))))


def is_lead(data: bytes, at: int, nonce: int) -> bool:
    """Say whether a footer begins at ``data[at]``, whole or not."""
    raw = data[at : at + LEAD_BYTES]
    if len(raw) < LEAD_BYTES or _CRC.unpack_from(raw, _LEAD.size)[0] != crc32c(raw[: _LEAD.size], salt_of(nonce)):
        return False
    return bool(_LEAD.unpack_from(raw)[0] == footer_mark_of(nonce))


def read_trail(file: File, nonce: int) -> tuple[int, int, int] | None:
    """Return where the data end, and length and checksum of the contents; ``None`` without a valid trail."""
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
    """The index in a footer."""
    index = SharedSegmentIndex()
    for image in contents.parts:
        part = LogRuns(image.first)
        part.offsets = _unpacked("Q", image.offsets)
        part.sizes = _unpacked("I", image.sizes)
        index.parts.setdefault(image.log, []).append(part)
    return index


def load_footer(files: Files, path: str, nonce: int) -> SharedSegmentIndex | None:
    """Return the index in the footer of a segment; ``None`` without a valid one.

    Raises:
        FileNotFoundError: the segment is gone.
        StorageError: it cannot be read.
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
