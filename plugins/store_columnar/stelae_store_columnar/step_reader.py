"""Reads the visible rows of a range, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_columnar.levels import RowGroupSlice
from stelae_store_columnar.sources import SourceSlice
from stelae_store_columnar.step_plan import StepPlan
from stelae_store_columnar.view import ColumnarView

_AHEAD_ROWS = 1 << 16  #: Most rows of neighbouring row groups that are decoded in one call.
_AHEAD_BYTES = 2 * BATCH_BYTES_MAX  #: Most bytes of them, once decoded.

Prune: TypeAlias = Callable[[list[SourceSlice]], list[SourceSlice]]
"""Returns the slices of a step that must be read."""


class StepReader:
    """Reads the visible rows of the steps of a plan, with some columns.

    ``prune`` returns the slices of a step that must be read."""

    def __init__(self, view: ColumnarView, layout: Layout, plan: StepPlan, prune: Prune) -> None:
        self._view = view
        self._layout = layout
        self._plan = plan
        self._prune = prune

    @property
    def ended(self) -> bool:
        """True if all steps were read."""
        return self._plan.next is None

    @property
    def passed(self) -> bytes | None:
        """A resume token: bytes that are before all remaining rows in the order of the scan, and as close as possible.

        ``None``: no step was read yet, or all were."""
        if self._plan.taken is None or self.ended:
            return None
        low, high = self._plan.taken
        if self._plan.backwards:
            return None if low is None else self._view.order.encode(low)
        return None if high is None else self._view.order.before(high, low)

    @property
    def at_plain(self) -> bool:
        """True if the next step has only plain row groups."""
        return bool(self._plain())

    def take_plain(self, rows_max: int, bytes_max: int) -> list[RowGroupSlice]:
        """Move over the next steps as long as they have only plain row groups of one block. Returns these in key order.

        Together they have at most ``rows_max`` rows and ``bytes_max`` decoded bytes. Returns nothing if the first step
        has more, or is not plain."""
        found: list[RowGroupSlice] = []
        while row_groups := self._plain():
            rows_max -= sum(source_slice.row_group.index.rows for source_slice in row_groups)
            bytes_max -= sum(
                source_slice.row_group.block.decoded_bytes(source_slice.row_group.number, self._layout.ids)
                for source_slice in row_groups
            )
            if (
                rows_max < 0
                or bytes_max < 0
                or (found and row_groups[0].row_group.block is not found[0].row_group.block)
            ):
                break
            found = [*row_groups, *found] if self._plan.backwards else [*found, *row_groups]
            self._plan.take()
        return found

    def next(self) -> list[RowBatch] | None:
        """Return the rows of the next step, or of several plain steps; ``None`` at the end."""
        step = self._plan.next
        if step is None:
            return None
        together = self.take_plain(_AHEAD_ROWS, _AHEAD_BYTES)
        if together:
            found = list(self._view.plain_rows(together, self._layout))
        else:
            slices = self._prune(self._plan.slices(step))
            self._plan.take()
            found = self._rows(slices)
        return [_reversed(rows) for rows in reversed(found)] if self._plan.backwards else found

    def _rows(self, slices: Sequence[SourceSlice]) -> list[RowBatch]:
        """Return the visible rows of the step that was taken."""
        if not slices:
            return []
        plan = self._plan
        return self._view.rows(slices, self._layout, use_cache=plan.uses_cache, row_by_row=plan.is_short)

    def _plain(self) -> list[RowGroupSlice]:
        """Return the row groups of the next step if it has only plain row groups, else nothing."""
        step = self._plan.next
        if step is None or self._plan.uses_cache:
            return []
        return self._view.plain_row_groups(self._prune(self._view.slices(step)), self._layout)


def _reversed(rows: RowBatch) -> RowBatch:
    count = len(rows)
    return RowBatch(rows.layout, rows.arrow.take(pa.array(range(count - 1, -1, -1), pa.int64())))
