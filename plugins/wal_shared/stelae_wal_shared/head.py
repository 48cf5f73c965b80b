"""The head of a segment: its identity, and an image of all logs at its beginning. Each has two copies, in other pages.

::

    page 0: fixed part | beginning of the image
    page 1: the same again
    pages:  rest of the image, if it has one | the rest again

The fixed part is one sector long. Zeros fill the last page of each copy. So records begin in a new page, and no append
writes a page of the head again. The head is durable before the segment gets its name. It has two copies, because its
loss would affect every log of the node. A page that is lost or unreadable in either copy costs nothing."""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import Foreign, FutureVersion, StorageError
from stelae.spi.services import File
from stelae_wal_shared.format import FORMAT_VERSION

MAGIC = b"stelwalx"
SECTOR_BYTES = 512
PAGE_BYTES = 4096
"""A page of the system's cache, and the largest unit in which disks store data."""

_FIXED = struct.Struct("<8sHHIQQQI")
_CRC = struct.Struct("<I")
_BEGIN_BYTES = PAGE_BYTES - SECTOR_BYTES
"""Number of bytes of the image that follow each fixed part."""


class SegmentHead(NamedTuple):
    """The head of a segment."""

    number: int  #: Number of the segment.
    nonce: int  #: Nonce of the segment.
    start: int  #: Offset where its records begin.
    image: bytes | None  #: The image of all logs; ``None`` if neither copy is valid, or it was not read.


def encode_head(number: int, nonce: int, image: bytes) -> bytes:
    """Return the head of a segment. Its records begin directly behind it."""
    raw = _FIXED.pack(MAGIC, FORMAT_VERSION, PAGE_BYTES, 0, number, nonce, len(image), crc32c(image))
    fixed = (raw + _CRC.pack(crc32c(raw))).ljust(SECTOR_BYTES, b"\0")
    page = (fixed + image[:_BEGIN_BYTES]).ljust(PAGE_BYTES, b"\0")
    rest = image[_BEGIN_BYTES:].ljust(_rest_bytes(len(image)), b"\0")
    return page + page + rest + rest


def written_bytes(image: bytes) -> int:
    """Return the length of a head with this image, without the zeros that fill its pages."""
    return 2 * (SECTOR_BYTES + len(image))


def read_head(file: File, *, image: bool) -> SegmentHead | None:
    """Return the head of an open segment, with its image on request; ``None`` if both copies are invalid.

    Raises:
        FutureVersion: a newer release wrote the segment.
        Foreign: the segment was written before the first release.
        StorageError: no copy is valid, and the disk did not return one of them.
    """
    unread: StorageError | None = None
    for at in (0, PAGE_BYTES):
        try:
            fixed = file.pread(_FIXED.size + _CRC.size, at)
        except StorageError as error:
            unread = error
            continue
        raw, crc = fixed[: _FIXED.size], fixed[_FIXED.size :]
        if len(crc) < _CRC.size or raw[:8] != MAGIC or _CRC.unpack(crc)[0] != crc32c(raw):
            continue
        _, version, _, _, number, nonce, size, image_crc = _FIXED.unpack(raw)
        if version > FORMAT_VERSION:
            fact = f"segment format {version} is newer than {FORMAT_VERSION}, the newest known here"
            raise FutureVersion(fact, path=file.path, offset=8)
        if version < FORMAT_VERSION:
            fact = f"no release wrote segment format {version}; the first one wrote {FORMAT_VERSION}"
            raise Foreign(fact, path=file.path, offset=8)
        found = _read_image(file, size, image_crc) if image else None
        return SegmentHead(number, nonce, 2 * PAGE_BYTES + 2 * _rest_bytes(size), found)
    if unread is not None:
        raise unread
    return None


def _read_image(file: File, size: int, crc: int) -> bytes | None:
    rest = max(0, size - _BEGIN_BYTES)
    unread: StorageError | None = None
    for copy in (0, 1):
        try:
            data = file.pread(size - rest, copy * PAGE_BYTES + SECTOR_BYTES)
            data += file.pread(rest, 2 * PAGE_BYTES + copy * _rest_bytes(size))
        except StorageError as error:
            unread = error
            continue
        if len(data) == size and crc32c(data) == crc:
            return data
    if unread is not None:
        raise unread
    return None


def _rest_bytes(size: int) -> int:
    """Return the length, in complete pages, of the rest of an image of that size."""
    return -(-max(0, size - _BEGIN_BYTES) // PAGE_BYTES) * PAGE_BYTES
