"""Cursors: a scan over a view."""

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
from stelae_store_columnar.pruning import Pruner, key_bounds, key_range
from stelae_store_columnar.sizes import rows_within
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
        filter_rows(schema, spec.predicates, RowBatch.from_equal_rows(schema.layout, []))
        self._read_layout = schema.project(dict.fromkeys(wanted))
        self._backwards = spec.order is Order.KEY_DESCENDING
        self._left = spec.limit
        self._token: bytes | None = spec.after
        self._view: View | None = view
        self._steps: StepReader | None = None
        low, high = key_bounds(view.order, spec)
        if self._left != 0:
            prune = Pruner(schema, view.state.fitting, spec.predicates)
            todo = view.steps(*key_range(schema, view.order, spec.predicates, low, high))
            self._steps = StepReader(view, self._read_layout, todo, self._backwards, prune)
        self._waiting: deque[RowBatch] = deque()
        self._waiting_rows = 0
        self._hands_on = False

    def next_batch(self, rows_max: int = BATCH_ROWS_MAX) -> RowBatch | None:
        if self._left == 0:
            return None
        # Nothing here visits a row in Python: a batch may be as large as whoever asks can take.
        wanted = max(1, rows_max if self._left is None else min(rows_max, self._left))
        more = self._fill(wanted)
        if not self._waiting:
            if not more or self._steps is None:
                return None
            # Nothing of many steps may be wanted, and a scan is cut into pages by what was looked at, too.
            self._token = self._steps.passed or self._token
            return RowBatch.from_equal_rows(self._layout, [])
        rows = self._take(wanted)
        self._token = encode_keys(self._schema, rows.slice(rows.num_rows - 1))[0]
        return rows.select(self._layout)

    def next_stored(self, rows_max: int, bytes_max: int) -> StoredPage | None:
        """See ``StoredRowsCursor``. Once asked for, decoded rows end before row groups that can be handed on."""
        self._hands_on = not self._backwards and not self._predicates
        if not self._hands_on or self._waiting or self._steps is None or self._view is None or self._left == 0:
            return None
        parts = self._steps.take_plain(rows_max if self._left is None else min(rows_max, self._left), bytes_max)
        if not parts:
            return None
        block, indexes = parts[0].piece.block, [part.piece.index for part in parts]
        stored, data = block.stored([part.piece.number for part in parts], self._layout.ids)
        row_count = sum(index.rows for index in indexes)
        if self._left is not None:
            self._left -= row_count
        self._token = self._view.order.encode(indexes[-1].last)
        return StoredPage(row_count, stored, data, block.footer)

    @property
    def resume_token(self) -> bytes | None:
        return self._token

    def close(self) -> None:
        self._steps = self._view = None
        self._waiting.clear()
        self._waiting_rows = 0

    def _fill(self, wanted: int) -> bool:
        """Read steps until so many rows wait, or so many or ``BATCH_BYTES_MAX`` were read; false at the end."""
        read = size_bytes = 0
        while self._waiting_rows < wanted and size_bytes < BATCH_BYTES_MAX:
            begun = read or self._waiting  # Else there is no way on but to decode.
            if begun and self._hands_on and self._steps is not None and self._steps.at_plain:
                break
            found = None if self._steps is None else self._steps.next()
            if found is None:
                return False
            self._keep(found)
            read += sum(map(len, found)) or BATCH_ROWS_MAX  # A step without rows may have been as dear as any.
            if read >= wanted:
                break  # Before the sum of bytes, which a point read is spared.
            size_bytes += sum(rows.nbytes for rows in found)
        return True

    def _keep(self, found: Sequence[RowBatch]) -> None:
        """Let rows wait that match."""
        for rows in found:
            kept = filter_rows(self._schema, self._predicates, rows)
            if kept.num_rows:
                self._waiting.append(kept)
                self._waiting_rows += kept.num_rows

    def _take(self, count: int) -> RowBatch:
        """Up to so many of the rows that wait, as far as they fit in a batch, put together."""
        taken: list[RowBatch] = []
        room_bytes = BATCH_BYTES_MAX
        while count and self._waiting:
            rows = self._waiting.popleft()
            fits = min(count, len(rows))
            if count > 1 or taken:  # A point read is spared the sum.
                size_bytes = rows.nbytes
                if size_bytes > room_bytes:
                    fits = min(fits, max(rows_within(rows, room_bytes), not taken))
                room_bytes -= size_bytes
            if fits < len(rows):
                self._waiting.appendleft(rows.slice(fits))
            if not fits:
                break
            taken.append(rows.slice(0, fits))
            count -= fits
            if room_bytes < 0:
                break
        found = sum(map(len, taken))
        self._waiting_rows -= found
        if self._left is not None:
            self._left -= found
        if len(taken) == 1:
            return taken[0]
        # The C library keeps what is freed for the next batch; Arrow's allocator gives it back, and that is dear.
        pool = pa.system_memory_pool()
        return RowBatch(taken[0].layout, pa.concat_batches([rows.arrow for rows in taken], memory_pool=pool))
