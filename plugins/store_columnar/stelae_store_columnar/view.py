"""Views: an immutable state of the store at one time, which a reader goes through step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import TypeAlias

import pyarrow as pa

from stelae.rows.key_order import Comparable
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_columnar.levels import RowGroupSlice
from stelae_store_columnar.sources import KeyInterval, SourceSlice, StepSize, VersionSource, steps
from stelae_store_columnar.state import ColumnarState

_AHEAD_ROWS = 1 << 16  #: Most rows of neighbouring row groups that are decoded in one call.
LARGE_STEP_BYTES = 256 << 20
"""Above this, the versions of each source are reduced to the newest ones before all are put together. A step has so
many bytes only if a key has many versions. All of them together may exceed what an array of Arrow can hold."""
_AHEAD_BYTES = 2 * BATCH_BYTES_MAX  #: Most bytes of them, once decoded.


class ColumnarView:
    """The rows of a state as of a hybrid timestamp; ``None``: the newest rows."""

    def __init__(self, state: ColumnarState, at: int | None, step_size: StepSize) -> None:
        self.state = state
        self.at = at
        self.order = step_size.order
        self._step_size = step_size
        self.schema = state.schema
        self._sources: tuple[VersionSource, ...] = (*state.levels.sources, *state.chunks)

    @property
    def rows_max(self) -> int:
        """Upper bound of the number of versions."""
        return sum(map(len, self.state.chunks)) + sum(live.rows for live in self.state.levels.blocks)

    @property
    def bytes_max(self) -> int:
        """Approximate bytes of their values."""
        blocks = sum(row_group.index.size_bytes for live in self.state.levels.blocks for row_group in live.row_groups)
        return blocks + sum(chunk.size_bytes for chunk in self.state.chunks)

    def steps(self, low: Comparable | None, high: Comparable | None) -> list[KeyInterval]:
        """Divide a range into steps, in key order."""
        if low is not None and high is not None and low >= high:
            return []
        return steps(self._sources, low, high, self._step_size)

    def split_keys(self, low: Comparable | None, high: Comparable | None, bytes_max: int) -> list[bytes]:
        """Return encoded keys that divide a range into parts of about ``bytes_max``."""
        if low is not None and high is not None and low >= high:
            return []
        parts = steps(self._sources, low, high, StepSize(self.order, inf, bytes_max))
        # A part follows each of these keys, so a key at or above it exists, and it can be encoded.
        return [self.order.encode(end) for _, end in parts[:-1]]

    def slices(self, step: KeyInterval) -> list[SourceSlice]:
        """Return the slices of all sources in a step, oldest first."""
        return [source_slice for source in self._sources for source_slice in source.slices(*step)]

    def rows(self, slices: Sequence[SourceSlice], layout: Layout, *, use_cache: bool = False) -> list[RowBatch]:
        """Return the visible rows of a step in key order.

        Plain slices that do not overlap are returned one after the other. In memory they are neither sorted nor
        copied."""
        apart = self._disjoint(slices)
        found = [source_slice.read(layout.ids, use_cache=use_cache) for source_slice in apart or slices]
        if not apart:
            resolver = self.state.resolver(layout.ids)
            if sum(source_slice.size_bytes for source_slice in slices) > LARGE_STEP_BYTES:
                found = [part if part.partial is not None else resolver.newest(part, self.at) for part in found]
            found = [resolver.visible(found, self.at)]
        return [self.state.adapter.batch(layout, versions) for versions in found]

    def _disjoint(self, slices: Sequence[SourceSlice]) -> list[SourceSlice]:
        """Return the slices by key if each is plain and none overlaps another one, else nothing."""
        if not all(source_slice.is_plain(self.at) for source_slice in slices):
            return []
        if len(slices) == 1:
            return [*slices]
        ordered = sorted(slices, key=attrgetter("bounds"))
        meets = any(one.bounds[1] >= other.bounds[0] for one, other in pairwise(ordered))
        return [] if meets else ordered

    def plain_row_groups(self, slices: Sequence[SourceSlice], layout: Layout) -> list[RowGroupSlice]:
        """Return the row groups of a step by key, if the step has only whole row groups of one block whose stored rows
        are exactly the visible rows; else nothing."""
        row_groups = [
            source_slice for source_slice in self._disjoint(slices) if isinstance(source_slice, RowGroupSlice)
        ]
        if not row_groups or len(row_groups) < len(slices):
            return []
        alone = len({id(source_slice.row_group.block) for source_slice in row_groups}) == 1
        fits = all(
            self.state.adapter.needs_no_defaults(layout, source_slice.row_group.index.schemas)
            for source_slice in row_groups
        )
        return row_groups if alone and fits else []

    def plain_rows(self, slices: Sequence[RowGroupSlice], layout: Layout) -> Iterator[RowBatch]:
        """Return the rows of plain row groups of one block, decoded in one call."""
        block = slices[0].row_group.block
        positions = [block.index.positions.get(column_id) for column_id in layout.ids]
        table = block.load(
            [source_slice.row_group.number for source_slice in slices],
            [position for position in positions if position is not None],
        )
        names = block.index.names
        arrays = [
            pa.nulls(len(table), column.data_type.arrow()) if position is None else table.column(names[position])
            for position, column in zip(positions, layout.columns, strict=True)
        ]
        for batch in pa.Table.from_arrays(arrays, schema=layout.arrow).to_batches():
            yield RowBatch(layout, batch)


Prune: TypeAlias = Callable[[list[SourceSlice]], list[SourceSlice]]
"""Returns the slices of a step that must be read."""


class StepReader:
    """Reads the visible rows of a range, step by step, forwards or backwards, with some columns.

    ``prune`` returns the slices of a step that must be read."""

    def __init__(
        self, view: ColumnarView, layout: Layout, todo: Sequence[KeyInterval], backwards: bool, prune: Prune
    ) -> None:
        self._view = view
        self._layout = layout
        self._todo = todo[::-1] if backwards else todo
        self._at = 0
        self._backwards = backwards
        self._prune = prune
        self._use_cache = len(todo) <= 2

    @property
    def ended(self) -> bool:
        """True if all steps were read."""
        return self._at >= len(self._todo)

    @property
    def passed(self) -> bytes | None:
        """A resume token: bytes that are before all remaining rows in the order of the scan, and as close as possible.

        ``None``: no step was read yet, or all were."""
        if not self._at or self.ended:
            return None
        low, high = self._todo[self._at - 1]
        if self._backwards:
            return None if low is None else self._view.order.encode(low)
        return None if high is None else self._view.order.before(high, low)

    @property
    def at_plain(self) -> bool:
        """True if the next step has only plain row groups."""
        return bool(self._plain_at(self._at))

    def take_plain(self, rows_max: int, bytes_max: int) -> list[RowGroupSlice]:
        """Move over the next steps as long as they have only plain row groups of one block. Returns these in key order.

        Together they have at most ``rows_max`` rows and ``bytes_max`` decoded bytes. Returns nothing if the first step
        has more, or is not plain."""
        found: list[RowGroupSlice] = []
        while row_groups := self._plain_at(self._at):
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
            found = [*row_groups, *found] if self._backwards else [*found, *row_groups]
            self._at += 1
        return found

    def next(self) -> list[RowBatch] | None:
        """Return the rows of the next step, or of several plain steps; ``None`` at the end."""
        if self.ended:
            return None
        together = self.take_plain(_AHEAD_ROWS, _AHEAD_BYTES)
        if together:
            found = list(self._view.plain_rows(together, self._layout))
        else:
            slices = self._prune(self._view.slices(self._todo[self._at]))
            self._at += 1
            found = self._view.rows(slices, self._layout, use_cache=self._use_cache) if slices else []
        return [_reversed(rows) for rows in reversed(found)] if self._backwards else found

    def _plain_at(self, position: int) -> list[RowGroupSlice]:
        """Return the row groups of a step if it has only plain row groups, else nothing."""
        if self._use_cache or position >= len(self._todo):
            return []
        return self._view.plain_row_groups(self._prune(self._view.slices(self._todo[position])), self._layout)


def _reversed(rows: RowBatch) -> RowBatch:
    count = rows.num_rows
    return RowBatch(rows.layout, rows.arrow.take(pa.array(range(count - 1, -1, -1), pa.int64())))
