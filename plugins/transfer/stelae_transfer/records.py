"""Rows of a file on their way into a table: numbered chunks, and the rows that could not be read.

A row's number is its position in the file from 1, header and empty lines not counted. Numbers are the same whenever
the same file is read, whatever is wrong with some of its rows: that is what lets an import go on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stelae.spi.schema import Schema

CHUNK_ROWS_MAX = 32_768
"""Most rows of a chunk: two full operations of the client, so that one is under way while the next is encoded."""

CHUNK_BYTES = 8 << 20
"""Bytes of values from which on a chunk holds fewer rows: a few of them are in memory at a time."""

SAMPLE_ROWS = 10_000
"""Rows from which a schema is inferred."""


class BadRow(NamedTuple):
    """A row that was not taken."""

    row: int
    code: str
    reason: str
    values: Any = None  #: By column as far as it could be read, else the line as text.
    rows: int = 1  #: Rows from ``row`` on that share this, where they could not be told apart.


class RowChunk(NamedTuple):
    """Consecutive rows of a file. ``rows`` is what the client takes: an Arrow batch, or dicts."""

    rows: Any
    numbers: Sequence[int]
    bad: Sequence[BadRow]
    last: int  #: Number of the last row that the chunk accounts for.
    done: float = 0.0  #: How much of the file it and all before it are, from 0 to 1, about.

    def part(self, start: int, count: int) -> tuple[Any, Sequence[int]]:
        """Return some of the rows that are handed on, and their numbers."""
        rows = self.rows.slice(start, count) if hasattr(self.rows, "slice") else self.rows[start : start + count]
        return rows, self.numbers[start : start + count]


class RecordReader(Protocol):
    """Reads one file. Made anew for each pass."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns, in the order of the file."""
        ...

    def types(self) -> Mapping[str, Any]:
        """Return the Arrow type of each column, or ``None`` for text whose type is to be inferred.

        Reads a sample; the reader is used up then."""
        ...

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first ``SAMPLE_ROWS`` values of each column, as they stand in the file. Uses the reader up."""
        ...

    def chunks(self, schema: Schema, columns: Sequence[str], after: int) -> Iterator[RowChunk]:
        """Yield the rows behind a number, as values of a schema.

        Args:
            schema: of the table.
            columns: those of the file that are wanted.
            after: rows up to this number are left out.

        Raises:
            BrokenInput: the file cannot be read on.
        """
        ...

    def close(self) -> None:
        """Close the file."""
        ...
