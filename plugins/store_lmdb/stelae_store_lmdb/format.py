"""Keys and values of the environment.

All of them stand in the unnamed database, so that a transaction copies the pages of one tree. The first byte of a key
says what it is:

====================================  ========================================================================
key                                   value
====================================  ========================================================================
``00``                                header: magic, version, number of the last flush, of the next node, floor
``01``, flush, piece                  what a piece of a flush wrote, so that it can be taken back: see ``Piece``
``02``, timestamp, flush, piece       keys of which that piece wrote versions that hide older ones, up to then
``03``, stem, age                     a version of a row; ``stelae_store_lmdb.keys`` has stem and age
``03``, stem of a chunk               pointer: number of the node with what follows the chunk
``04``, node, ...                     the same within a node
====================================  ========================================================================

Flush and timestamp are 8 bytes, piece is 4, big-endian. Every value but the header, which has a checksum at its end,
begins with a CRC32C of key and contents: a value that LMDB hands out under another key than its own fails it.

A version is the schema version under which it was written (u32, little-endian; 0: the row was deleted) and the values
of that schema's columns, in its order, as one array in msgpack, decimals as text."""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from stelae.spi.errors import Corrupt, FutureVersion
from stelae.spi.services import Buffer

FORMAT_MAGIC = b"stelslmd"
FORMAT_VERSION = 1
HEADER_KEY = b"\x00"
PIECES = b"\x01"
HIDING = b"\x02"
CRC_BYTES = 4

_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<8sHHIQQQ")
_PIECE = struct.Struct(">QI")
_HIDING = struct.Struct(">QQI")
_NODE = struct.Struct("<Q")


class Header(msgspec.Struct, frozen=True):
    """What the environment says of itself."""

    flush: int = 0  #: Number of the last flush that wrote to it.
    next_node: int = 1
    floor: int = 0  #: History behind it may be gone.


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """What one transaction of a flush wrote."""

    hiding: int  #: Timestamp in the key of its list of hiding versions; -1: it has none.
    versions: tuple[tuple[bytes, int, int], ...]  #: Encoded key, timestamp and index of each.


class HidingKeys(msgspec.Struct, frozen=True, array_like=True):
    """Keys that compaction has to look at."""

    keys: tuple[bytes, ...]


def encode_header(header: Header) -> bytes:
    """Return the value of the header."""
    raw = _HEADER.pack(FORMAT_MAGIC, FORMAT_VERSION, 0, 0, header.flush, header.next_node, header.floor)
    return raw + _CRC.pack(crc32c(raw))


def decode_header(data: Buffer, path: str) -> Header:
    """Read the header. ``FutureVersion``, ``Corrupt``."""
    raw = bytes(data)
    if len(raw) < 10 or raw[:8] != FORMAT_MAGIC:
        raise Corrupt(f"the header of the environment begins with {raw[:8]!r}", path=path, offset=0)
    version = int.from_bytes(raw[8:10], "little")
    if version > FORMAT_VERSION:
        fact = f"format {version} is newer than {FORMAT_VERSION}, the newest known here"
        raise FutureVersion(fact, path=path)
    if len(raw) != _HEADER.size + CRC_BYTES or _CRC.unpack_from(raw, _HEADER.size)[0] != crc32c(raw[:-CRC_BYTES]):
        raise Corrupt("the header of the environment fails its checksum", path=path, offset=0)
    return Header(*_HEADER.unpack_from(raw)[4:])


def closed_value(key: bytes, contents: bytes) -> bytes:
    """Return a value with the checksum of its key and contents before it."""
    return _CRC.pack(crc32c(contents, crc32c(key))) + contents


def opened_value(key: bytes, value: Buffer, path: str) -> bytes:
    """Return the contents of a value, copied. ``Corrupt``: not what was put under that key."""
    data = bytes(value)
    contents = data[CRC_BYTES:]
    if len(data) < CRC_BYTES or _CRC.unpack_from(data)[0] != crc32c(contents, crc32c(key)):
        raise Corrupt(f"the value under the key {key[:40].hex()} fails its checksum", path=path, offset=0)
    return contents


def piece_key(flush: int, piece: int) -> bytes:
    """The key of a piece."""
    return PIECES + _PIECE.pack(flush, piece)


def split_piece_key(key: bytes) -> tuple[int, int]:
    """Flush and piece of a key."""
    flush, piece = _PIECE.unpack_from(key, 1)
    return flush, piece


def hiding_key(timestamp: int, flush: int, piece: int) -> bytes:
    """The key of a list of hiding versions."""
    return HIDING + _HIDING.pack(timestamp, flush, piece)


def split_hiding_key(key: bytes) -> tuple[int, int, int]:
    """Timestamp, flush and piece of a key."""
    timestamp, flush, piece = _HIDING.unpack_from(key, 1)
    return timestamp, flush, piece


def encode_node(node: int) -> bytes:
    """The contents of a pointer."""
    return _NODE.pack(node)


def decode_node(contents: bytes) -> int:
    """The node of a pointer."""
    return int(_NODE.unpack(contents)[0])


def encode_list(found: Piece | HidingKeys) -> bytes:
    """The contents of a piece, or of a list of keys."""
    return _ENCODER.encode(found)


decode_piece = msgspec.msgpack.Decoder(Piece).decode
decode_hiding = msgspec.msgpack.Decoder(HidingKeys).decode
_ENCODER = msgspec.msgpack.Encoder()
