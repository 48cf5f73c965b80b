"""How many rows of a batch fit into what is handed out in one step."""

from __future__ import annotations

from collections.abc import Iterator

from stelae.spi.rows import RowBatch
from stelae.spi.store import BATCH_BYTES_MAX


def rows_within(rows: RowBatch, size_bytes: int) -> int:
    """Return how many rows, from the first on, have no more bytes than is said."""
    if rows.nbytes <= size_bytes:
        return len(rows)
    fits, above = 0, len(rows)
    while above - fits > 1:
        middle = (fits + above) // 2
        if rows.slice(0, middle).nbytes <= size_bytes:
            fits = middle
        else:
            above = middle
    return fits


def in_pieces(rows: RowBatch) -> Iterator[RowBatch]:
    """Cut rows into pieces that a step may hand out; a row that is too large by itself is a piece."""
    while len(rows):
        count = max(1, rows_within(rows, BATCH_BYTES_MAX))
        yield rows.slice(0, count)
        rows = rows.slice(count)
