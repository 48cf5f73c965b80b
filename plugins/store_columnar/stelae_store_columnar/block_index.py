"""The index of a block: a small file beside the Parquet file, with what a reader needs before it reads the block.

Layout, little-endian: magic ``SCI`` and a format version byte; CRC32C of the rest (u32); a :class:`BlockIndex` in
msgpack. It has offset, size and CRC32C of every column chunk of the Parquet file, so every byte of a block is checked
before it is used. Other Parquet readers do not need it."""

from __future__ import annotations

import struct
from functools import cached_property

import msgspec
from crc32c import crc32c

from stelae.rows.key_order import Comparable
from stelae.spi.errors import Corrupt, FutureVersion, StorageError

_PREFIX = struct.Struct("<3sBI")
_MAGIC = b"SCI"
INDEX_VERSION = 2


class RowGroupIndex(msgspec.Struct, frozen=True, array_like=True):
    """One row group. All versions of a key are in the same row group of a block."""

    rows: int
    first: int | bytes  #: Comparable of the first key.
    last: int | bytes  #: Comparable of the last key.
    stamp_min: int  #: Lowest hybrid timestamp of its versions.
    stamp_max: int  #: Highest hybrid timestamp of its versions.
    deletions: int  #: Number of deletions.
    unique: bool  #: True if each key has one version.
    schemas: tuple[int, ...]  #: The schema versions of its rows.
    size_bytes: int  #: Approximate size once decoded.
    bloom: bytes  #: The Bloom filter over its keys.


class ColumnChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One column of one row group in the Parquet file."""

    offset: int
    size_bytes: int
    crc: int


class BlockIndex(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The contents of a block."""

    rows: int
    ids: tuple[int, ...]  #: Ids of the table's columns, in file order; the system columns follow them.
    names: tuple[str, ...]  #: Names of all columns in the file.
    row_groups: tuple[RowGroupIndex, ...]
    chunks: tuple[ColumnChunk, ...]  #: Row group by row group, in file order.
    footer: ColumnChunk  #: The footer: the end of the file, from its metadata on.
    #: SHA-256 of the Parquet file as it was written, hexadecimal. A copy is checked against it, and so has no damage of
    #: its source.
    digest: str
    garbage_rows: int  #: Number of versions that become superfluous with a high enough history floor.
    garbage_stamp: int  #: Lowest floor with which half of them are superfluous.
    garbage_stamp_max: int  #: Lowest floor with which all of them are.

    @property
    def first(self) -> Comparable:
        """The smallest key."""
        return self.row_groups[0].first

    @property
    def last(self) -> Comparable:
        """The largest key."""
        return self.row_groups[-1].last

    @property
    def file_bytes(self) -> int:
        """Size of the Parquet file."""
        return self.footer.offset + self.footer.size_bytes

    @cached_property
    def by_offset(self) -> dict[int, ColumnChunk]:
        """Column chunks by offset."""
        return {chunk.offset: chunk for chunk in self.chunks}

    @cached_property
    def positions(self) -> dict[int, int]:
        """Position in the file of each of the table's columns."""
        return {column_id: position for position, column_id in enumerate(self.ids)}


def encode_index(index: BlockIndex) -> bytes:
    """Return the contents of an index file."""
    body = _ENCODER.encode(index)
    return _PREFIX.pack(_MAGIC, INDEX_VERSION, crc32c(body)) + body


def decode_index(data: bytes, path: str) -> BlockIndex:
    """Decode an index file.

    Raises:
        Corrupt: it is damaged, or is not an index file.
        FutureVersion: a release with another format wrote it.
        StorageError: its checksum is right, and it cannot be decoded: that is a defect, and no damage.
    """
    if len(data) < _PREFIX.size:
        raise Corrupt(f"the index of a block has only {len(data)} bytes", path=path, offset=0)
    magic, version, crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise Corrupt(f"not the index of a block: it begins with {data[:4]!r}", path=path, offset=0)
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise Corrupt("the checksum of a block's index is wrong", path=path, offset=_PREFIX.size)
    if version != INDEX_VERSION:
        raise FutureVersion(f"the index of a block has format {version}; this release knows {INDEX_VERSION}", path=path)
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        raise StorageError(
            f"the index of a block cannot be decoded: {error}", path=path, offset=_PREFIX.size
        ) from error


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(BlockIndex)
