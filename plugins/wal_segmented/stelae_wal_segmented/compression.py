"""Compressed bodies, for those who would rather spend processor time than disk space.

::

    stored body   length of the body (4 bytes), CRC32C of the body (4 bytes), compressed bytes

Each body is compressed by itself, so that one entry is read without its neighbours, and stored as
it is where that is not smaller. The checksum in the entry's header is of the stored bytes: a scan
expands nothing. The two numbers before the compressed bytes are for the reader: the length is judged
before a byte is reserved for it, and the checksum says whether what came out is what went in."""

from __future__ import annotations

import struct
import threading
from enum import IntEnum
from typing import TYPE_CHECKING

from crc32c import crc32c

from stelae.spi.errors import Corrupt
from stelae.spi.log import ENTRY_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX = struct.Struct("<II")


class Codec(IntEnum):
    """How a body is compressed. Stored; numbers are never reused."""

    NONE = 0
    """Not at all."""
    LZ4 = 1
    """A raw LZ4 block: a few microseconds for 4 KiB."""
    ZSTD = 2
    """A Zstandard frame: smaller, and many times slower."""


_ARROW_NAMES = {Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}
_RATIO_MAX = {Codec.LZ4: 255, Codec.ZSTD: ENTRY_BYTES_MAX}
"""How many bytes one compressed byte can stand for."""


class Compressor:
    """Compresses bodies that are worth it.

    Args:
        name: of the codec, as in the settings.
        bytes_min: smaller bodies are left as they are.
    """

    __slots__ = ("_bytes_min", "_codec")

    def __init__(self, name: str, bytes_min: int) -> None:
        self._codec = Codec[name.upper()]
        self._bytes_min = bytes_min

    def shrink(self, body: bytes) -> tuple[Codec, bytes]:
        """Return how a body is stored; as it is, unless that is larger."""
        if len(body) < self._bytes_min:
            return Codec.NONE, body
        compressed = _libraries.codec(self._codec).compress(body, asbytes=True)
        if _PREFIX.size + len(compressed) >= len(body):
            return Codec.NONE, body
        return self._codec, _PREFIX.pack(len(body), crc32c(body)) + compressed


def compressor_of(name: str, bytes_min: int) -> Compressor | None:
    """Return what the settings ask for; ``None`` for no compression."""
    return None if name == "none" else Compressor(name, bytes_min)


def expand(number: int, stored: bytes, path: str, offset: int) -> bytes:
    """Return the body that was stored in this way.

    Args:
        number: of the codec, from the entry's header.
        stored: the stored bytes, whose checksum holds.
        path, offset: where the entry is, for errors.

    Raises:
        Corrupt: the codec is unknown here, the length cannot be, or the bytes do not expand to
            what they say.
    """
    try:
        codec = Codec(number)
    except ValueError as error:
        known = ", ".join(f"{one:d} ({one.name.lower()})" for one in Codec)
        raise Corrupt(f"compression {number} is unknown; known are {known}", path=path, offset=offset) from error
    if codec is Codec.NONE:
        return stored
    if len(stored) <= _PREFIX.size:
        raise Corrupt("a compressed body is cut short", path=path, offset=offset)
    size, checksum = _PREFIX.unpack_from(stored)
    compressed = stored[_PREFIX.size :]
    if size > min(ENTRY_BYTES_MAX, len(compressed) * _RATIO_MAX[codec]):
        raise Corrupt(f"{len(compressed)} compressed bytes cannot be a body of {size}", path=path, offset=offset)
    try:
        body: bytes = _libraries.codec(codec).decompress(compressed, decompressed_size=size, asbytes=True)
    except OSError as error:
        raise Corrupt(f"a body does not expand: {error}", path=path, offset=offset) from error
    if len(body) != size or crc32c(body) != checksum:
        raise Corrupt("a body expands to something else", path=path, offset=offset)
    return body


class _Libraries(threading.local):
    """The library's codecs, one of each kind for every thread: they may keep state of their own."""

    def __init__(self) -> None:
        self._found: dict[Codec, pa.Codec] = {}

    def codec(self, codec: Codec) -> pa.Codec:
        """Return one, loading the library only for those who compress or meet what was compressed."""
        found = self._found.get(codec)
        if found is None:
            from pyarrow import Codec as ArrowCodec

            found = self._found[codec] = ArrowCodec(_ARROW_NAMES[codec])
        return found


_libraries = _Libraries()
