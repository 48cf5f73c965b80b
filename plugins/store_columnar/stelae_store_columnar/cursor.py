"""Cursors: a scan over a view."""

from __future__ import annotations

from collections import deque

from stelae.rows.key_order import Comparable
from stelae.rows.keys import encode_keys
from stelae.rows.matching import matching
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import BATCH_ROWS_MAX, Cursor
from stelae_store_columnar.pruning import Pruner, key_range
from stelae_store_columnar.view import StepReader, View


class ColumnarCursor(Cursor):
    """Rows of a view in key order, forwards or backwards; ``ANY`` is forwards, too.

    Key columns are always read: the resume token is made of them."""

    def __init__(self, view: View, spec: ScanSpec) -> None:
        if spec.limit is not None and spec.limit < 0:
            raise CallerError(f"a scan's limit is {spec.limit}; give 0 or more, or none for all")
        schema = view.schema
        self._schema = schema
        self._layout = schema.project(spec.columns)
        self._predicates = spec.predicates
        wanted = (*self._layout.ids, *schema.key, *(predicate.column for predicate in spec.predicates))
        # Refuses what does not fit, rows or not.
        matching(schema, spec.predicates, RowBatch.from_equal_rows(schema.layout, []))
        self._read_layout = schema.project(dict.fromkeys(wanted))
        self._backwards = spec.order is Order.KEY_DESCENDING
        self._left = spec.limit
        self._token: bytes | None = spec.after
        self._view: View | None = view
        self._steps: StepReader | None = None
        low, high = _bounds(view, spec, self._backwards)
        if self._left != 0:
            prune = Pruner(schema, view.state.fitting, spec.predicates)
            todo = view.steps(*key_range(schema, view.order, spec.predicates, low, high))
            self._steps = StepReader(view, self._read_layout, todo, self._backwards, prune)
        self._waiting: deque[RowBatch] = deque()

    def next_batch(self, rows_max: int = BATCH_ROWS_MAX) -> RowBatch | None:
        if self._left == 0:
            return None
        if not self._waiting:
            if self._steps is None or not self._advance():
                return None
            if not self._waiting:
                return RowBatch.from_equal_rows(self._layout, [])
        rows = self._take(max(1, min(rows_max, BATCH_ROWS_MAX)))
        if rows.num_rows:
            self._token = encode_keys(self._schema, rows.slice(rows.num_rows - 1))[0]
        return rows.select(self._layout)

    @property
    def resume_token(self) -> bytes | None:
        return self._token

    def close(self) -> None:
        self._steps = self._view = None
        self._waiting.clear()

    def _advance(self) -> bool:
        """Read one more step; false at the end."""
        assert self._steps is not None
        found = self._steps.next()
        if found is None:
            return False
        for rows in found[0]:
            kept = matching(self._schema, self._predicates, rows)
            if kept.num_rows:
                self._waiting.append(kept)
        return True

    def _take(self, count: int) -> RowBatch:
        rows = self._waiting.popleft()
        if self._left is not None:
            count = min(count, self._left)
        if rows.num_rows > count:
            self._waiting.appendleft(rows.slice(count))
            rows = rows.slice(0, count)
        if self._left is not None:
            self._left -= rows.num_rows
        return rows


def _bounds(view: View, spec: ScanSpec, backwards: bool) -> tuple[Comparable | None, Comparable | None]:
    bound = view.order.bound
    low = None if spec.key_from is None else bound(spec.key_from)
    high = None if spec.key_until is None else bound(spec.key_until)
    if spec.after is not None and backwards:
        end = bound(spec.after)
        high = end if high is None else min(high, end)
    elif spec.after is not None:
        start = bound(spec.after + b"\0")
        low = start if low is None else max(low, start)
    return low, high
