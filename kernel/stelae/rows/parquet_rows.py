"""Rows as they lie in a Parquet file: whoever reads them is handed the file's own bytes.

A store whose files are Parquet need not decode what a scan takes whole, only for its reader to decode another encoding.
It hands on column chunks of row groups, each with the CRC32C under which it was written; the reader has the file's
footer, or gets it once, and decodes. Nothing is decoded that fails its checksum."""

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
    """One column of one row group: where it lies in its file, in bytes, and the CRC32C of them."""

    offset: int
    size_bytes: int
    crc: int


class StoredRows(msgspec.Struct, frozen=True, array_like=True):
    """Which row groups of which file; the bytes of their chunks, one behind the other, travel beside it."""

    file: bytes  #: ``footer_id`` of the file.
    groups: tuple[int, ...]
    places: tuple[
        int | None, ...
    ]  #: Where the file has each column that is read; ``None``: nowhere, its rows are null.
    chunks: tuple[StoredChunk, ...]


class StoredPiece(NamedTuple):
    """Some rows in key order, handed on as they are stored."""

    row_count: int
    stored: StoredRows
    data: Sequence[bytes]  #: The chunks.
    footer: Callable[[], bytes]  #: Reads the end of the file, from its metadata on.


@runtime_checkable
class StoredRowsCursor(Protocol):
    """What a ``Cursor`` may be able to do beside ``next_batch``, in turn with it."""

    def next_stored(self, rows_max: int, bytes_max: int) -> StoredPiece | None:
        """Return the rows that come next as they are stored, and go on behind them.

        They are exactly the rows, with the values, that ``next_batch`` would give. No more than ``rows_max``, and about
        ``bytes_max`` once decoded, unless they are one row group. ``None``: what comes next has to be read by
        ``next_batch``, or is the end. ``Corrupt``: the file is damaged."""
        ...


def footer_id(footer: Buffer) -> bytes:
    """Return what tells a file from all others: a digest of its footer, 16 bytes."""
    return blake2b(footer, digest_size=16).digest()


class Footer:
    """The footer of a Parquet file, parsed when the first rows are read. For any thread.

    Raises:
        Corrupt: it is not the one of the file that is meant.
    """

    def __init__(self, file: bytes, data: Buffer) -> None:
        if footer_id(data) != file:
            raise Corrupt("the footer of a Parquet file is not the one that was announced")
        self.file = file
        self._data = data
        self._metadata: Any = None

    @property
    def metadata(self) -> Any:
        """The ``pyarrow.parquet.FileMetaData``; ``Corrupt``: it is none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._metadata is None:
            try:
                self._metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + bytes(self._data)))
            except (pa.ArrowException, *MALFORMED) as error:
                raise Corrupt(f"not the footer of a Parquet file: {str(error)[:200]}") from error
        return self._metadata


def read_stored(layout: Layout, stored: StoredRows, data: Buffer, footer: Footer) -> RowBatch:
    """Decode rows of a layout, one of the ``places`` for each of its columns.

    ``Corrupt``: a chunk fails its checksum, or the bytes are not such rows."""
    import pyarrow as pa

    if len(stored.places) != len(layout.columns) or stored.file != footer.file:
        raise Corrupt("stored rows of another file, or with other columns than were asked for")
    try:
        batch = _decoded(layout, stored, _checked(stored.chunks, memoryview(data)), footer)
        batch.validate()
    except (pa.ArrowException, IndexError, *MALFORMED) as error:
        raise Corrupt(f"stored rows cannot be read: {str(error)[:200]}") from error
    for column, array in zip(layout.columns, batch.columns, strict=True):
        if not column.nullable and array.null_count:
            raise Corrupt(f"column {column.name!r} of stored rows holds nulls")
    return RowBatch(layout, batch)


def _decoded(layout: Layout, stored: StoredRows, chunks: Mapping[int, memoryview], footer: Footer) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.PythonFile(_Chunks(chunks), mode="r")
    parquet = pq.ParquetFile(file, metadata=footer.metadata, pre_buffer=False)
    places = sorted({place for place in stored.places if place is not None})
    # By place, for names may be of a kind that Arrow takes for paths. One thread: pages are decoded side by side.
    table = parquet.reader.read_row_groups([*stored.groups], column_indices=places, use_threads=False)
    found = dict(zip(places, table.columns, strict=True))
    arrays = [
        pa.nulls(len(table), column.data_type.arrow()) if place is None else found[place]
        for place, column in zip(stored.places, layout.columns, strict=True)
    ]
    (batch,) = pa.Table.from_arrays(arrays, schema=layout.arrow).combine_chunks().to_batches()
    return batch


def _checked(chunks: Sequence[StoredChunk], data: memoryview) -> dict[int, memoryview]:
    """Chunks by where they lie in their file."""
    found, start = {}, 0
    for chunk in chunks:
        end = start + chunk.size_bytes
        piece = data[start:end]
        if chunk.size_bytes < 0 or len(piece) != chunk.size_bytes or crc32c(piece) != chunk.crc:
            raise Corrupt("a column chunk of stored rows fails its checksum", offset=chunk.offset)
        found[chunk.offset] = piece
        start = end
    if start != len(data):
        raise Corrupt(f"{len(data) - start} bytes follow the last column chunk of stored rows")
    return found


class _Chunks(ChunkFile):
    """A file of which only some chunks are here."""

    def __init__(self, chunks: Mapping[int, memoryview]) -> None:
        super().__init__(max((offset + len(chunk) for offset, chunk in chunks.items()), default=0))
        self._chunks = chunks

    def read(self, size: int = -1) -> memoryview:
        chunk = self._chunks.get(self._at)
        if chunk is None or not 0 <= size <= len(chunk):
            raise OSError(f"{size} bytes at {self._at} are none of the column chunks that came")
        self._at += size
        return chunk[:size]
