"""The cursor: a scan over a view."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pyarrow as pa

from stelae.rows.keys import encode_keys
from stelae.rows.parquet_rows import StoredPage
from stelae.rows.predicate_filter import filter_rows
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Cursor
from stelae_store_columnar.batch_sizes import rows_within
from stelae_store_columnar.pruning import Pruner, key_bounds, key_range
from stelae_store_columnar.step_plan import StepPlan
from stelae_store_columnar.step_reader import StepReader
from stelae_store_columnar.view import ColumnarView


class ColumnarCursor(Cursor):
    """Returns the rows of a view in key order, forwards or backwards. The order ``ANY`` is forwards, too.

    It always reads the key columns, because the resume token consists of them."""

    def __init__(self, view: ColumnarView, spec: ScanSpec, *, may_block: bool = True) -> None:
        if spec.limit is not None and spec.limit < 0:
            raise CallerError(f"the limit of a scan is {spec.limit}; it must be 0 or more, or None for all rows")
        schema = view.schema
        self._schema = schema
        self._layout = schema.project(spec.columns)
        self._predicates = spec.predicates
        wanted = (*self._layout.ids, *schema.key, *(predicate.column for predicate in spec.predicates))
        if spec.predicates:  # Check them now, also if no row is read.
            filter_rows(schema, spec.predicates, RowBatch.from_equal_rows(schema.layout, []))
        self._read_layout = schema.project(dict.fromkeys(wanted))
        self._backwards = spec.order is Order.KEY_DESCENDING
        self._left = spec.limit
        self._token: bytes | None = spec.after
        self._last: RowBatch | None = None  # The last row that was returned, if the token is not yet that of its key.
        self._view: ColumnarView | None = view
        self._steps: StepReader | None = None
        low, high = key_bounds(view.order, spec)
        if self._left != 0:
            prune = Pruner(schema, view.state.adapter, spec.predicates)
            interval = key_range(schema, view.order, spec.predicates, low, high)
            plan = StepPlan(view, interval, backwards=self._backwards, rows_wanted=spec.limit, may_block=may_block)
            self._steps = StepReader(view, self._read_layout, plan, prune)
        self._waiting: deque[RowBatch] = deque()
        self._waiting_rows = 0
        self._returns_stored = False

    def read_ahead(self) -> None:
        """Read all rows of a scan with a limit now. ``MustBlock``: see ``StepPlan``."""
        assert self._left is not None
        while self._waiting_rows < self._left and self._fill(self._left):
            pass

    def next_batch(self, rows_max: int = BATCH_ROWS_MAX) -> RowBatch | None:
        if self._left == 0:
            return None
        # No code here loops over rows in Python, so a batch may be as large as the caller allows.
        wanted = max(1, rows_max if self._left is None else min(rows_max, self._left))
        more = self._fill(wanted)
        if not self._waiting:
            if not more or self._steps is None or self._steps.ended:
                return None  # No key is left for which the token could move.
            # No row of many steps may match. A page of a scan also ends after a number of rows that were read.
            self._token = self._steps.passed or self.resume_token
            self._last = None
            return RowBatch.from_equal_rows(self._layout, [])
        rows = self._take(wanted)
        self._last = rows.slice(len(rows) - 1)
        return rows.select(self._layout)

    def next_stored(self, rows_max: int, bytes_max: int) -> StoredPage | None:
        """See ``StoredRowsCursor``.

        After the first call, decoded batches end before row groups that can be returned stored."""
        self._returns_stored = not self._backwards and not self._predicates
        if not self._returns_stored or self._waiting or self._steps is None or self._view is None or self._left == 0:
            return None
        slices = self._steps.take_plain(rows_max if self._left is None else min(rows_max, self._left), bytes_max)
        if not slices:
            return None
        block, indexes = slices[0].row_group.block, [source_slice.row_group.index for source_slice in slices]
        stored, data = block.stored([source_slice.row_group.number for source_slice in slices], self._layout.ids)
        row_count = sum(index.rows for index in indexes)
        if self._left is not None:
            self._left -= row_count
        self._token, self._last = self._view.order.encode(indexes[-1].last), None
        return StoredPage(row_count, stored, data, block.footer)

    @property
    def resume_token(self) -> bytes | None:
        if self._last is not None:
            [self._token] = encode_keys(self._schema, self._last)
            self._last = None
        return self._token

    def close(self) -> None:
        self._steps = self._view = None
        self._waiting.clear()
        self._waiting_rows = 0

    def _fill(self, wanted: int) -> bool:
        """Read steps until ``wanted`` rows are queued, or ``wanted`` rows or ``BATCH_BYTES_MAX`` were read.

        Returns false at the end."""
        read = size_bytes = 0
        while self._waiting_rows < wanted and size_bytes < BATCH_BYTES_MAX:
            begun = read or self._waiting  # Otherwise the next rows must be decoded.
            if begun and self._returns_stored and self._steps is not None and self._steps.at_plain:
                break
            found = None if self._steps is None else self._steps.next()
            if found is None:
                return False
            self._queue(found)
            read += sum(map(len, found)) or BATCH_ROWS_MAX  # A step without rows may have cost as much as any other.
            if read >= wanted:
                break  # Before the sum of bytes, which a point read need not compute.
            size_bytes += sum(rows.nbytes for rows in found)
        return True

    def _queue(self, found: Sequence[RowBatch]) -> None:
        """Queue the rows that match."""
        for rows in found:
            matching = filter_rows(self._schema, self._predicates, rows)
            if len(matching):
                self._waiting.append(matching)
                self._waiting_rows += len(matching)

    def _take(self, count: int) -> RowBatch:
        """Return up to ``count`` of the queued rows as one batch, as far as they fit in it."""
        taken: list[RowBatch] = []
        bytes_left = BATCH_BYTES_MAX
        while count and self._waiting:
            rows = self._waiting.popleft()
            fits = min(count, len(rows))
            if count > 1 or taken:  # A point read need not compute the sum.
                size_bytes = int(rows.arrow.get_total_buffer_size())  # An upper bound, and soon found.
                if size_bytes > bytes_left:
                    size_bytes = rows.nbytes
                if size_bytes > bytes_left:
                    fits = min(fits, max(rows_within(rows, bytes_left), not taken))
                bytes_left -= size_bytes
            if fits < len(rows):
                self._waiting.appendleft(rows.slice(fits))
            if not fits:
                break
            taken.append(rows.slice(0, fits))
            count -= fits
            if bytes_left < 0:
                break
        found = sum(map(len, taken))
        self._waiting_rows -= found
        if self._left is not None:
            self._left -= found
        if len(taken) == 1:
            return taken[0]
        # The C library keeps freed memory for the next batch. Arrow's allocator returns it to the system, which is
        # slow.
        pool = pa.system_memory_pool()
        return RowBatch(taken[0].layout, pa.concat_batches([rows.arrow for rows in taken], memory_pool=pool))
