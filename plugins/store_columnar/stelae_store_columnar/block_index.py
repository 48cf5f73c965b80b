"""The index of a block: a small file beside the Parquet file, with what reading it needs to know first.

Layout, little-endian: magic ``SCI`` and a format version byte; CRC32C of the rest (u32); a :class:`BlockIndex` in
msgpack. It names every column chunk of the Parquet file with offset, length and CRC32C, so that nothing of a block is
believed that was not checked; a Parquet reader that knows nothing of it needs none of it."""

from __future__ import annotations

import struct
from functools import cached_property

import msgspec
from crc32c import crc32c

from stelae.rows.key_order import Comparable
from stelae.spi.errors import Corrupt, FutureVersion

_PREFIX = struct.Struct("<3sBI")
_MAGIC = b"SCI"
_VERSION = 1


class PieceIndex(msgspec.Struct, frozen=True, array_like=True):
    """One row group. No key has versions in two row groups of a block."""

    rows: int
    first: int | bytes  #: Comparable of the first row's key,
    last: int | bytes  #: and of the last one's.
    stamp_min: int
    stamp_max: int
    deletions: int
    unique: bool  #: Each key has one version.
    schemas: tuple[int, ...]  #: Schema versions of its rows.
    size_bytes: int  #: Decoded, about.
    bloom: bytes


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One column of one row group in the Parquet file."""

    offset: int
    size_bytes: int
    crc: int


class BlockIndex(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """What is in a block."""

    rows: int
    ids: tuple[int, ...]  #: Ids of the table's columns, in file order; the system columns follow them.
    names: tuple[str, ...]  #: Names of all columns in the file.
    pieces: tuple[PieceIndex, ...]
    chunks: tuple[Chunk, ...]  #: Row group by row group, in file order.
    footer: Chunk  #: The end of the file, from the metadata on.
    garbage_rows: int  #: Versions that some floor makes superfluous,
    garbage_stamp: int  #: the least floor for half of them,
    garbage_stamp_max: int  #: and for all.

    @property
    def first(self) -> Comparable:
        """The least key."""
        return self.pieces[0].first

    @property
    def last(self) -> Comparable:
        """The greatest key."""
        return self.pieces[-1].last

    @property
    def file_bytes(self) -> int:
        """Length of the Parquet file."""
        return self.footer.offset + self.footer.size_bytes

    @cached_property
    def by_offset(self) -> dict[int, Chunk]:
        """Column chunks by where they begin."""
        return {chunk.offset: chunk for chunk in self.chunks}

    @cached_property
    def places(self) -> dict[int, int]:
        """Position in the file of each of the table's columns."""
        return {column_id: place for place, column_id in enumerate(self.ids)}


def encode_index(index: BlockIndex) -> bytes:
    """Return the contents of an index file."""
    body = _ENCODER.encode(index)
    return _PREFIX.pack(_MAGIC, _VERSION, crc32c(body)) + body


def decode_index(data: bytes, path: str) -> BlockIndex:
    """Read an index file; ``Corrupt``, ``FutureVersion``: it is none, or is damaged."""
    if len(data) < _PREFIX.size:
        raise Corrupt(f"the index of a block has {len(data)} bytes", path=path, offset=0)
    magic, version, crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise Corrupt(f"not the index of a block: begins with {data[:4]!r}", path=path, offset=0)
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise Corrupt("the index of a block fails its checksum", path=path, offset=_PREFIX.size)
    if version != _VERSION:
        raise FutureVersion(f"the index of a block has format {version}; this release knows {_VERSION}", path=path)
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"the index of a block: {error}", path=path, offset=_PREFIX.size) from error


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(BlockIndex)
