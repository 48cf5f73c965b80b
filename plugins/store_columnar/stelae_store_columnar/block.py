"""Blocks: immutable Parquet files with their index, read row group by row group and column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stelae.rows.key_order import KeyOrder
from stelae.rows.parquet_rows import StoredChunk, StoredRows, footer_id
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout
from stelae.spi.services import File, Files
from stelae_store_columnar.block_index import BlockIndex, decode_index
from stelae_store_columnar.cache import DecodedCache
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.verified import VerifiedFile, read_chunk
from stelae_store_columnar.versions import Versions

_THREADS_BYTES_MIN = 4 << 20  #: Smaller reads are not spread over Arrow's threads: that costs more than it saves.
ENTRY_BYTES = 200  #: What an entry of the cache costs besides its array.
_IDLE_MAX = 2  #: Parquet readers that a block keeps: making one costs as much as decoding a small row group.


class BlockReader:
    """What reading blocks takes besides the block: files, cache, and how keys compare."""

    def __init__(self, files: Files, cache: DecodedCache, order: KeyOrder, key_layout: Layout) -> None:
        self.files = files
        self.cache = cache
        self.order = order
        self.key_layout = key_layout

    def keys(self, columns: dict[int, Any]) -> Any:
        """Return the comparables of rows from their key columns."""
        arrays = [columns[column_id] for column_id in self.key_layout.ids]
        return self.order.array(RowBatch.from_arrays(self.key_layout, arrays))


class Statistics(NamedTuple):
    """Of one column in one row group, as Parquet has them; least and greatest may be unknown."""

    least: Any
    greatest: Any
    nulls: int
    rows: int


class Block:
    """One block. Any thread may read it, also after its files were unlinked, as long as somebody has it."""

    def __init__(self, reader: BlockReader, path: str, index: BlockIndex) -> None:
        self.path = path
        self.index = index
        self._reader = reader
        self._metadata: Any = None
        self._id: bytes | None = None
        self._kept: File | None = None
        self._lock = Lock()
        self._idle: list[tuple[VerifiedFile, Any]] = []

    @classmethod
    def open(cls, reader: BlockReader, path: str) -> Block:
        """Open a block from its files; ``StorageError``: missing, damaged, or not of the length that it should have."""
        try:
            index = decode_index(reader.files.read_bytes(path + ".index"), path + ".index")
            file = reader.files.open(path + ".parquet")
        except FileNotFoundError as error:
            raise StorageError(f"a file of a block is missing: {error}", path=path) from error
        try:
            size_bytes = file.size()
        finally:
            file.close()
        if size_bytes != index.file_bytes:
            fact = f"a block of {index.file_bytes} bytes has {size_bytes}"
            raise Corrupt(fact, path=path + ".parquet", offset=min(size_bytes, index.file_bytes))
        return cls(reader, path, index)

    def __del__(self) -> None:
        if self._kept is not None:
            self._kept.close()

    def keep(self) -> None:
        """Hold the file open: its name is about to go, and a cursor may still need it."""
        with self._lock:
            if self._kept is None:
                self._kept = self._reader.files.open(self.path + ".parquet")

    def load(self, pieces: Sequence[int], places: Sequence[int]) -> Any:
        """Return columns, by position in the file, of row groups as a ``pyarrow.Table``, every byte checked.

        ``Corrupt``: the bytes are not those that were written."""
        index = self.index
        names = [index.names[place] for place in places]
        threads = sum(index.pieces[piece].size_bytes for piece in pieces) >= _THREADS_BYTES_MIN
        with self._file() as file:
            source, parquet = self._idle.pop() if self._idle else self._new_reader(file)
            source.file = file
            try:
                table = parquet.read_row_groups([*pieces], columns=names, use_threads=threads)
            except (pa.ArrowException, OSError) as error:
                raise Corrupt(f"row groups {[*pieces]!r}: {error}", path=self.path + ".parquet") from error
            source.file = None
            if len(self._idle) < _IDLE_MAX:
                self._idle.append((source, parquet))
            return table

    def stored(self, pieces: Sequence[int], ids: Sequence[int]) -> tuple[StoredRows, list[bytes]]:
        """Return columns of row groups as they lie in the file, checked, and null where the file lacks them.

        ``Corrupt``: the bytes are not those that were written."""
        index = self.index
        places = [index.places.get(column_id) for column_id in ids]
        width = len(index.names)
        wanted = [index.chunks[piece * width + place] for piece in pieces for place in places if place is not None]
        with self._file() as file:
            data = [read_chunk(file, chunk, self.path + ".parquet") for chunk in wanted]
        chunks = tuple(StoredChunk(chunk.offset, chunk.size_bytes, chunk.crc) for chunk in wanted)
        return StoredRows(self._file_id(), tuple(pieces), tuple(places), chunks), data

    def decoded_bytes(self, piece: int, ids: Sequence[int]) -> int:
        """Estimate what columns of a row group take once decoded, by their share of the file.

        Texts of which a dictionary makes little are more than that: never less than an eighth of all columns."""
        index, width = self.index, len(self.index.names)
        sizes = [chunk.size_bytes for chunk in index.chunks[piece * width : (piece + 1) * width]]
        mine = sum(sizes[index.places[i]] for i in ids if i in index.places)
        whole = index.pieces[piece].size_bytes
        return max(whole * mine // sum(sizes), whole // 8)

    def footer(self) -> bytes:
        """Return the end of the file, from its metadata on, checked."""
        with self._file() as file:
            return read_chunk(file, self.index.footer, self.path + ".parquet")

    def versions(self, piece: int, ids: Sequence[int]) -> Versions:
        """Return all versions of one row group with the columns that the block has of those asked for."""
        wanted = self._wanted(ids)
        table = self.load([piece], wanted)
        arrays = {place: _one(table.column(self.index.names[place])) for place in wanted}
        return self._assemble(arrays, ids, None)

    def cached_versions(self, piece: int, ids: Sequence[int]) -> Versions:
        """As :meth:`versions`, by way of the cache, for a reader that will come back for other rows."""
        arrays = self._cached(piece, self._wanted(ids))
        return self._assemble(arrays, ids, self._sorted_keys(piece, arrays).array)

    def keys(self, piece: int) -> SortedKeys:
        """Return the sorted keys of one row group, by way of the cache."""
        found = self._reader.cache.get((self.path, piece))
        if found is not None:
            assert isinstance(found, SortedKeys)
            return found
        places = [self.index.places[column_id] for column_id in self._reader.key_layout.ids]
        return self._sorted_keys(piece, self._cached(piece, places))

    def _sorted_keys(self, piece: int, arrays: dict[int, Any]) -> SortedKeys:
        cache = self._reader.cache
        found = cache.get((self.path, piece))
        if found is None:
            found = SortedKeys(
                self._reader.keys({i: arrays[self.index.places[i]] for i in self._reader.key_layout.ids})
            )
            cache.put((self.path, piece), found, found.array.nbytes + ENTRY_BYTES)
        assert isinstance(found, SortedKeys)
        return found

    def _cached(self, piece: int, places: Sequence[int]) -> dict[int, Any]:
        """Columns of one row group by position in the file; those that are not in the cache are read together."""
        cache = self._reader.cache
        found = {place: cache.get((self.path, piece, place)) for place in places}
        absent = [place for place, array in found.items() if array is None]
        table: Any = self.load([piece], absent) if absent else None
        for place in absent:
            array = found[place] = _one(table.column(self.index.names[place]))
            cache.put((self.path, piece, place), array, array.nbytes + ENTRY_BYTES)
        return found

    def statistics(self, piece: int, column: Column) -> Statistics | None:
        """Return what the file says of a column of a row group; ``None``: nothing."""
        place = self.index.places.get(column.id)
        if place is None:
            return None
        metadata = self._metadata
        if metadata is None:
            with self._file() as file:
                metadata = self._footer(file)
        found = metadata.row_group(piece).column(place).statistics
        if found is None or not found.has_null_count:
            return None
        ordered = found.has_min_max and not column.type.startswith("decimal")
        least, greatest = (found.min_raw, found.max_raw) if ordered else (None, None)
        return Statistics(least, greatest, found.null_count, self.index.pieces[piece].rows)

    def is_deletion(self, piece: int, row: int) -> bool:
        """Whether a version is a deletion; by way of the cache."""
        deleted = self.cached_versions(piece, ()).deleted
        return deleted is not None and bool(deleted[row].as_py())

    def keys_cached(self, piece: int) -> bool:
        """Whether looking for a key in a row group reads nothing."""
        return self._reader.cache.get((self.path, piece)) is not None

    def _wanted(self, ids: Sequence[int]) -> list[int]:
        """Positions of columns in the file, those of the key and of the system among them."""
        places = self.index.places
        system = range(len(places), len(places) + 3)
        return sorted({places[i] for i in (*ids, *self._reader.key_layout.ids) if i in places} | {*system})

    def _assemble(self, arrays: dict[int, Any], ids: Sequence[int], keys: Any) -> Versions:
        places = self.index.places
        columns = {i: arrays[places[i]] for i in (*ids, *self._reader.key_layout.ids) if i in places}
        stamps, deleted, schemas = (arrays[len(places) + n] for n in range(3))
        return Versions(
            self._reader.keys(columns) if keys is None else keys,
            stamps,
            deleted if deleted.true_count else None,
            schemas,
            {i: columns[i] for i in ids if i in columns},
        )

    def _file_id(self) -> bytes:
        found = self._id
        if found is None:
            found = self._id = footer_id(self.footer())
        return found

    def _new_reader(self, file: File) -> tuple[VerifiedFile, Any]:
        source = VerifiedFile(self.index, self.path + ".parquet")
        handle = pa.PythonFile(source, mode="r")
        return source, pq.ParquetFile(handle, metadata=self._footer(file), pre_buffer=False)

    def _footer(self, file: File) -> Any:
        metadata = self._metadata
        if metadata is None:
            footer = read_chunk(file, self.index.footer, self.path + ".parquet")
            metadata = self._metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
        return metadata

    @contextmanager
    def _file(self) -> Iterator[File]:
        with self._lock:
            kept = self._kept
            file = kept or self._reader.files.open(self.path + ".parquet")
        try:
            yield file
        finally:
            if kept is None:
                file.close()


def _one(column: Any) -> Any:
    """The array of a column that may have come in several pieces."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
