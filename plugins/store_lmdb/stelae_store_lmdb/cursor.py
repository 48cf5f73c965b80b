"""The cursor: a scan over a view, step by step."""

from __future__ import annotations

from stelae.rows.keys import encode_keys
from stelae.rows.predicate_filter import filter_rows
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import BATCH_ROWS_MAX, Cursor
from stelae_store_lmdb.key_ranges import KeyBounds, key_range
from stelae_store_lmdb.view import LmdbView


class LmdbCursor(Cursor):
    """Returns the rows of a view in key order, forwards or backwards. The order ``ANY`` is forwards, too.

    Only the requested columns, those of predicates and the key columns are converted to Arrow."""

    def __init__(self, view: LmdbView, spec: ScanSpec) -> None:
        if spec.limit is not None and spec.limit < 0:
            raise CallerError(f"the limit of a scan is {spec.limit}; it must be 0 or more, or None for all rows")
        schema = view.schema
        self._view = view
        self._layout = schema.project(spec.columns)
        self._predicates = spec.predicates
        if spec.predicates:  # check the predicates now, also if no row is read
            filter_rows(schema, spec.predicates, RowBatch.from_equal_rows(schema.layout, []))
        wanted = (*self._layout.ids, *schema.key, *(predicate.column for predicate in spec.predicates))
        self._reader = view.reader(schema.project(dict.fromkeys(wanted)))
        self._backwards = spec.order is Order.KEY_DESCENDING
        self._range: KeyBounds | None = key_range(schema, spec)
        self._left = spec.limit
        self._token: bytes | None = spec.after

    def next_batch(self, rows_max: int = BATCH_ROWS_MAX) -> RowBatch | None:
        if self._range is None or self._left == 0:
            return None
        count = max(1, min(rows_max, BATCH_ROWS_MAX))
        if self._left is not None and not self._predicates:
            count = min(count, self._left)
        rows = filter_rows(self._view.schema, self._predicates, self._read(count))
        if self._left is not None:
            if len(rows) > self._left:
                rows = rows.slice(0, self._left)
                self._token = encode_keys(self._view.schema, rows.slice(self._left - 1))[0]
            self._left -= len(rows)
        return rows.select(self._layout)

    @property
    def resume_token(self) -> bytes | None:
        return self._token

    def close(self) -> None:
        self._view.close()
        self._range = None

    def _read(self, keys_max: int) -> RowBatch:
        """Read the rows of one step, and set the range to what is left of it."""
        assert self._range is not None
        rows, self._range, last = self._view.rows(*self._range, self._backwards, keys_max, self._reader)
        self._token = self._token if last is None else last
        return RowBatch.from_equal_rows(self._reader.layout, rows)
