"""The head of a segment: who it is, and an image of all logs at its beginning, both twice.

::

    fixed part (one sector) | fixed part again | image | image again

It is durable before the segment gets its name. Twice, because it is the one place whose loss would
touch every log of the node: a bad sector in either copy costs nothing."""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import Foreign, FutureVersion
from stelae.spi.services import File
from stelae_wal_shared.format import FORMAT_VERSION

MAGIC = b"stelwalx"
SECTOR_BYTES = 512

_FIXED = struct.Struct("<8sHHIQQQI")
_CRC = struct.Struct("<I")


class Head(NamedTuple):
    """What the head of a segment says; ``image`` is ``None`` if neither copy of it is valid."""

    number: int
    nonce: int
    start: int
    image: bytes | None


def encode_head(number: int, nonce: int, image: bytes) -> bytes:
    """Return the head of a segment; its records begin right behind it."""
    raw = _FIXED.pack(MAGIC, FORMAT_VERSION, SECTOR_BYTES, 0, number, nonce, len(image), crc32c(image))
    fixed = (raw + _CRC.pack(crc32c(raw))).ljust(SECTOR_BYTES, b"\0")
    return fixed + fixed + image + image


def read_head(file: File, *, image: bool) -> Head | None:
    """Return the head of an open segment, with its image if asked for; ``None`` if both copies are bad.

    Raises:
        FutureVersion: a newer release wrote it.
        Foreign: it is from before the first one.
        StorageError: it cannot be read.
    """
    sectors = file.pread(2 * SECTOR_BYTES, 0)
    for at in (0, SECTOR_BYTES):
        raw = sectors[at : at + _FIXED.size]
        crc = sectors[at + _FIXED.size : at + _FIXED.size + _CRC.size]
        if len(crc) < _CRC.size or raw[:8] != MAGIC or _CRC.unpack(crc)[0] != crc32c(raw):
            continue
        _, version, _, _, number, nonce, size, image_crc = _FIXED.unpack(raw)
        if version > FORMAT_VERSION:
            fact = f"segment format {version} is newer than {FORMAT_VERSION}, the newest known here"
            raise FutureVersion(fact, path=file.path, offset=8)
        if version < FORMAT_VERSION:
            fact = f"segment format {version} is of no release; the first one wrote {FORMAT_VERSION}"
            raise Foreign(fact, path=file.path, offset=8)
        found = _read_image(file, size, image_crc) if image else None
        return Head(number, nonce, 2 * SECTOR_BYTES + 2 * size, found)
    return None


def _read_image(file: File, size: int, crc: int) -> bytes | None:
    for at in (2 * SECTOR_BYTES, 2 * SECTOR_BYTES + size):
        data = file.pread(size, at)
        if len(data) == size and crc32c(data) == crc:
            return data
    return None
