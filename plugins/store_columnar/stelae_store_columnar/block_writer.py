"""The writer of blocks: it takes sorted versions and writes Parquet files and their indexes durably.

A row group ends between two keys: all versions of a key are in one row group, and in one block of a writer. The caller
syncs the directory once for all blocks. Until then, a crash may leave files that no manifest names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from stelae.spi.errors import StorageError
from stelae.spi.schema import Schema
from stelae.spi.services import Files
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_columnar import bloom
from stelae_store_columnar.block_index import BlockIndex, ColumnChunk, RowGroupIndex, encode_index
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.file_layout import file_arrays, file_names, file_schema, types_of
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.versions import RowVersions, combined, same_as_next

ROW_GROUP_BYTES_MAX = BATCH_BYTES_MAX  #: With long texts, a row group has fewer rows, because it is decoded as a whole.
_SAMPLE_ROWS = 1024
_DICTIONARY_SHARE = 4  #: A column gets a dictionary if a sample has at least this many rows for each distinct value.


class ColumnarBlockWriter:
    """Writes sorted versions to as many blocks as needed. ``next_path`` returns the path of each, without suffix."""

    def __init__(self, files: Files, schema: Schema, config: ColumnarConfig, next_path: Callable[[], str]) -> None:
        self._files = files
        self._schema = schema
        self._config = config
        self._next_path = next_path
        self._types = types_of(schema)
        self._waiting: list[RowVersions] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._encoder: _Encoder | None = None
        self.written: list[tuple[str, BlockIndex]] = []
        """Path (without suffix) and index of each block."""

    def add(self, versions: RowVersions) -> None:
        """Add versions whose keys are all above those of the versions before."""
        self._waiting.append(versions)
        self._waiting_rows += len(versions)
        self._waiting_bytes += _size_bytes(versions)
        if self._waiting_rows >= self._config.row_group_rows or self._waiting_bytes >= ROW_GROUP_BYTES_MAX:
            self._write_groups(last=False)

    def finish(self) -> list[tuple[str, BlockIndex]]:
        """Write what is left, and return all blocks. The directory is not synced yet."""
        self._write_groups(last=True)
        self._close_block()
        return self.written

    def abandon(self) -> None:
        """Remove the files that were written. Files that do not exist are ignored."""
        self._encoder = None
        for path, _ in self.written:
            _remove(self._files, path)
        self.written = []

    def _write_groups(self, *, last: bool) -> None:
        if not self._waiting_rows:
            return
        whole = combined(self._waiting, self._types)
        size_bytes = max(1, self._waiting_bytes)
        rows = min(self._config.row_group_rows, max(1, ROW_GROUP_BYTES_MAX * len(whole) // size_bytes))
        start = 0
        for end in _row_group_ends(SortedKeys(whole.keys), rows, last):
            self._write_group(whole.slice(start, end - start), size_bytes * (end - start) // len(whole))
            start = end
        rest = whole.slice(start, len(whole) - start)
        self._waiting, self._waiting_rows = ([rest], len(rest)) if len(rest) else ([], 0)
        self._waiting_bytes = _size_bytes(rest) if len(rest) else 0

    def _write_group(self, versions: RowVersions, size_bytes: int) -> None:
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = _Encoder(self._schema, self._config, versions)
        encoder.write(versions, size_bytes)
        if encoder.rows >= self._config.block_rows_max or encoder.size_bytes >= self._config.block_bytes_max:
            self._close_block()

    def _close_block(self) -> None:
        encoder, self._encoder = self._encoder, None
        if encoder is None:
            return
        path = self._next_path()
        data, index = encoder.finish(self._schema)
        self.written.append((path, index))
        try:
            for name, contents in ((path + ".parquet", data), (path + ".index", encode_index(index))):
                with closing(self._files.create(name)) as file:
                    file.pwritev([contents], 0)
                    file.sync()
        except StorageError:
            self.abandon()
            raise


class _Encoder:
    """The encoder of one block, in memory."""

    def __init__(self, schema: Schema, config: ColumnarConfig, sample: RowVersions) -> None:
        self.rows = 0
        self._arrow = file_schema(schema)
        arrays = [array.slice(0, _SAMPLE_ROWS) for array in file_arrays(schema, sample)]
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            self._arrow,
            compression=config.compression,
            store_decimal_as_integer=True,  # Smaller, and read in half the time.
            use_dictionary=[
                name for name, array in zip(file_names(schema), arrays, strict=True) if _worth_a_dictionary(array)
            ],
        )
        self._schema = schema
        self._row_groups: list[RowGroupIndex] = []
        self._garbage: list[Any] = []

    @property
    def size_bytes(self) -> int:
        """Size of the encoded data so far."""
        return int(self._sink.tell())

    def write(self, versions: RowVersions, size_bytes: int) -> None:
        """Write one row group."""
        table = pa.Table.from_arrays(file_arrays(self._schema, versions), schema=self._arrow)
        self._writer.write_table(table, row_group_size=len(versions))
        self.rows += len(versions)
        repeated = same_as_next(versions.keys)
        self._row_groups.append(_row_group_index(versions, repeated, size_bytes))
        self._garbage.append(_garbage_stamps(versions, repeated))

    def finish(self, schema: Schema) -> tuple[Any, BlockIndex]:
        """Return the file and its index."""
        self._writer.close()
        data = self._sink.getvalue()
        view = memoryview(data)
        footer_bytes = int.from_bytes(view[-8:-4], "little") + 8
        footer = len(view) - footer_bytes
        garbage = pa.concat_arrays(self._garbage)
        garbage = garbage.take(pc.sort_indices(garbage))
        return data, BlockIndex(
            rows=self.rows,
            ids=schema.layout.ids,
            names=file_names(schema),
            row_groups=tuple(self._row_groups),
            chunks=tuple(_chunks(view, pq.read_metadata(pa.BufferReader(data)))),
            footer=ColumnChunk(footer, footer_bytes, crc32c(view[footer:])),
            digest=hashlib.sha256(view).hexdigest(),
            garbage_rows=len(garbage),
            garbage_stamp=garbage[len(garbage) // 2].as_py() if len(garbage) else 0,
            garbage_stamp_max=garbage[-1].as_py() if len(garbage) else 0,
        )


def _size_bytes(versions: RowVersions) -> int:
    return sum(array.nbytes for array in versions.columns.values())


def _row_group_index(versions: RowVersions, repeated: Any, size_bytes: int) -> RowGroupIndex:
    stamps = pc.min_max(versions.stamps).as_py()
    return RowGroupIndex(
        rows=len(versions),
        first=versions.keys[0].as_py(),
        last=versions.keys[-1].as_py(),
        stamp_min=stamps["min"],
        stamp_max=stamps["max"],
        deletions=0 if versions.deleted is None else pc.sum(versions.deleted).as_py() or 0,
        unique=not pc.any(repeated).as_py(),
        schemas=tuple(sorted(pc.unique(versions.schemas).to_pylist())),
        size_bytes=size_bytes,
        bloom=bloom.build(versions.keys),
    )


def _garbage_stamps(versions: RowVersions, repeated: Any) -> Any:
    """Return the floors from which versions are superfluous: the timestamp of the next version, or a deletion's own."""
    if not len(versions):
        return versions.stamps
    later = pa.concat_arrays([versions.stamps.slice(1), versions.stamps.slice(len(versions) - 1)])
    stamps = [later.filter(repeated)]
    if versions.deleted is not None:
        stamps.append(versions.stamps.filter(pc.and_not(versions.deleted, repeated)))
    return pa.concat_arrays(stamps)


def _chunks(data: memoryview, metadata: Any) -> Iterator[ColumnChunk]:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for position in range(metadata.num_columns):
            column = row_group.column(position)
            offset = column.data_page_offset
            if column.dictionary_page_offset is not None:
                offset = min(offset, column.dictionary_page_offset)
            size_bytes = column.total_compressed_size
            yield ColumnChunk(offset, size_bytes, crc32c(data[offset : offset + size_bytes]))


def _row_group_ends(keys: SortedKeys, rows: int, last: bool) -> Iterator[int]:
    """Return the positions at which row groups end: about ``rows`` apart, and never between two versions of a key."""
    start, count = 0, len(keys)
    while count - start > rows or (last and start < count):
        end = count
        if count - start > rows:
            key = keys.at(start + rows)
            end = keys.left(key, 0)
            if end <= start:
                end = _end_of_key(keys, start + rows)
        yield end
        start = end


def _end_of_key(keys: SortedKeys, position: int) -> int:
    """Return the position after all versions of the key at a position."""
    key = keys.at(position)
    while position < len(keys) and keys.at(position) == key:
        position += 1
    return position


def _worth_a_dictionary(sample: Any) -> bool:
    if sample.type == pa.bool_():
        return False
    return bool(pc.count_distinct(sample).as_py() * _DICTIONARY_SHARE <= len(sample))


def _remove(files: Files, path: str) -> None:
    for suffix in (".parquet", ".index"):
        if files.exists(path + suffix):
            files.remove(path + suffix)
