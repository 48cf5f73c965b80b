"""Parquet and Arrow files: batches as they are, for the client to judge.

What comes from outside is not looked into here: a batch whose buffers are not what they say is refused by the client,
which validates each to the last buffer before a value of it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.spi.schema import Schema
from stelae_transfer.files import BrokenInput, Stream
from stelae_transfer.records import CHUNK_BYTES, CHUNK_ROWS_MAX, SAMPLE_ROWS, RowChunk

_FILE_MAGIC = b"ARROW1"


class BatchReader:
    """What the two have in common: batches with types of their own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[Any] = []
        self._done = 0.0
        self._schema = self._read_schema()

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns, in the order of the file."""
        return list(self._schema.names)

    def types(self) -> Mapping[str, Any]:
        """Return the Arrow type of each column."""
        return dict(zip(self._schema.names, self._schema.types, strict=True))

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first values of each column; of a batch that is not sound, none."""
        for _, batch in self._batches(0):
            try:
                batch.validate(full=True)
            except ValueError:
                break
            first = batch.slice(0, SAMPLE_ROWS)
            return {str(name): _values(first.column(place)) for place, name in enumerate(first.schema.names)}
        return {}

    def chunks(self, schema: Schema, columns: Sequence[str], after: int) -> Iterator[RowChunk]:
        """Yield the rows behind a number; see ``Reader.chunks``."""
        for first, batch in self._batches(after):
            batch = batch.select([*columns])
            for start in range(0, len(batch), rows := _rows_per_chunk(batch)):
                piece = batch.slice(start, rows)
                number = first + start
                skipped = min(max(0, after + 1 - number), len(piece))
                if skipped < len(piece):
                    numbers = range(number + skipped, number + len(piece))
                    yield RowChunk(piece.slice(skipped), numbers, (), numbers[-1], self._done)

    def close(self) -> None:
        """Close the file."""
        for one in self._open:
            one.close()

    def _read_schema(self) -> Any:
        raise BrokenInput(f"{self._path} is of no kind")

    def _batches(self, after: int) -> Iterator[tuple[int, Any]]:
        """Batches with the number of their first row; those that end at or before ``after`` may be left out."""
        raise BrokenInput(f"{self._path} is of no kind")

    def _broken(self, error: Exception) -> BrokenInput:
        return BrokenInput(f"{self._path} cannot be read: {error}")


class ParquetReader(BatchReader):
    """Reads one Parquet file, group by group; groups that are wanted by nobody are not read."""

    def _read_schema(self) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        Stream(self._path, "").close()
        try:
            self._file = parquet.ParquetFile(self._path)
        except (OSError, pa.ArrowException) as error:
            raise self._broken(error) from error
        self._open.append(self._file)
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
                    for batch in self._file.iter_batches(CHUNK_ROWS_MAX, row_groups=[group]):
                        self._done = (number + len(batch) - 1) / metadata.num_rows
                        yield number, batch
                        number += len(batch)
                except (OSError, pa.ArrowException) as error:
                    raise self._broken(error) from error
            first += count


class ArrowReader(BatchReader):
    """Reads one Arrow file, with a footer or as a stream; a stream may be compressed."""

    def __init__(self, path: Path, compression: str = "") -> None:
        self._compression = compression
        super().__init__(path)

    def _read_schema(self) -> Any:
        import pyarrow as pa

        stream = Stream(self._path, self._compression)
        self._open.append(stream)
        self._stream = stream
        try:
            if self._compression:
                self._reader = pa.ipc.open_stream(stream.file)
            else:
                begin = stream.file.read(len(_FILE_MAGIC))
                stream.file.seek(0)
                opened = pa.ipc.open_file if begin == _FILE_MAGIC else pa.ipc.open_stream
                self._reader = opened(stream.file)
        except (OSError, ValueError) as error:
            hint = "; compressed Arrow files have to be streams" if self._compression else ""
            raise BrokenInput(f"{self._path} is no Arrow file: {error}{hint}") from error
        return self._reader.schema

    def _batches(self, after: int) -> Iterator[tuple[int, Any]]:
        first = 1
        try:
            for batch in self._each():
                self._done = self._stream.share(0 if self._compression else self._stream.file.tell())
                yield first, batch
                first += len(batch)
        except (OSError, ValueError) as error:
            raise self._broken(error) from error

    def _each(self) -> Iterator[Any]:
        if hasattr(self._reader, "num_record_batches"):
            for place in range(self._reader.num_record_batches):
                yield self._reader.get_batch(place)
        else:
            yield from self._reader


def _values(array: Any) -> list[Any]:
    """The values of a column; dates and times that Python does not have as numbers."""
    try:
        return list(array.to_pylist())
    except (ValueError, OverflowError):
        return [getattr(value, "value", None) for value in array]


def _rows_per_chunk(batch: Any) -> int:
    try:
        size_bytes = batch.nbytes
    except (ValueError, IndexError, OSError):
        size_bytes = 0  # Buffers that are too short; the client says so.
    fair = CHUNK_BYTES * len(batch) // size_bytes if size_bytes > CHUNK_BYTES else CHUNK_ROWS_MAX
    return max(1, min(fair, CHUNK_ROWS_MAX))
