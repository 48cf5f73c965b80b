"""The two forms of the rows that a store has found for some keys: plain rows and a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stelae.spi.rows import RowBatch
from stelae.spi.store import FoundBatch, FoundRows


def plain_rows(found: FoundRows | FoundBatch) -> Sequence[tuple[Any, ...] | None]:
    """Return a row of plain values for each key, or ``None``: it has no row."""
    if isinstance(found, FoundRows):
        return found.rows
    rows = found.rows.to_rows()
    return [None if position < 0 else rows[position] for position in found.positions]


def as_batch(found: FoundRows | FoundBatch) -> FoundBatch:
    """Return the same rows as a batch."""
    if isinstance(found, FoundBatch):
        return found
    rows = [row for row in found.rows if row is not None]
    numbers = iter(range(len(rows)))
    positions = [-1 if row is None else next(numbers) for row in found.rows]
    return FoundBatch(found.schema, RowBatch.from_equal_rows(found.schema.layout, rows), positions, found.unread)


def first_keys(found: FoundBatch, count: int) -> FoundBatch:
    """Return what was found for the first keys, in a batch of these rows only. No key of ``found`` is unread."""
    positions, rows = renumbered(found.positions[:count], found.rows)
    return FoundBatch(found.schema, rows, positions)


def renumbered(positions: Sequence[int], rows: RowBatch) -> tuple[list[int], RowBatch]:
    """Return the rows at some positions without the others, each once, and the positions in these rows; -1: no row."""
    import pyarrow as pa

    number_of = {position: number for number, position in enumerate(sorted({*positions} - {-1}))}
    taken = rows.arrow.take(pa.array(number_of, pa.int64()))
    return [number_of.get(position, -1) for position in positions], RowBatch(rows.layout, taken)
