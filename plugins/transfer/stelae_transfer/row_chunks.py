"""Rows of a file on their way into a table: numbered chunks, and the rows that could not be read.

The number of a row is its position in the file, counted from 1 without the header and empty lines. Every pass over the
same file gives the same numbers, also when some rows are bad. This is why an import can resume where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from stelae.spi.schema import Schema

CHUNK_ROWS_MAX = 32_768
"""Most rows of a chunk: two full operations of the client, so that the client encodes one while it sends the other."""

CHUNK_BYTES = 8 << 20
"""Target size of a chunk. A chunk of wide rows has fewer rows, because a few chunks are in memory at a time."""

SAMPLE_ROWS = 10_000
"""Number of rows from which a schema is inferred."""


class LateColumns(StrEnum):
    """What to do with columns that only rows after the first ``SAMPLE_ROWS`` have, as JSON lines can."""

    LOAD = "load"  #: Load them. Rows with columns that the table does not have are bad.
    SKIP_UNKNOWN = "skip-unknown"  #: Load those that the table has.
    SKIP = "skip"  #: Leave them out: the columns to load are given.


class BadRow(NamedTuple):
    """A row that was not written."""

    row: int  #: Number of the row in the file.
    code: str
    reason: str
    values: Any = None  #: Values by column if the row could be parsed, otherwise its line as text.
    rows: int = 1  #: How many rows, from ``row`` on, failed together. More than 1 if it is unknown which failed.


class RowChunk(NamedTuple):
    """Consecutive rows of a file."""

    rows: Any  #: The rows that could be read, as the client takes them: an Arrow batch or a list of dicts.
    numbers: Sequence[int]  #: The number of each of these rows.
    bad: Sequence[BadRow]  #: The rows that could not be read.
    last: int  #: Number of the last row of the chunk, good or bad.
    done: float = 0.0  #: The approximate fraction of the file up to the end of this chunk, from 0 to 1.

    def slice(self, start: int, count: int) -> tuple[Any, Sequence[int]]:
        """Return ``count`` of the rows that could be read, from position ``start`` on, and their numbers."""
        rows = self.rows.slice(start, count) if hasattr(self.rows, "slice") else self.rows[start : start + count]
        return rows, self.numbers[start : start + count]


class RowChunkReader(Protocol):
    """Reads one file, once. Each pass needs a new reader."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns, in the order of the file."""
        ...

    def types(self) -> Mapping[str, Any]:
        """Return the Arrow type of each column, or ``None`` for text whose type is to be inferred.

        Reads a sample. The reader cannot be used afterwards."""
        ...

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first ``SAMPLE_ROWS`` values of each column, unconverted. The reader cannot be used afterwards."""
        ...

    def chunks(self, schema: Schema, columns: Sequence[str], after: int) -> Iterator[RowChunk]:
        """Yield the rows after a row number, as values of a schema.

        Args:
            schema: the schema of the table.
            columns: the columns of the file to read.
            after: rows up to this number are skipped.

        Raises:
            BrokenInput: the rest of the file cannot be read.
        """
        ...

    def close(self) -> None:
        """Close the file."""
        ...
