"""Writes batches of rows to a stream of bytes, in one of the formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, Protocol

import msgspec

from stelae_transfer.files import Format
from stelae_transfer.plain import cell_text, json_value
from stelae_transfer.table_text import FIRST_ROWS, TableText, footer, lines


class Sink(Protocol):
    """Takes batches of one schema, in order."""

    def write(self, batch: Any) -> None:
        """Take one ``pyarrow.RecordBatch``."""
        ...

    def finish(self, error: str = "") -> None:
        """End; with an error, what was written is not all. The stream stays open."""
        ...


class CsvSink:
    """CSV with a header. Null is nothing at all, empty text is quoted; bytes are base64."""

    def __init__(self, out: IO[bytes], schema: Any, delimiter: str = ",") -> None:
        from pyarrow import csv

        self._schema = text_schema(schema)
        options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
        self._writer: Any = csv.CSVWriter(out, self._schema, write_options=options)

    def write(self, batch: Any) -> None:
        """Take one batch."""
        self._writer.write_batch(as_text(batch, self._schema))

    def finish(self, error: str = "") -> None:
        """End."""
        self._writer.close()


class TextSink:
    """Tab-separated lines with a header: null is nothing, and no value can break a line."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        self._out = out
        self._line(list(schema.names))

    def write(self, batch: Any) -> None:
        """Take one batch."""
        for row in rows_of(batch):
            self._line(["" if value is None else _one_line(value) for value in row])

    def finish(self, error: str = "") -> None:
        """End."""

    def _line(self, cells: Sequence[str]) -> None:
        self._out.write(("\t".join(cells) + "\n").encode(errors="replace"))


class JsonSink:
    """One document: ``columns`` and ``rows``, and ``error`` if it broke off."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        self._out = out
        self._out.write(b'{"columns":' + msgspec.json.encode(list(schema.names)) + b',"rows":[')
        self._between = b"\n"

    def write(self, batch: Any) -> None:
        """Take one batch."""
        for row in rows_of(batch):
            self._out.write(self._between + msgspec.json.encode([json_value(value) for value in row]))
            self._between = b",\n"

    def finish(self, error: str = "") -> None:
        """End the document."""
        more = b',"error":' + msgspec.json.encode(error) if error else b""
        self._out.write(b"]" + more + b"}\n")


class JsonLinesSink:
    """One JSON object on each line."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        self._out = out

    def write(self, batch: Any) -> None:
        """Take one batch."""
        names = batch.schema.names
        for row in rows_of(batch):
            self._out.write(msgspec.json.encode({n: json_value(v) for n, v in zip(names, row, strict=True)}) + b"\n")

    def finish(self, error: str = "") -> None:
        """End."""


class ParquetSink:
    """A Parquet file; without its end, which an error leaves out, nothing can read it."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        from pyarrow import parquet

        self._writer: Any = parquet.ParquetWriter(out, schema, compression="zstd")

    def write(self, batch: Any) -> None:
        """Take one batch."""
        self._writer.write_batch(batch)

    def finish(self, error: str = "") -> None:
        """End."""
        if not error:
            self._writer.close()


class ArrowSink:
    """An Arrow stream."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        import pyarrow as pa

        self._writer: Any = pa.ipc.new_stream(out, schema)

    def write(self, batch: Any) -> None:
        """Take one batch."""
        self._writer.write_batch(batch)

    def finish(self, error: str = "") -> None:
        """End; an error leaves the mark of the end out."""
        if not error:
            self._writer.close()


class TableSink:
    """A table for people, no wider than their terminal."""

    def __init__(self, out: IO[bytes], schema: Any, width: int, kept: Sequence[str] = ()) -> None:
        from pyarrow import types

        self._out = out
        self._names = list(schema.names)
        numbers = (types.is_integer, types.is_floating, types.is_decimal)
        self._numeric = [any(is_kind(kind) for is_kind in numbers) for kind in schema.types]
        self._width = width
        self._kept = kept
        self._waiting: list[Sequence[Any]] = []
        self._text: TableText | None = None

    def write(self, batch: Any) -> None:
        """Take one batch."""
        self._waiting += rows_of(batch)
        if self._text is not None or len(self._waiting) >= FIRST_ROWS:
            self._show()

    def finish(self, error: str = "") -> None:
        """Show what is left, and what is not shown."""
        self._show()
        if self._text is not None and self._text.left_out:
            self._print(footer(self._text.left_out, len(self._names), self._width))

    def _show(self) -> None:
        if self._text is None:
            self._text = TableText(self._names, self._numeric, self._width, self._waiting[:FIRST_ROWS], self._kept)
            self._print(self._text.header())
        for row in self._waiting:
            self._print(self._text.line(row))
        self._waiting = []

    def _print(self, line: str) -> None:
        self._out.write(line.encode(errors="replace") + b"\n")


class LinesSink:
    """One line for each column of each row: for rows of many columns."""

    def __init__(self, out: IO[bytes], schema: Any, width: int) -> None:
        self._out = out
        self._names = list(schema.names)
        self._width = width
        self._count = 0

    def write(self, batch: Any) -> None:
        """Take one batch."""
        for row in rows_of(batch):
            self._count += 1
            self._out.write(f"-- row {self._count}\n".encode())
            for line in lines(self._names, row, self._width):
                self._out.write(line.encode(errors="replace") + b"\n")

    def finish(self, error: str = "") -> None:
        """End."""


def file_sink(kind: Format, out: IO[bytes], schema: Any) -> Sink:
    """Return the sink that writes a kind of file."""
    match kind:
        case Format.CSV:
            return CsvSink(out, schema)
        case Format.TSV:
            return CsvSink(out, schema, "\t")
        case Format.JSONL:
            return JsonLinesSink(out, schema)
        case Format.PARQUET:
            return ParquetSink(out, schema)
        case Format.ARROW:
            return ArrowSink(out, schema)


def rows_of(batch: Any) -> list[Sequence[Any]]:
    """Return a batch as tuples of Python values."""
    columns = [column.to_pylist() for column in batch.columns]
    return [*zip(*columns, strict=True)] if columns else [()] * len(batch)


def text_schema(schema: Any) -> Any:
    """Return a schema whose columns CSV can say."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, field.type if _is_plain(field.type) else pa.string()) for field in schema])


def as_text(batch: Any, schema: Any) -> Any:
    """Return a batch in the form that ``text_schema`` gave."""
    import pyarrow as pa

    arrays = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type == field.type:
            arrays.append(column)
        else:
            values = [None if value is None else str(json_value(value)) for value in column.to_pylist()]
            arrays.append(pa.array(values, pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_plain(kind: Any) -> bool:
    from pyarrow import types as t

    known = (t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_date, t.is_string, t.is_large_string)
    return any(is_kind(kind) for is_kind in known) or (t.is_timestamp(kind) and kind.tz is None)


def _one_line(value: Any) -> str:
    text = value if isinstance(value, str) else cell_text(value)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
