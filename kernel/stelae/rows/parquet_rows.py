"""Rows as they are stored in a Parquet file, handed to a reader as the bytes of the file.

A store with Parquet files need not decode rows that a scan returns unchanged. It hands out the column chunks of row
groups, each with the CRC32C that was stored when it was written. The reader has the footer of the file, or fetches it
once, and decodes the chunks. A chunk is decoded only if its checksum is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from crc32c import crc32c

from stelae.rows.chunk_file import ChunkFile
from stelae.spi.errors import Corrupt
from stelae.spi.rows import MALFORMED, RowBatch
from stelae.spi.schema import Layout
from stelae.spi.services import Buffer


class StoredChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One column of one row group in its file: offset and size in bytes, and the CRC32C of these bytes."""

    offset: int
    size_bytes: int
    crc: int


class StoredRows(msgspec.Struct, frozen=True, array_like=True):
    """The row groups of a file that a reader gets. The bytes of their chunks travel beside it, one after the other."""

    file: bytes  #: ``footer_id`` of the file.
    groups: tuple[int, ...]
    places: tuple[int | None, ...]
    """The position in the file of each column that is read. ``None``: the file lacks it, and all values are null."""
    chunks: tuple[StoredChunk, ...]


class StoredPage(NamedTuple):
    """Some rows in key order, in their stored form."""

    row_count: int
    stored: StoredRows
    data: Sequence[bytes]  #: The bytes of each chunk.
    footer: Callable[[], bytes]  #: Reads the footer: the end of the file, from its metadata on.


@runtime_checkable
class StoredRowsCursor(Protocol):
    """A ``Cursor`` that can also return stored rows. ``next_stored`` and ``next_batch`` may be called in any order."""

    def next_stored(self, rows_max: int, bytes_max: int) -> StoredPage | None:
        """Return the next rows in their stored form, and move behind them.

        They are exactly the rows and values that ``next_batch`` would return: at most ``rows_max`` rows, and about
        ``bytes_max`` once decoded, except that one row group is always allowed. ``None``: the next rows must be read
        with ``next_batch``, or there are none. ``Corrupt``: the file is damaged."""
        ...


def footer_id(footer: Buffer) -> bytes:
    """Return the identity of a file: a digest of its footer, 16 bytes."""
    return blake2b(footer, digest_size=16).digest()


class Footer:
    """The footer of a Parquet file. It is parsed when the first rows are read. Any thread may use it.

    Raises:
        Corrupt: the footer belongs to another file.
    """

    def __init__(self, file: bytes, data: Buffer) -> None:
        if footer_id(data) != file:
            raise Corrupt("the footer belongs to another Parquet file than the rows")
        self.file = file
        self._data = data
        self._metadata: Any = None

    @property
    def metadata(self) -> Any:
        """The metadata, a ``pyarrow.parquet.FileMetaData``. ``Corrupt``: the footer cannot be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._metadata is None:
            try:
                self._metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + bytes(self._data)))
            except (pa.ArrowException, *MALFORMED) as error:
                raise Corrupt(f"the footer of a Parquet file cannot be read: {str(error)[:200]}") from error
        return self._metadata


def read_stored(layout: Layout, stored: StoredRows, data: Buffer, footer: Footer) -> RowBatch:
    """Decode stored rows. ``stored`` has one of its ``places`` for each column of the layout.

    ``Corrupt``: a checksum is wrong, or the bytes are not the rows of this layout."""
    import pyarrow as pa

    if len(stored.places) != len(layout.columns) or stored.file != footer.file:
        raise Corrupt("the stored rows belong to another file, or have other columns than the request")
    try:
        batch = _decoded(layout, stored, _checked(stored.chunks, memoryview(data)), footer)
        batch.validate()
    except (pa.ArrowException, IndexError, *MALFORMED) as error:
        raise Corrupt(f"stored rows cannot be read: {str(error)[:200]}") from error
    for column, array in zip(layout.columns, batch.columns, strict=True):
        if not column.nullable and array.null_count:
            raise Corrupt(f"column {column.name!r} of stored rows has nulls, but is not nullable")
    return RowBatch(layout, batch)


def _decoded(layout: Layout, stored: StoredRows, chunks: Mapping[int, memoryview], footer: Footer) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.PythonFile(_ReceivedChunks(chunks), mode="r")
    parquet = pq.ParquetFile(file, metadata=footer.metadata, pre_buffer=False)
    places = sorted({place for place in stored.places if place is not None})
    # By position, because Arrow reads some names as paths. With one thread, because pages are decoded concurrently.
    table = parquet.reader.read_row_groups([*stored.groups], column_indices=places, use_threads=False)
    columns = dict(zip(places, table.columns, strict=True))
    arrays = [
        pa.nulls(len(table), column.data_type.arrow()) if place is None else columns[place]
        for place, column in zip(stored.places, layout.columns, strict=True)
    ]
    (batch,) = pa.Table.from_arrays(arrays, schema=layout.arrow).combine_chunks().to_batches()
    return batch


def _checked(chunks: Sequence[StoredChunk], data: memoryview) -> dict[int, memoryview]:
    """Check the chunks, and return their bytes by offset in the file."""
    by_offset, start = {}, 0
    for chunk in chunks:
        end = start + chunk.size_bytes
        content = data[start:end]
        if chunk.size_bytes < 0 or len(content) != chunk.size_bytes or crc32c(content) != chunk.crc:
            raise Corrupt("the checksum of a column chunk of stored rows is wrong", offset=chunk.offset)
        by_offset[chunk.offset] = content
        start = end
    if start != len(data):
        raise Corrupt(f"{len(data) - start} bytes follow the last column chunk of stored rows")
    return by_offset


class _ReceivedChunks(ChunkFile):
    """A file of which only some chunks were received."""

    def __init__(self, chunks: Mapping[int, memoryview]) -> None:
        super().__init__(max((offset + len(chunk) for offset, chunk in chunks.items()), default=0))
        self._chunks = chunks

    def read(self, size: int = -1) -> memoryview:
        chunk = self._chunks.get(self._position)
        if chunk is None or not 0 <= size <= len(chunk):
            raise OSError(f"no received column chunk has {size} bytes at {self._position}")
        self._position += size
        return chunk[:size]
