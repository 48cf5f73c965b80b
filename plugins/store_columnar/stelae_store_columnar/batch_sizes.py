"""How many rows of a batch fit into one step of a scan, a diff or an export."""

from __future__ import annotations

from collections.abc import Iterator

from stelae.spi.rows import RowBatch
from stelae.spi.store import BATCH_BYTES_MAX


def rows_within(rows: RowBatch, size_bytes: int) -> int:
    """Return the number of rows, from the first on, that have at most ``size_bytes``."""
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


def in_batches(rows: RowBatch) -> Iterator[RowBatch]:
    """Split rows into batches that fit into one step each. A row that is too large is a batch of its own."""
    while len(rows):
        count = max(1, rows_within(rows, BATCH_BYTES_MAX))
        yield rows.slice(0, count)
        rows = rows.slice(count)
