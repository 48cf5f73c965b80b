"""Keys and values of the environment.

All of them are in the unnamed database, so that a transaction copies the pages of one tree only. The first byte of a
key says what it is:

=====================================  ===========================================================================
key                                    value
=====================================  ===========================================================================
``00``                                 header: magic, version, number of the last flush, of the next node, floor
``01``, flush, transaction             versions that a transaction of a flush wrote: see ``FlushTransaction``
``02``, timestamp, flush, transaction  keys with versions of that transaction that hide older ones, up to timestamp
``03``, stem, age                      version of a row; ``stelae_store_lmdb.keys`` explains stem and age
``03``, stem of a chunk                pointer: number of the node with the rest of the key
``04``, node, ...                      version or pointer within a node
=====================================  ===========================================================================

Flush and timestamp have 8 bytes. A transaction is named by its number within the flush, in 4 bytes. All of these are
big-endian. The header has a checksum at its end. Every other value begins with a CRC32C of key and contents, so a value
that LMDB returns for a wrong key is detected.

A version consists of its schema version (u32, little-endian; 0: the row was deleted) and of the values of that schema's
columns in their order, as one msgpack array. Decimals are text."""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from stelae.spi.errors import Corrupt, FutureVersion
from stelae.spi.services import Buffer

FORMAT_MAGIC = b"stelslmd"
FORMAT_VERSION = 1
HEADER_KEY = b"\x00"
TRANSACTIONS = b"\x01"
HIDING = b"\x02"
CRC_BYTES = 4

_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<8sHHIQQQ")
_TRANSACTION = struct.Struct(">QI")
_HIDING = struct.Struct(">QQI")
_NODE = struct.Struct("<Q")


class Header(msgspec.Struct, frozen=True):
    """The header of the environment."""

    flush: int = 0  #: Number of the last flush that wrote to it.
    next_node: int = 1  #: Number of the next node.
    floor: int = 0  #: The floor of compaction: versions below it may have been removed.


class FlushTransaction(msgspec.Struct, frozen=True, array_like=True):
    """The versions that one transaction of a flush wrote, so that a start can remove them again."""

    hiding: int  #: Timestamp in the key of its list of hiding keys; -1: it has none.
    versions: tuple[tuple[bytes, int, int], ...]  #: Encoded key, timestamp and index of each.


class HidingKeys(msgspec.Struct, frozen=True, array_like=True):
    """Keys with versions that hide older ones, for compaction."""

    keys: tuple[bytes, ...]


def encode_header(header: Header) -> bytes:
    """Return the encoded header."""
    raw = _HEADER.pack(FORMAT_MAGIC, FORMAT_VERSION, 0, 0, header.flush, header.next_node, header.floor)
    return raw + _CRC.pack(crc32c(raw))


def decode_header(data: Buffer, path: str) -> Header:
    """Decode the header.

    Raises:
        Corrupt: it is damaged.
        FutureVersion: a later release wrote it.
    """
    raw = bytes(data)
    if len(raw) < 10 or raw[:8] != FORMAT_MAGIC:
        raise Corrupt(f"the header of the environment begins with {raw[:8]!r}", path=path, offset=0)
    version = int.from_bytes(raw[8:10], "little")
    if version > FORMAT_VERSION:
        fact = f"the environment has format {version}; this release knows {FORMAT_VERSION}"
        raise FutureVersion(fact, path=path)
    if len(raw) != _HEADER.size + CRC_BYTES or _CRC.unpack_from(raw, _HEADER.size)[0] != crc32c(raw[:-CRC_BYTES]):
        raise Corrupt("the checksum of the environment's header is wrong", path=path, offset=0)
    return Header(*_HEADER.unpack_from(raw)[4:])


def checksummed_value(key: bytes, contents: bytes) -> bytes:
    """Return the value for some contents: the checksum of key and contents, then the contents."""
    return _CRC.pack(crc32c(contents, crc32c(key))) + contents


def verified_contents(key: bytes, value: Buffer, path: str) -> bytes:
    """Check a value, and return a copy of its contents. ``Corrupt``: its checksum is wrong for this key."""
    data = bytes(value)
    contents = data[CRC_BYTES:]
    if len(data) < CRC_BYTES or _CRC.unpack_from(data)[0] != crc32c(contents, crc32c(key)):
        raise Corrupt(f"the checksum of the value of key {key[:40].hex()} is wrong", path=path, offset=0)
    return contents


def transaction_key(flush: int, transaction: int) -> bytes:
    """Return the key of the record of a transaction."""
    return TRANSACTIONS + _TRANSACTION.pack(flush, transaction)


def split_transaction_key(key: bytes) -> tuple[int, int]:
    """Return flush and transaction from the key of the record of a transaction."""
    flush, transaction = _TRANSACTION.unpack_from(key, 1)
    return flush, transaction


def hiding_key(timestamp: int, flush: int, transaction: int) -> bytes:
    """Return the key of a list of hiding keys."""
    return HIDING + _HIDING.pack(timestamp, flush, transaction)


def split_hiding_key(key: bytes) -> tuple[int, int, int]:
    """Return timestamp, flush and transaction from the key of a list of hiding keys."""
    timestamp, flush, transaction = _HIDING.unpack_from(key, 1)
    return timestamp, flush, transaction


def encode_node(node: int) -> bytes:
    """Return the contents of a pointer."""
    return _NODE.pack(node)


def decode_node(contents: bytes) -> int:
    """Return the node from the contents of a pointer."""
    return int(_NODE.unpack(contents)[0])


def encode_list(found: FlushTransaction | HidingKeys) -> bytes:
    """Return the contents of the record of a transaction, or of a list of keys."""
    return _ENCODER.encode(found)


decode_transaction = msgspec.msgpack.Decoder(FlushTransaction).decode
decode_hiding = msgspec.msgpack.Decoder(HidingKeys).decode
_ENCODER = msgspec.msgpack.Encoder()
