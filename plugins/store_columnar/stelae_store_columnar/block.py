"""Blocks: immutable Parquet files with an index. They are read by row groups and columns."""

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
from stelae_store_columnar.decoded_cache import CacheShare
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.sorted_rows import SortedRows
from stelae_store_columnar.verified_file import VerifiedFile, read_chunk
from stelae_store_columnar.versions import RowVersions

_THREADS_BYTES_MIN = 4 << 20  #: Smaller reads do not use Arrow's threads, which would cost more than they save.
ENTRY_BYTES = 200  #: Memory of an entry of the cache besides its array.
_IDLE_MAX = 2  #: Parquet readers that a block keeps for reuse. A new one costs as much as decoding a small row group.


class BlockReader:
    """What all blocks of a store share to be read: the files, the cache, and the key order."""

    def __init__(self, files: Files, cache: CacheShare, order: KeyOrder, key_layout: Layout) -> None:
        self.files = files
        self.cache = cache
        self.order = order
        self.key_layout = key_layout

    def keys(self, columns: dict[int, Any]) -> Any:
        """Return the comparables of rows from their key columns."""
        arrays = [columns[column_id] for column_id in self.key_layout.ids]
        return self.order.array(RowBatch.from_arrays(self.key_layout, arrays))


class Statistics(NamedTuple):
    """The Parquet statistics of one column in one row group. ``least`` and ``greatest`` are ``None`` if unknown."""

    least: Any
    greatest: Any
    nulls: int
    rows: int


class ColumnarBlock:
    """One block. Any thread may read it, also after its files were removed, if it was held open before that."""

    def __init__(self, reader: BlockReader, path: str, index: BlockIndex) -> None:
        self.path = path
        self.index = index
        self._reader = reader
        self._metadata: Any = None
        self._id: bytes | None = None
        self._held_file: File | None = None
        self._lock = Lock()
        self._idle: list[tuple[VerifiedFile, Any]] = []

    @classmethod
    def open(cls, reader: BlockReader, path: str) -> ColumnarBlock:
        """Open a block from its files.

        ``StorageError``: a file is missing, damaged, or of another size than in the index."""
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
            fact = f"the file of a block has {size_bytes} bytes; its index says {index.file_bytes}"
            raise Corrupt(fact, path=path + ".parquet", offset=min(size_bytes, index.file_bytes))
        return cls(reader, path, index)

    def __del__(self) -> None:
        if self._held_file is not None:
            self._held_file.close()

    def hold_open(self) -> None:
        """Open the file and keep it open. Its name will be removed, and a cursor may still need the file.

        ``Corrupt``: it is gone already."""
        with self._lock:
            if self._held_file is None:
                self._held_file = self._open()

    def load(self, row_groups: Sequence[int], positions: Sequence[int]) -> Any:
        """Return columns of row groups as a ``pyarrow.Table``. ``positions`` are those of the columns in the file.

        ``Corrupt``: a checksum is wrong, or the file cannot be decoded, or is gone."""
        index = self.index
        names = [index.names[position] for position in positions]
        threads = sum(index.row_groups[row_group].size_bytes for row_group in row_groups) >= _THREADS_BYTES_MIN
        with self._file() as file:
            source, parquet = self._idle.pop() if self._idle else self._new_reader(file)
            source.file = file
            try:
                table = parquet.read_row_groups([*row_groups], columns=names, use_threads=threads)
            except (pa.ArrowException, OSError) as error:
                raise Corrupt(
                    f"row groups {[*row_groups]!r} of a block cannot be read: {error}", path=self.path + ".parquet"
                ) from error
            source.file = None
            if len(self._idle) < _IDLE_MAX:
                self._idle.append((source, parquet))
            return table

    def stored(self, row_groups: Sequence[int], ids: Sequence[int]) -> tuple[StoredRows, list[bytes]]:
        """Return columns of row groups in their stored form, after a check of their checksums.

        A column that the file lacks has no chunks. ``Corrupt``: a checksum is wrong."""
        index = self.index
        positions = [index.positions.get(column_id) for column_id in ids]
        width = len(index.names)
        wanted = [
            index.chunks[row_group * width + position]
            for row_group in row_groups
            for position in positions
            if position is not None
        ]
        with self._file() as file:
            data = [read_chunk(file, chunk, self.path + ".parquet") for chunk in wanted]
        chunks = tuple(StoredChunk(chunk.offset, chunk.size_bytes, chunk.crc) for chunk in wanted)
        return StoredRows(self._file_id(), tuple(row_groups), tuple(positions), chunks), data

    def decoded_bytes(self, row_group: int, ids: Sequence[int]) -> int:
        """Estimate the decoded size of some columns of a row group from their share of the file, in bytes.

        The estimate is at least an eighth of all columns, because text in a dictionary takes little of the file."""
        index, width = self.index, len(self.index.names)
        sizes = [chunk.size_bytes for chunk in index.chunks[row_group * width : (row_group + 1) * width]]
        selected = sum(sizes[index.positions[i]] for i in ids if i in index.positions)
        whole = index.row_groups[row_group].size_bytes
        return max(whole * selected // sum(sizes), whole // 8)

    def footer(self) -> bytes:
        """Return the footer, which is the end of the file from its metadata on, after a check of its checksum."""
        with self._file() as file:
            return read_chunk(file, self.index.footer, self.path + ".parquet")

    def versions(self, row_group: int, ids: Sequence[int]) -> RowVersions:
        """Return all versions of one row group with those of the columns ``ids`` that the block has."""
        wanted = self._wanted(ids)
        table = self.load([row_group], wanted)
        arrays = {position: _single_array(table.column(self.index.names[position])) for position in wanted}
        return self._assemble(arrays, ids, None)

    def cached_versions(self, row_group: int, ids: Sequence[int]) -> RowVersions:
        """Like :meth:`versions`, through the cache, for a reader that will read other rows of the row group soon."""
        arrays = self._cached(row_group, self._wanted(ids))
        return self._assemble(arrays, ids, self._sorted_keys(row_group, arrays).array)

    def cached_rows(self, row_group: int) -> SortedRows | None:
        """Return one row group if :meth:`decoded_rows` has it in the cache."""
        found: SortedRows | None = self._reader.cache.get((self.path, row_group, "rows"))
        return found

    def decoded_rows(self, row_group: int) -> SortedRows:
        """Decode one row group, with all columns of the file, for lookups of its rows, and keep it in the cache."""
        versions = self.versions(row_group, self.index.ids)
        found = SortedRows(SortedKeys(versions.keys), PlainRows(versions))
        self._reader.cache.put((self.path, row_group, "rows"), found, found.size_bytes + ENTRY_BYTES)
        return found

    def keys(self, row_group: int) -> SortedKeys:
        """Return the sorted keys of one row group, through the cache."""
        found = self.cached_keys(row_group)
        if found is not None:
            return found
        positions = [self.index.positions[column_id] for column_id in self._reader.key_layout.ids]
        return self._sorted_keys(row_group, self._cached(row_group, positions))

    def _sorted_keys(self, row_group: int, arrays: dict[int, Any]) -> SortedKeys:
        cache = self._reader.cache
        found = cache.get((self.path, row_group))
        if found is None:
            found = SortedKeys(
                self._reader.keys({i: arrays[self.index.positions[i]] for i in self._reader.key_layout.ids})
            )
            cache.put((self.path, row_group), found, found.size_bytes + ENTRY_BYTES)
        assert isinstance(found, SortedKeys)
        return found

    def _cached(self, row_group: int, positions: Sequence[int]) -> dict[int, Any]:
        """Return columns of one row group by position in the file.

        Those that are not in the cache are read together."""
        cache = self._reader.cache
        found = {position: cache.get((self.path, row_group, position)) for position in positions}
        absent = [position for position, array in found.items() if array is None]
        table: Any = self.load([row_group], absent) if absent else None
        for position in absent:
            array = found[position] = _single_array(table.column(self.index.names[position]))
            cache.put((self.path, row_group, position), array, array.nbytes + ENTRY_BYTES)
        return found

    def statistics(self, row_group: int, column: Column) -> Statistics | None:
        """Return the statistics of a column of a row group, or ``None`` if the file has none."""
        position = self.index.positions.get(column.id)
        if position is None:
            return None
        metadata = self._metadata
        if metadata is None:
            with self._file() as file:
                metadata = self._footer(file)
        found = metadata.row_group(row_group).column(position).statistics
        if found is None or not found.has_null_count:
            return None
        ordered = found.has_min_max and not column.type.startswith("decimal")
        least, greatest = (found.min_raw, found.max_raw) if ordered else (None, None)
        return Statistics(least, greatest, found.null_count, self.index.row_groups[row_group].rows)

    def is_deletion(self, row_group: int, row: int) -> bool:
        """Return true if a version is a deletion. Reads through the cache."""
        cached = self.cached_deletion(row_group, row)
        if cached is not None:
            return cached
        deleted = self.cached_versions(row_group, ()).deleted
        return deleted is not None and bool(deleted[row].as_py())

    def cached_deletion(self, row_group: int, row: int) -> bool | None:
        """Return whether a version is a deletion, or ``None`` if only the file can tell."""
        rows = self.cached_rows(row_group)
        if rows is not None:
            deleted = rows.rows.marks.deleted
            return deleted is not None and bool(deleted.at(row))
        array = self._reader.cache.get((self.path, row_group, len(self.index.positions) + 1))
        return None if array is None else bool(array[row].as_py())

    def cached_keys(self, row_group: int) -> SortedKeys | None:
        """Return the keys of a row group if they are in the cache, alone or with its rows."""
        rows = self.cached_rows(row_group)
        if rows is not None:
            return rows.keys
        found: SortedKeys | None = self._reader.cache.get((self.path, row_group))
        return found

    def _wanted(self, ids: Sequence[int]) -> list[int]:
        """Return the positions in the file of some columns, of the key columns and of the system columns."""
        positions = self.index.positions
        system = range(len(positions), len(positions) + 3)
        return sorted({positions[i] for i in (*ids, *self._reader.key_layout.ids) if i in positions} | {*system})

    def _assemble(self, arrays: dict[int, Any], ids: Sequence[int], keys: Any) -> RowVersions:
        positions = self.index.positions
        columns = {i: arrays[positions[i]] for i in (*ids, *self._reader.key_layout.ids) if i in positions}
        stamps, deleted, schemas = (arrays[len(positions) + n] for n in range(3))
        return RowVersions(
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

    def _open(self) -> File:
        path = self.path + ".parquet"
        try:
            return self._reader.files.open(path)
        except FileNotFoundError as error:
            raise Corrupt("the file of a block is gone, although the manifest names it", path=path) from error

    @contextmanager
    def _file(self) -> Iterator[File]:
        with self._lock:
            held = self._held_file
            file = held or self._open()
        try:
            yield file
        finally:
            if held is None:
                file.close()


def _single_array(column: Any) -> Any:
    """Return a column, which may have several chunks, as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
