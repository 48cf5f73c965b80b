"""Reader of CSV files with a header. It reports ragged rows and bad values row by row, and goes on with the others.

Arrow parses all columns as bytes, which are converted to values afterwards. So bytes that are not UTF-8, or not a
number, make only their row bad. An empty cell is null; a quoted empty cell is empty text."""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.client.text_values import parse_text
from stelae.spi.schema import Schema
from stelae_transfer.files import UTF8_MARK, BrokenInput, NoInput, Stream, check_utf8
from stelae_transfer.inference import arrow_of_texts
from stelae_transfer.row_chunks import CHUNK_ROWS_MAX, SAMPLE_ROWS, BadRow, RowChunk

BLOCK_BYTES = 4 << 20
"""Bytes that Arrow parses at a time. A longer row is an error."""

HEADER_BYTES_MAX = 1 << 20
"""Greatest length of the header."""

_READ_BYTES = 1 << 16
"""Bytes that are read from a stream at a time. If a read fails, at most this much before the failure is lost."""


_QUOTED = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"')
"""A quoted cell. A quote in it is doubled."""

_SURPLUS_BYTES = 3
"""Bytes of a cell in memory beyond its text and its delimiter: an offset of four bytes replaces the delimiter."""


class CsvReader:
    """Reads one CSV file.

    Args:
        path: the file.
        compression: its compression, by Arrow's name; empty: none.
        delimiter: the character between cells.
        null: unquoted text that means null, in addition to an empty cell.

    Raises:
        NoInput: the file cannot be opened, or has no header.
        BrokenInput: the header cannot be read.
    """

    def __init__(self, path: Path, compression: str = "", *, delimiter: str = ",", null: str = "") -> None:
        self._path = path
        self._delimiter = delimiter
        self._nulls = ["", null] if null else [""]
        self._ragged: list[BadRow] = []
        self._unclosed: Any = None
        self._seen_bytes = 0
        first = Stream(path, compression)
        try:
            self.columns: Sequence[str] = self._header(first)
        finally:
            first.close()
        self._stream = Stream(path, compression)
        self._compression = compression

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def types(self) -> Mapping[str, Any]:
        """Return the Arrow type of each column, inferred from the first rows."""
        return {name: arrow_of_texts(values) for name, values in self.sample().items()}

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first cells of each column, as text."""
        found: dict[str, list[Any]] = {name: [] for name in self.columns}
        for batch in self._batches():
            for name in self.columns:
                room = SAMPLE_ROWS - len(found[name])
                cells = batch.column(name).slice(0, room).to_pylist()
                found[name] += [None if cell is None else cell.decode(errors="replace") for cell in cells]
            if not self.columns or len(found[self.columns[0]]) >= SAMPLE_ROWS:
                break
        return found

    def chunks(self, schema: Schema, columns: Sequence[str], after: int) -> Iterator[RowChunk]:
        """Yield the rows after a row number; see ``RowChunkReader.chunks``."""
        seen = 0
        for batch in self._batches():
            for start in range(0, len(batch), CHUNK_ROWS_MAX):
                part = batch.slice(start, CHUNK_ROWS_MAX)
                # Computed from the cells and their delimiters, because Arrow reads far ahead of this batch.
                self._seen_bytes += part.nbytes - _SURPLUS_BYTES * part.num_columns * len(part)
                numbers, seen = self._number(seen, len(part))
                if seen > after:
                    yield self._chunk(schema, columns, part, numbers, seen, after)
        if self._unclosed is not None:
            (number,), _ = self._number(seen, 1)
            reason = "a quote is never closed: the rest of the file became part of this row"
            self._ragged.append(BadRow(number, "BAD_VALUE", reason, self._raw(self._unclosed, 0)))
        rest = sorted([row for row in self._ragged if row.row > max(seen, after)], key=lambda row: row.row)
        if rest:
            yield RowChunk([], (), rest, rest[-1].row, 1.0)

    def _number(self, seen: int, count: int) -> tuple[list[int], int]:
        """Return the numbers of the next ``count`` parsed rows, and the last of them. Skips ragged rows."""
        odd = {row.row for row in self._ragged if row.row > seen}
        numbers: list[int] = []
        while len(numbers) < count:
            seen += 1
            if seen not in odd:
                numbers.append(seen)
        return numbers, seen

    def _chunk(
        self, schema: Schema, columns: Sequence[str], batch: Any, numbers: list[int], last: int, after: int
    ) -> RowChunk:
        import pyarrow as pa

        skipped = sum(number <= after for number in numbers)
        batch, numbers = batch.slice(skipped), numbers[skipped:]
        ragged = [row for row in self._ragged if after < row.row <= last]
        self._ragged = [row for row in self._ragged if row.row > last]
        fitted = {name: parse_text(schema.by_name[name], batch.column(name)) for name in columns}
        reasons: dict[int, str] = {}
        for column in fitted.values():
            for position, reason in column.bad.items():
                reasons.setdefault(position, reason)
        bad = [
            BadRow(numbers[position], "BAD_VALUE", reason, self._raw(batch, position))
            for position, reason in reasons.items()
        ]
        rows = pa.RecordBatch.from_arrays([column.array for column in fitted.values()], names=[*fitted])
        if reasons:
            rows = rows.filter(pa.array([position not in reasons for position in range(len(numbers))], pa.bool_()))
            numbers = [number for position, number in enumerate(numbers) if position not in reasons]
        all_bad = sorted([*ragged, *bad], key=lambda row: row.row)
        return RowChunk(rows, numbers, all_bad, last, self._stream.fraction_read(self._seen_bytes))

    def _raw(self, batch: Any, position: int) -> dict[str, str | None]:
        """Return the cells of one row as text, for its entry in the file of bad rows."""
        cells = batch.slice(position, 1).to_pylist()[0]
        return {name: None if cell is None else cell.decode(errors="replace") for name, cell in cells.items()}

    # -- the file --------------------------------------------------------------------------------

    def _header(self, stream: Stream) -> list[str]:
        source = _EndAtError(stream.file)
        data = source.read(HEADER_BYTES_MAX)
        if source.error is not None and b"\n" not in data:
            raise BrokenInput(f"{self._path} cannot be read: {source.error}") from source.error
        check_utf8(self._path, data)
        try:
            text = io.StringIO(data.decode("utf-8-sig", errors="surrogateescape"), newline="")
            names = next(csv.reader(text, delimiter=self._delimiter), [])
            self._is_bare = len(data) < HEADER_BYTES_MAX and not text.read().strip("\r\n") and source.error is None
            "".join(names).encode()
        except UnicodeEncodeError:
            fact = f"the header of {self._path} is not UTF-8 text; convert the file with iconv"
            raise BrokenInput(f"{fact}, or pass its --format if it is not CSV") from None
        except csv.Error as error:
            raise BrokenInput(f"the header of {self._path} cannot be read: {error}") from error
        if not data.removeprefix(UTF8_MARK):
            raise NoInput(f"{self._path} is empty: there is nothing to read")
        if not any(names):
            raise NoInput(f"{self._path} begins with an empty line; the first line must name the columns")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not all(names):
            what = f"names {twice[0]!r} twice" if twice else "has a column without a name"
            step = "" if twice else "; name it in the file (to leave the index of pandas out: to_csv(..., index=False))"
            raise BrokenInput(f"the header of {self._path} {what}: {', '.join(names)[:400]}{step}")
        return names

    def _batches(self) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        source = _EndAtError(self._stream.file, self._delimiter.encode())
        if self._is_bare:
            return  # Arrow takes a header without a line end for an empty file.
        try:
            read = arrow_csv.open_csv(
                source,
                # With one thread, Arrow reports the row number of a ragged row.
                read_options=arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=self._leave_out
                ),
                convert_options=arrow_csv.ConvertOptions(
                    check_utf8=False,
                    column_types={name: pa.binary() for name in self.columns},
                    null_values=self._nulls,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            yield from source.complete_rows(read)
            self._unclosed = source.unclosed
        except (OSError, pa.ArrowException) as caught:
            error = source.error or caught
            hint = ""
            if "straddling" in str(error):
                hint = f"; is a row longer than {BLOCK_BYTES >> 20} MiB, or is there a quote that is never closed?"
            raise BrokenInput(f"the rest of {self._path} cannot be read: {error}{hint}") from error

    def _leave_out(self, row: Any) -> str:
        reason = f"expected {row.expected_columns} cells, got {row.actual_columns}"
        self._ragged.append(BadRow(row.number - 1, "RAGGED", reason, row.text))
        return "skip"


class _EndAtError:
    """A stream that ends at its first read error, and keeps the error.

    Arrow reads far ahead. It would raise an error of the stream before it returns the rows that it has already parsed,
    so the number of rows before the error would depend on timing. Arrow also does not report a quote that is open at
    the end of the text. In that case the last row contains everything after the quote.

    Attributes:
        error: the read error, or ``None``.
        unclosed: the last row, if the text ends within quotes: the file was cut, or a quote was never closed.
    """

    closed = False

    def __init__(self, file: Any, delimiter: bytes = b",") -> None:
        self._file = file
        self._delimiter = delimiter
        self._quotes = 0
        self._last_blocks: deque[bytes] = deque(maxlen=2)  # Each has the length of a block, which no row exceeds.
        self.error: OSError | None = None
        self.unclosed: Any = None

    def read(self, size_bytes: int = -1) -> bytes:
        """Return the next ``size_bytes`` bytes, or fewer at the end of the stream and before a read error."""
        blocks: list[bytes] = []
        left = size_bytes
        while left and self.error is None:
            try:
                block = bytes(self._file.read(min(left, _READ_BYTES) if left > 0 else _READ_BYTES))
            except OSError as error:
                self.error = error
                break
            if not block:
                break
            blocks.append(block)
            left -= len(block) if left > 0 else 0
        data = b"".join(blocks)
        self._quotes += data.count(b'"')
        if data:
            self._last_blocks.append(data)
        return data

    def close(self) -> None:
        """Do nothing: the owner of the stream closes it."""

    def complete_rows(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the parsed batches, then raise the read error if there was one.

        After an error the last row is left out, because it may be incomplete."""
        previous = None
        for batch in batches:
            if previous is not None:
                yield previous
            previous = batch
        if previous is not None:
            count = max(0, len(previous) - 1)
            before, last = previous.slice(0, count), previous.slice(count)
            if self.error is None and self._quotes % 2 and self._is_open(last):
                self.unclosed = last
            yield previous if self.error is None and self.unclosed is None else before
        if self.error is not None:
            raise self.error

    def _is_open(self, last: Any) -> bool:
        """Return whether the text of the last row ends within quotes, which all lines of its cells are then part of."""
        cells = [cell for column in last.columns for cell in column.to_pylist() if cell is not None]
        text = b"".join(self._last_blocks)
        begin = len(text)
        for _ in range(1 + sum(cell.count(b"\n") for cell in cells)):
            begin = max(0, text.rfind(b"\n", 0, begin))
        return _ends_in_quotes(text[begin:].removeprefix(b"\n"), self._delimiter)


def _ends_in_quotes(row: bytes, delimiter: bytes) -> bool:
    """Return whether the text of a row ends within a quoted cell. A quote within an unquoted cell is a sign as any."""
    cell_end = re.compile(re.escape(delimiter) + rb"|[\r\n]")
    begin = 0
    while True:
        if row[begin : begin + 1] == b'"':
            quoted = _QUOTED.match(row, begin)
            if quoted is None:
                return True
            begin = quoted.end()
        found = cell_end.search(row, begin)
        if found is None:
            return False
        begin = found.end()
