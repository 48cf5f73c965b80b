"""Sinks: each writes batches of rows to a byte stream in one format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol

import msgspec

from stelae.cli.kit.errors import code_of
from stelae_transfer.files import Format
from stelae_transfer.table_text import FIRST_ROWS, TableText, footer, lines
from stelae_transfer.value_text import cell_text, json_value


class Sink(Protocol):
    """Writes batches of one schema, in order."""

    def write(self, batch: Any) -> None:
        """Write one ``pyarrow.RecordBatch``."""
        ...

    def finish(self, error: BaseException | None = None) -> None:
        """End the output. With an error, the output is incomplete. The byte stream stays open."""
        ...


class LateSink:
    """Opens a sink at its first batch, or at the end of an output without rows.

    An output that ends with an error before has nothing, not even a header."""

    def __init__(self, opened: Callable[[], Sink]) -> None:
        self._open = opened
        self._sink: Sink | None = None

    def write(self, batch: Any) -> None:
        """Write one batch."""
        self._opened().write(batch)

    def finish(self, error: BaseException | None = None) -> None:
        """End the output, if it has begun or there is no error."""
        if error is None or self._sink is not None:
            self._opened().finish(error)

    def _opened(self) -> Sink:
        self._sink = self._sink or self._open()
        return self._sink


class CsvSink:
    """Writes CSV with a header. Null is an empty cell, empty text is quoted, bytes are base64."""

    def __init__(self, out: IO[bytes], schema: Any, delimiter: str = ",") -> None:
        from pyarrow import csv

        self._schema = text_schema(schema)
        options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
        self._writer: Any = csv.CSVWriter(out, self._schema, write_options=options)

    def write(self, batch: Any) -> None:
        """Write one batch."""
        self._writer.write_batch(as_text(batch, self._schema))

    def finish(self, error: BaseException | None = None) -> None:
        """End the output."""
        self._writer.close()


class TextSink:
    """Writes tab-separated lines with a header. Null is an empty cell. Tabs and line breaks in values are escaped."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        self._out = out
        self._line(list(schema.names))

    def write(self, batch: Any) -> None:
        """Write one batch."""
        for row in rows_of(batch):
            self._line(["" if value is None else _one_line(value) for value in row])

    def finish(self, error: BaseException | None = None) -> None:
        """End the output."""

    def _line(self, cells: Sequence[str]) -> None:
        self._out.write(("\t".join(cells) + "\n").encode(errors="replace"))


class JsonSink:
    """Writes one JSON document with ``columns`` and ``rows``, and with ``code`` and ``error`` if it is incomplete."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        self._out = out
        self._out.write(b'{"columns":' + msgspec.json.encode(list(schema.names)) + b',"rows":[')
        self._between = b"\n"

    def write(self, batch: Any) -> None:
        """Write one batch."""
        for row in rows_of(batch):
            self._out.write(self._between + msgspec.json.encode([json_value(value) for value in row]))
            self._between = b",\n"

    def finish(self, error: BaseException | None = None) -> None:
        """End the document, with the error if there was one."""
        if error is None:
            self._out.write(b"]}\n")
            return
        text = str(error) or code_of(error)
        sendable = text.encode("utf-8", "backslashreplace").decode()  # Of a file name that is not UTF-8, for one.
        code = msgspec.json.encode(code_of(error))
        self._out.write(b'],"code":' + code + b',"error":' + msgspec.json.encode(sendable) + b"}\n")


class JsonLinesSink:
    """Writes one JSON object on each line."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        self._out = out

    def write(self, batch: Any) -> None:
        """Write one batch."""
        names = batch.schema.names
        for row in rows_of(batch):
            self._out.write(msgspec.json.encode({n: json_value(v) for n, v in zip(names, row, strict=True)}) + b"\n")

    def finish(self, error: BaseException | None = None) -> None:
        """End the output."""


class ParquetSink:
    """Writes a Parquet file. After an error it has no footer, so that it cannot be read."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        from pyarrow import parquet

        self._writer: Any = parquet.ParquetWriter(out, schema, compression="zstd")

    def write(self, batch: Any) -> None:
        """Write one batch."""
        self._writer.write_batch(batch)

    def finish(self, error: BaseException | None = None) -> None:
        """End the output."""
        if error is None:
            self._writer.close()


class ArrowSink:
    """Writes an Arrow stream."""

    def __init__(self, out: IO[bytes], schema: Any) -> None:
        import pyarrow as pa

        self._writer: Any = pa.ipc.new_stream(out, schema)

    def write(self, batch: Any) -> None:
        """Write one batch."""
        self._writer.write_batch(batch)

    def finish(self, error: BaseException | None = None) -> None:
        """End the stream. After an error it has no end marker."""
        if error is None:
            self._writer.close()


class TableSink:
    """Writes a table for people, no wider than the terminal."""

    def __init__(self, out: IO[bytes], schema: Any, width: int, first_columns: Sequence[str] = ()) -> None:
        from pyarrow import types

        self._out = out
        self._names = list(schema.names)
        numbers = (types.is_integer, types.is_floating, types.is_decimal)
        self._numeric = [any(is_kind(kind) for is_kind in numbers) for kind in schema.types]
        self._width = width
        self._first_columns = first_columns
        self._waiting: list[Sequence[Any]] = []
        self._text: TableText | None = None

    def write(self, batch: Any) -> None:
        """Write one batch."""
        self._waiting += rows_of(batch)
        if self._text is not None or len(self._waiting) >= FIRST_ROWS:
            self._show()

    def finish(self, error: BaseException | None = None) -> None:
        """Write the remaining rows, and a line with the columns that do not fit."""
        self._show()
        if self._text is not None and self._text.left_out:
            self._print(footer(self._text.left_out, len(self._names), self._width))

    def _show(self) -> None:
        if self._text is None:
            first_rows = self._waiting[:FIRST_ROWS]
            self._text = TableText(self._names, self._numeric, self._width, first_rows, self._first_columns)
            self._print(self._text.header())
        for row in self._waiting:
            self._print(self._text.line(row))
        self._waiting = []

    def _print(self, line: str) -> None:
        self._out.write(line.encode(errors="replace") + b"\n")


class LinesSink:
    """Writes one line for each column of each row, for rows with many columns."""

    def __init__(self, out: IO[bytes], schema: Any, width: int) -> None:
        self._out = out
        self._names = list(schema.names)
        self._width = width
        self._count = 0

    def write(self, batch: Any) -> None:
        """Write one batch."""
        for row in rows_of(batch):
            self._count += 1
            self._out.write(f"-- row {self._count}\n".encode())
            for line in lines(self._names, row, self._width):
                self._out.write(line.encode(errors="replace") + b"\n")

    def finish(self, error: BaseException | None = None) -> None:
        """End the output."""


def file_sink(kind: Format, out: IO[bytes], schema: Any) -> Sink:
    """Return the sink for a file format."""
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
    """Return the schema with types that CSV can represent. Other columns become text."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, field.type if _is_plain(field.type) else pa.string()) for field in schema])


def as_text(batch: Any, schema: Any) -> Any:
    """Return a batch converted to the schema of ``text_schema``."""
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
