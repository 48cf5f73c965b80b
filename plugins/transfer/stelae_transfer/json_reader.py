"""Reader of JSON lines: one object on each line. A line that cannot be read makes only its row bad.

JSON has no dates, decimals or bytes: columns of these types take text (bytes as base64). Float columns also take
``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, as they are exported."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from stelae.client.text_numbers import keeps, number_of
from stelae.client.text_values import SHOWN_CHARACTERS
from stelae.spi.schema import Column, Schema
from stelae_transfer.files import BrokenInput, NoInput, Stream
from stelae_transfer.inference import arrow_of_values
from stelae_transfer.row_chunks import CHUNK_BYTES, CHUNK_ROWS_MAX, SAMPLE_ROWS, BadRow, LateColumns, RowChunk

LINE_BYTES_MAX = 32 << 20
"""Greatest length of a line. It is above the size limit of a row."""

_READ_BYTES = 1 << 20
_NO_ROW = (msgspec.MsgspecError, ValueError, RecursionError)
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
_HALF = re.compile(rb"(?i)\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]..")


class JsonReader:
    """Reads one file of JSON lines.

    Args:
        path: the file.
        compression: its compression, by Arrow's name; empty: none.
        late: what to do with members that the first rows do not have.

    Raises:
        NoInput: the file cannot be opened, or is empty.
        BrokenInput: none of its first lines is an object with a member.
    """

    def __init__(self, path: Path, compression: str = "", *, late: LateColumns = LateColumns.LOAD) -> None:
        self._path = path
        self._compression = compression
        self._late = late
        self._first_problem: str | None = None
        self.columns: Sequence[str] = [*self._first_rows()]
        if not self.columns:
            if self._first_problem is None:
                raise NoInput(f"{path} has only empty lines: there is nothing to read")
            fact = f"{path}: expected one JSON object on each line, and the first lines have none with a member"
            raise BrokenInput(fact + self._first_problem)
        self._stream = Stream(path, compression)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def types(self) -> Mapping[str, Any]:
        """Return the Arrow type of each column, inferred from the first rows.

        Where no type can store all values of a column, its entry is a text with the reason. That matters only for a new
        table: the columns of an existing table have types, and values that do not fit make their row bad."""
        found: dict[str, Any] = {}
        for name, values in self._first_rows().items():
            try:
                found[name] = arrow_of_values(values)
            except TypeError as error:
                found[name] = str(error)
        return found

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first values of each column. Absent members are null."""
        return self._first_rows()

    def _first_rows(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        stream = Stream(self._path, self._compression)
        try:
            rows = 0
            for number, line in enumerate(self._lines(stream), start=1):
                try:
                    row = _PLAIN.decode(line)
                except _NO_ROW as error:
                    self._first_problem = self._first_problem or f"; line {number}: {_why(line, error)}"
                    continue
                self._first_problem = self._first_problem or ""
                for name in dict.fromkeys((*found, *row)):  # in the order of the file
                    found.setdefault(name, [None] * rows).append(row.get(name))
                rows += 1
                if rows >= SAMPLE_ROWS:
                    break
        finally:
            stream.close()
        return found

    def chunks(self, schema: Schema, columns: Sequence[str], after: int) -> Iterator[RowChunk]:
        """Yield the rows after a row number; see ``RowChunkReader.chunks``."""
        dropped = {*self.columns} - {*columns}
        kept = {*columns} if self._late is LateColumns.SKIP else {*columns, *schema.by_name} - dropped
        reader = _LineParser(schema, dropped, None if self._late is LateColumns.LOAD else kept)
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        bad: list[BadRow] = []
        size_bytes = seen_bytes = number = 0
        for number, line in enumerate(self._lines(self._stream), start=1):
            seen_bytes += len(line) + 1
            if number <= after:
                continue
            found = reader.read(number, line)
            if isinstance(found, BadRow):
                bad.append(found)
            else:
                rows.append(found)
                numbers.append(number)
            size_bytes += len(line)
            if len(rows) + len(bad) >= CHUNK_ROWS_MAX or size_bytes >= CHUNK_BYTES:
                yield RowChunk(rows, numbers, bad, number, self._stream.fraction_read(seen_bytes))
                rows, numbers, bad, size_bytes = [], [], [], 0
        if rows or bad:
            yield RowChunk(rows, numbers, bad, number, 1.0)

    def _lines(self, stream: Stream) -> Iterator[bytes]:
        """Yield the lines that are not empty."""
        import pyarrow as pa

        try:
            rest = stream.read_begin()
            while data := stream.file.read(_READ_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                yield from (line for line in lines if line.strip())
                if len(rest) > LINE_BYTES_MAX:
                    raise BrokenInput(
                        f"{self._path} has a line longer than {LINE_BYTES_MAX >> 20} MiB; is it JSON lines?"
                    )
        except (OSError, pa.ArrowException) as error:
            raise BrokenInput(f"the rest of {self._path} cannot be read: {error}") from error
        yield from (line for line in rest.split(b"\n") if line.strip())


class _LineParser:
    """Parses lines into rows of a schema.

    Args:
        schema: the schema.
        dropped: members that are left out.
        kept: the members that are not left out; ``None``: all that are not in ``dropped``.
    """

    def __init__(self, schema: Schema, dropped: set[str], kept: set[str] | None) -> None:
        self._dropped = dropped
        self._kept = kept
        self._special = {c.name: convert for c in schema.columns if (convert := _CONVERT.get(c.data_type.name))}
        self._columns = schema.by_name
        decimals = any(c.data_type.name == "decimal" for c in schema.columns)
        self._decoder = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal) if decimals else _PLAIN
        self._floats = [c for c in schema.columns if c.data_type.name in ("float", "double")]
        numeric = ("decimal", "float", "double")
        self._others = [c.name for c in schema.columns if decimals and c.data_type.name not in numeric]

    def read(self, number: int, line: bytes) -> dict[str, Any] | BadRow:
        try:
            row = self._decoder.decode(line)
        except _NO_ROW as error:
            text = line[: 4 * SHOWN_CHARACTERS].decode(errors="replace")
            return BadRow(number, "BAD_LINE", _why(line, error), text)
        for name in self._dropped:
            row.pop(name, None)
        if self._kept is not None and not row.keys() <= self._kept:
            row = {name: value for name, value in row.items() if name in self._kept}
        for column in self._floats:
            if isinstance(value := row.get(column.name), Decimal):
                nearest = float(value)
                if not (isfinite(nearest) if column.type == "float" else keeps(str(value), nearest)):
                    return BadRow(number, "BAD_VALUE", _rounded(column, value), row)
                row[column.name] = nearest
        for name in self._others:  # As without a decimal in the table, so that 1.0 is a value of an integer column.
            if isinstance(value := row.get(name), Decimal):
                row[name] = number_of(str(value))
        for name, convert in self._special.items():
            if isinstance(value := row.get(name), str):
                try:
                    row[name] = convert(value)
                except (ValueError, InvalidOperation, OverflowError):
                    return BadRow(number, "BAD_VALUE", self._misfit(self._columns[name], value), row)
        return row

    @staticmethod
    def _misfit(column: Column, value: str) -> str:
        return f"column {column.name!r}: expected {column.type}, got text {value[:SHOWN_CHARACTERS]!r}"


def _rounded(column: Column, value: Decimal) -> str:
    fact = f"column {column.name!r}: expected {column.type}, got {str(value)[:SHOWN_CHARACTERS]}"
    return f"{fact}, which a double rounds to {float(value)!r}" if isfinite(float(value)) else fact


def _why(line: bytes, error: Exception) -> str:
    """Return what is wrong with a line. Finds half a surrogate pair, which the decoder reports as a truncated line."""
    half = _HALF.search(line.replace(b"\\\\", b""))
    try:
        if half and isinstance(json.loads(line), dict):
            fact = f"text with half of a surrogate pair ({half[0].decode()})"
            return f"{fact}, which is not a character"
    except (ValueError, RecursionError):
        pass
    return f"not a JSON object: {error}"


def _time(text: str) -> datetime:
    """Parse a time. Python would cut digits below a microsecond."""
    if _FINER.search(text):
        raise ValueError("digits below a microsecond")
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _float(text: str) -> float:
    if text not in ("NaN", "Infinity", "-Infinity"):
        raise ValueError("not a number")
    return float(text)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_PLAIN = msgspec.json.Decoder(dict[str, Any], float_hook=number_of)
_CONVERT: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "timestamp": _time,
    "decimal": Decimal,
    "binary": _bytes,
    "float": _float,
    "double": _float,
}
