"""Readers of Parquet and Arrow files. They pass batches on unchanged.

The readers do not inspect the contents of a batch. The client validates all buffers of a batch before it reads a value,
and rejects a batch whose buffers are inconsistent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.spi.schema import Schema
from stelae_transfer.files import BrokenInput, Stream
from stelae_transfer.row_chunks import CHUNK_BYTES, CHUNK_ROWS_MAX, SAMPLE_ROWS, RowChunk

_FILE_MAGIC = b"ARROW1"
_MICROS_OF_NANOS = (1 << 63) // 1000
"""The most microseconds before or after 1970 that 64 bits hold as nanoseconds."""


class BatchReader(ABC):
    """Base class of the two readers: their files have typed batches."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[Any] = []
        self._done = 0.0
        self._schema = self._read_schema()
        counts = Counter(self._schema.names)
        if twice := sorted(name for name, count in counts.items() if count > 1):
            self.close()
            raise BrokenInput(f"{path} has the column {twice[0]!r} twice; give each column a name of its own")

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns, in the order of the file."""
        return list(self._schema.names)

    def types(self) -> Mapping[str, Any]:
        """Return the Arrow type of each column."""
        return dict(zip(self._schema.names, self._schema.types, strict=True))

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first values of each column, or nothing if the first batch is not valid."""
        for _, batch in self._batches(0):
            try:
                batch.validate(full=True)
            except ValueError:
                break
            first = batch.slice(0, SAMPLE_ROWS)
            return {str(name): _values(first.column(place)) for place, name in enumerate(first.schema.names)}
        return {}

    def chunks(self, schema: Schema, columns: Sequence[str], after: int) -> Iterator[RowChunk]:
        """Yield the rows after a row number; see ``RowChunkReader.chunks``."""
        for first, batch in self._batches(after):
            batch = batch.select([*columns])
            for start in range(0, len(batch), rows := _rows_per_chunk(batch)):
                part = batch.slice(start, rows)
                number = first + start
                skipped = min(max(0, after + 1 - number), len(part))
                if skipped < len(part):
                    numbers = range(number + skipped, number + len(part))
                    yield RowChunk(part.slice(skipped), numbers, (), numbers[-1], self._done)

    def close(self) -> None:
        """Close the file."""
        for one in self._open:
            one.close()

    @abstractmethod
    def _read_schema(self) -> Any:
        """Open the file and return its Arrow schema."""

    @abstractmethod
    def _batches(self, after: int) -> Iterator[tuple[int, Any]]:
        """Yield batches, each with the number of its first row. May omit batches that end at or before ``after``."""

    def _broken(self, error: Exception) -> BrokenInput:
        return BrokenInput(f"{self._path} cannot be read: {error}")


class ParquetReader(BatchReader):
    """Reads one Parquet file, one row group at a time. Skips groups that end at or before ``after``.

    Spark and Hive write times as INT96, which Arrow reads as nanoseconds. A time before 1677 or after 2262 would become
    another one, without an error. So such columns are also read as microseconds (``exact_times``)."""

    def _read_schema(self) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        Stream(self._path, "").close()
        try:
            self._file = parquet.ParquetFile(self._path)
            columns = [self._file.schema.column(place) for place in range(len(self._file.schema))]
            self._int96 = [column.path for column in columns if column.physical_type == "INT96"]
            self._as_micros = parquet.ParquetFile(self._path, coerce_int96_timestamp_unit="us")
        except (OSError, pa.ArrowException) as error:
            raise self._broken(error) from error
        self._open += [self._file, self._as_micros]
        return self._file.schema_arrow

    def _batches(self, after: int) -> Iterator[tuple[int, Any]]:
        import pyarrow as pa

        metadata = self._file.metadata
        first = 1
        for group in range(metadata.num_row_groups):
            count = metadata.row_group(group).num_rows
            if first + count - 1 > after:
                number = first
                try:
                    for batch in self._of_group(group):
                        self._done = (number + len(batch) - 1) / metadata.num_rows
                        yield number, batch
                        number += len(batch)
                except (OSError, pa.ArrowException) as error:
                    raise self._broken(error) from error
            first += count

    def _of_group(self, group: int) -> Iterator[Any]:
        batches = self._file.iter_batches(CHUNK_ROWS_MAX, row_groups=[group])
        names = [name for name in self._schema.names if name in self._int96]
        if not names:
            yield from batches
            return
        times = self._as_micros.read_row_group(group, columns=names).combine_chunks()
        first = 0
        for batch in batches:
            part = times.slice(first, len(batch))
            yield from exact_times(batch, dict(zip(part.schema.names, map(_array, part.columns), strict=True)))
            first += len(batch)


class ArrowReader(BatchReader):
    """Reads one Arrow file: the file format with a footer, or the stream format, which may be compressed."""

    def __init__(self, path: Path, compression: str = "") -> None:
        self._compression = compression
        super().__init__(path)

    def _read_schema(self) -> Any:
        import pyarrow as pa

        stream = Stream(self._path, self._compression)
        self._open.append(stream)
        self._stream = stream
        self._end_bytes: Callable[[], int] = stream.file.tell
        try:
            if self._compression:
                counted = _CountedBytes(stream.file)
                self._end_bytes = counted.tell
                self._reader = pa.ipc.open_stream(pa.PythonFile(counted, mode="r"))
            else:
                begin = stream.file.read(len(_FILE_MAGIC))
                stream.file.seek(0)
                opened = pa.ipc.open_file if begin == _FILE_MAGIC else pa.ipc.open_stream
                self._reader = opened(stream.file)
        except (OSError, ValueError) as error:
            hint = "; a compressed Arrow file must have the stream format" if self._compression else ""
            raise BrokenInput(f"{self._path} is not an Arrow file: {error}{hint}") from error
        return self._reader.schema

    def _batches(self, after: int) -> Iterator[tuple[int, Any]]:
        first = 1
        try:
            for batch in self._record_batches():
                self._done = self._stream.fraction_read(0 if self._compression else self._stream.file.tell())
                yield first, batch
                first += len(batch)
        except (OSError, ValueError) as error:
            raise self._broken(error) from error

    def _record_batches(self) -> Iterator[Any]:
        if hasattr(self._reader, "num_record_batches"):
            for number in range(self._reader.num_record_batches):
                yield self._reader.get_batch(number)
            return
        end_bytes = self._end_bytes()
        for batch in self._reader:
            end_bytes = self._end_bytes()
            yield batch
        # Arrow takes the end of the file for the end of the stream. The end marker is read only if the file has one.
        if self._end_bytes() == end_bytes:
            fact = f"{self._path} has no end marker: its writer did not finish, and rows may be missing at its end"
            raise BrokenInput(f"{fact}; the rows before are read")


def _array(column: Any) -> Any:
    """Return a ``pyarrow.ChunkedArray`` as one array."""
    return column.combine_chunks()


def exact_times(batch: Any, micros: Mapping[str, Any]) -> Iterator[Any]:
    """Yield a batch, in parts if necessary, so that each column of times has a unit that loses nothing.

    Args:
        batch: the rows, with times in nanoseconds. Those outside of the range of nanoseconds are wrong.
        micros: the same times in microseconds, by column. Digits below a microsecond are missing.
    """
    import pyarrow.compute as pc

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, column in micros.items():
        outside, finer = _outside_and_finer(columns[name], column)
        is_outside = bool(pc.any(outside, min_count=0).as_py())
        if is_outside and pc.any(finer, min_count=0).as_py():
            half = len(batch) // 2
            yield from exact_times(batch.slice(0, half), {name: one.slice(0, half) for name, one in micros.items()})
            yield from exact_times(batch.slice(half), {name: one.slice(half) for name, one in micros.items()})
            return
        columns[name] = column if is_outside else columns[name]
    yield type(batch).from_arrays([*columns.values()], names=[*columns])


def _outside_and_finer(nanos: Any, micros: Any) -> tuple[Any, Any]:
    """Return which times are outside of the range of nanoseconds, and which others have digits below a microsecond."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = micros.cast(pa.int64())
    outside = pc.or_(pc.greater(numbers, _MICROS_OF_NANOS), pc.less(numbers, -_MICROS_OF_NANOS))
    differs = pc.not_equal(nanos.cast(pa.int64()), pc.multiply(numbers, 1000))
    return outside, pc.and_not(differs, outside)


class _CountedBytes:
    """A stream that knows how many bytes were read. Arrow's decompressing streams do not."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._read_bytes = 0

    def read(self, size_bytes: int = -1) -> bytes:
        """Return the next bytes."""
        data: bytes = self._file.read(size_bytes)
        self._read_bytes += len(data)
        return data

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._read_bytes

    def close(self) -> None:
        """Do nothing: the owner of the stream closes it."""


def _values(array: Any) -> list[Any]:
    """Return the values of a column. Dates and times outside of Python's range become numbers."""
    try:
        return list(array.to_pylist())
    except (ValueError, OverflowError):
        return [getattr(value, "value", None) for value in array]


def _rows_per_chunk(batch: Any) -> int:
    try:
        size_bytes = batch.nbytes
    except (ValueError, IndexError, OSError):
        size_bytes = 0  # The buffers are too short. The client reports that.
    fair = CHUNK_BYTES * len(batch) // size_bytes if size_bytes > CHUNK_BYTES else CHUNK_ROWS_MAX
    return max(1, min(fair, CHUNK_ROWS_MAX))
