"""CSV files with a header: rows that are ragged or do not fit are told one by one, and the others go on.

All columns are read as bytes, by Arrow, and turned into values afterwards: so text that is no UTF-8, or no number, is
a matter of its row. An empty cell is null; a quoted empty one is empty text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.client.text_values import parse_text
from stelae.spi.schema import Schema
from stelae_transfer.files import UTF8_MARK, UTF16_MARKS, BrokenInput, NoInput, Stream
from stelae_transfer.inference import arrow_of_texts
from stelae_transfer.records import CHUNK_ROWS_MAX, SAMPLE_ROWS, BadRow, RowChunk

BLOCK_BYTES = 4 << 20
"""Bytes that are parsed at a time; no row is longer."""

HEADER_BYTES_MAX = 1 << 20
"""Longest header."""

_PIECE_BYTES = 1 << 16
"""Bytes asked of a stream at a time: if it breaks, so many are lost with what broke."""


_SURPLUS_BYTES = 3
"""What a cell takes in memory beyond its text and the delimiter behind it: an offset of four bytes."""


class CsvReader:
    """Reads one CSV file.

    Args:
        path: the file.
        compression: of it, as Arrow calls it; empty: none.
        delimiter: one character between cells.
        null: unquoted text that stands for null, besides nothing at all.

    Raises:
        NoInput: it cannot be opened, or has no header.
        BrokenInput: its header cannot be read.
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
        """Return the Arrow type that the texts of each column seem to have, judged by the first rows."""
        return {name: arrow_of_texts(values) for name, values in self.sample().items()}

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first texts of each column."""
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
        """Yield the rows behind a number; see ``Reader.chunks``."""
        seen = 0
        for batch in self._batches():
            for start in range(0, len(batch), CHUNK_ROWS_MAX):
                piece = batch.slice(start, CHUNK_ROWS_MAX)
                # Cells, and what stands between them. Arrow itself reads far ahead.
                self._seen_bytes += piece.nbytes - _SURPLUS_BYTES * piece.num_columns * len(piece)
                numbers, seen = self._number(seen, len(piece))
                if seen > after:
                    yield self._chunk(schema, columns, piece, numbers, seen, after)
        if self._unclosed is not None:
            (number,), _ = self._number(seen, 1)
            reason = "a quote in it is never closed: all that follows in the file became part of this row"
            self._ragged.append(BadRow(number, "BAD_VALUE", reason, self._raw(self._unclosed, 0)))
        rest = sorted([row for row in self._ragged if row.row > max(seen, after)], key=lambda row: row.row)
        if rest:
            yield RowChunk([], (), rest, rest[-1].row, 1.0)

    def _number(self, seen: int, count: int) -> tuple[list[int], int]:
        """Number rows that came through: those between them that did not have numbers of their own."""
        odd = {row.row for row in self._ragged if row.row > seen}
        numbers: list[int] = []
        while len(numbers) < count:
            seen += 1
            if seen not in odd:
                numbers.append(seen)
        return numbers, seen

    def _chunk(
        self, schema: Schema, columns: Sequence[str], piece: Any, numbers: list[int], last: int, after: int
    ) -> RowChunk:
        import pyarrow as pa

        kept = [place for place, number in enumerate(numbers) if number > after]
        piece, numbers = piece.slice(len(numbers) - len(kept)), numbers[len(numbers) - len(kept) :]
        ragged = [row for row in self._ragged if after < row.row <= last]
        self._ragged = [row for row in self._ragged if row.row > last]
        fitted = {name: parse_text(schema.by_name[name], piece.column(name)) for name in columns}
        reasons: dict[int, str] = {}
        for one in fitted.values():
            for place, reason in one.bad.items():
                reasons.setdefault(place, reason)
        bad = [
            BadRow(numbers[place], "BAD_VALUE", reason, self._raw(piece, place)) for place, reason in reasons.items()
        ]
        rows = pa.RecordBatch.from_arrays([one.array for one in fitted.values()], names=[*fitted])
        if reasons:
            rows = rows.filter(pa.array([place not in reasons for place in range(len(numbers))], pa.bool_()))
            numbers = [number for place, number in enumerate(numbers) if place not in reasons]
        told = sorted([*ragged, *bad], key=lambda row: row.row)
        return RowChunk(rows, numbers, told, last, self._stream.share(self._seen_bytes))

    def _raw(self, piece: Any, place: int) -> dict[str, str | None]:
        cells = piece.slice(place, 1).to_pylist()[0]
        return {name: None if cell is None else cell.decode(errors="replace") for name, cell in cells.items()}

    # -- the file --------------------------------------------------------------------------------

    def _header(self, stream: Stream) -> list[str]:
        source = _UntilBroken(stream.file)
        data = source.read(HEADER_BYTES_MAX)
        if source.error is not None and b"\n" not in data:
            raise BrokenInput(f"{self._path} cannot be read: {source.error}") from source.error
        if data[:2] in UTF16_MARKS:
            fact = f"{self._path} is UTF-16; this reads UTF-8"
            raise BrokenInput(f"{fact}: convert it with iconv -f UTF-16 -t UTF-8")
        try:
            text = io.StringIO(data.decode("utf-8-sig", errors="surrogateescape"), newline="")
            names = next(csv.reader(text, delimiter=self._delimiter), [])
            self._is_bare = len(data) < HEADER_BYTES_MAX and not text.read().strip("\r\n") and source.error is None
            "".join(names).encode()
        except UnicodeEncodeError:
            fact = f"the header of {self._path} is no UTF-8 text: convert it with iconv"
            raise BrokenInput(f"{fact}, or say with --format what it is if it is no CSV") from None
        except csv.Error as error:
            raise BrokenInput(f"the header of {self._path} cannot be read: {error}") from error
        if not data.removeprefix(UTF8_MARK):
            raise NoInput(f"{self._path} is empty: there is nothing to read")
        if not any(names):
            raise NoInput(f"{self._path} begins with an empty line; its first line has to name the columns")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not all(names):
            what = f"names {twice[0]!r} twice" if twice else "has a column without a name"
            step = "" if twice else "; name it in the file (pandas writes its index so: to_csv(..., index=False))"
            raise BrokenInput(f"the header of {self._path} {what}: {', '.join(names)[:400]}{step}")
        return names

    def _batches(self) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        source = _UntilBroken(self._stream.file)
        if self._is_bare:
            return  # Arrow calls a header without the end of its line an empty file.
        try:
            read = arrow_csv.open_csv(
                source,
                # One thread: only then do rows that are left out come with their number.
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
            yield from source.whole(read)
            self._unclosed = source.unclosed
        except (OSError, pa.ArrowException) as caught:
            error = source.error or caught
            hint = ""
            if "straddling" in str(error):
                hint = f"; a row longer than {BLOCK_BYTES >> 20} MiB, or a quote that is never closed?"
            raise BrokenInput(f"{self._path} cannot be read on: {error}{hint}") from error

    def _leave_out(self, row: Any) -> str:
        reason = f"expected {row.expected_columns} cells, got {row.actual_columns}"
        self._ragged.append(BadRow(row.number - 1, "RAGGED", reason, row.text))
        return "skip"


class _UntilBroken:
    """A stream that ends where it breaks, and remembers why.

    Arrow reads far ahead, and tells an error of the stream before it hands out what it has read: how many rows came
    before it was a matter of time. Nor does it tell that a quote is open where the text ends: then the last row has
    swallowed what stood behind the quote.

    Attributes:
        error: why it broke.
        unclosed: the last row, if it holds several lines and the number of quotes in the text is odd.
    """

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._quotes = 0
        self.error: OSError | None = None
        self.unclosed: Any = None

    def read(self, size_bytes: int = -1) -> bytes:
        """Return what there is, up to so many bytes; all of it if there are fewer, or the stream breaks behind them."""
        pieces: list[bytes] = []
        left = size_bytes
        while left and self.error is None:
            try:
                piece = bytes(self._file.read(min(left, _PIECE_BYTES) if left > 0 else _PIECE_BYTES))
            except OSError as error:
                self.error = error
                break
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece) if left > 0 else 0
        data = b"".join(pieces)
        self._quotes += data.count(b'"')
        return data

    def close(self) -> None:
        """Whoever made the stream closes it."""

    def whole(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Hand on what was read of it, but for the last row if it broke, which may be half a row; then raise why."""
        held = None
        for batch in batches:
            if held is not None:
                yield held
            held = batch
        if held is not None:
            before, last = held.slice(0, max(0, len(held) - 1)), held.slice(max(0, len(held) - 1))
            if self.error is None and self._quotes % 2 and _has_lines(last):
                self.unclosed = last
            yield held if self.error is None and self.unclosed is None else before
        if self.error is not None:
            raise self.error


def _has_lines(row: Any) -> bool:
    return any(cell is not None and b"\n" in cell for column in row.columns for cell in column.to_pylist())
