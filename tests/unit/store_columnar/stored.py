"""Reads a store as a server does for a client that takes rows as they are stored: whole row groups undecoded where the
cursor hands them on, decoded batches elsewhere."""

from __future__ import annotations

from typing import Any

from stelae.rows.parquet_rows import Footer, StoredRowsCursor, read_stored
from stelae.spi.scan import ScanSpec
from stelae.spi.store import TabletStore
from stelae.testing.conformance.store_model import Row


def read_as_stored(
    store: TabletStore, at: int | None = None, *, rows_max: int = 1000, bytes_max: int = 1 << 30, **spec: Any
) -> tuple[list[Row], int]:
    """Return all rows in the order in which they came, and how many of them came as they are stored.

    The resume token behind every piece is checked: a cursor that begins there returns the rest."""
    scan = ScanSpec(**{"order": "key", **spec})
    layout = store.schema.project(scan.columns)
    rows: list[Row] = []
    handed_on = 0
    with store.scan(scan, at) as cursor:
        assert isinstance(cursor, StoredRowsCursor)
        while True:
            piece = cursor.next_stored(rows_max, bytes_max)
            if piece is not None:
                footer = Footer(piece.stored.file, piece.footer())
                some = read_stored(layout, piece.stored, b"".join(piece.data), footer).to_rows()
                assert 0 < len(some) == piece.row_count <= rows_max
                handed_on += len(some)
            else:
                batch = cursor.next_batch(rows_max)
                if batch is None:
                    return rows, handed_on
                some = batch.to_rows()
            rows += some
            if some and scan.limit is None:
                _check_token(store, scan, at, cursor.resume_token, rows)


def _check_token(store: TabletStore, scan: ScanSpec, at: int | None, token: bytes | None, rows: list[Row]) -> None:
    fields = {name: getattr(scan, name) for name in scan.__struct_fields__}
    with store.scan(ScanSpec(**fields), at) as whole:
        everything = [row for batch in whole for row in batch.to_rows()]
    with store.scan(ScanSpec(**{**fields, "after": token}), at) as rest:
        assert rows + [row for batch in rest for row in batch.to_rows()] == everything
