"""Views: an immutable state of the store at one time, which a reader goes through step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from operator import attrgetter

import pyarrow as pa

from stelae.rows.key_order import Comparable
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae.spi.store import BATCH_ROWS_MAX
from stelae_store_columnar.decoded_cache import CacheShare
from stelae_store_columnar.levels import RowGroupSlice
from stelae_store_columnar.short_read import ShortRead
from stelae_store_columnar.sources import (
    INLINE_BYTES_MAX,
    INLINE_VERSIONS_MAX,
    KeyInterval,
    MustBlock,
    SourceSlice,
    StepSize,
    VersionSource,
    steps,
)
from stelae_store_columnar.state import ColumnarState

LARGE_STEP_BYTES = 256 << 20
"""Above this, the versions of each source are reduced to the newest ones before all are put together. A step is so
large only if a key has many versions. All of them together may exceed what an array of Arrow can hold."""


class ColumnarView:
    """The rows of a state as of a hybrid timestamp; ``None``: the newest rows.

    Args:
        state: what is read.
        at: the timestamp.
        step_size: the size of full steps.
        cache: of the store, for rows of many partial versions.
    """

    def __init__(self, state: ColumnarState, at: int | None, step_size: StepSize, cache: CacheShare) -> None:
        self.state = state
        self.at = at
        self.order = step_size.order
        self._step_size = step_size
        self._cache = cache
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

    def short_step(
        self, interval: KeyInterval, count: int, *, backwards: bool, may_block: bool
    ) -> tuple[KeyInterval, KeyInterval | None]:
        """Divide a range into a step at its beginning, or at its end, and the rest; ``None``: the step is all of it.

        The step has up to about ``count`` keys of each source, and at most ``VERSIONS_OF_KEY`` times as many versions.
        Reads blocks for that, if it ``may_block``; else it raises ``MustBlock``."""
        low, high = interval
        size = StepSize(self.order, count, may_block=may_block)
        if backwards:
            begins = [source.begin_of_last(low, high, size) for source in self._sources]
            begin = max((key for key in begins if key is not None and (low is None or key > low)), default=None)
            return (interval, None) if begin is None else ((begin, high), (low, begin))
        ends = [source.end_of_first(low, high, size) for source in self._sources]
        end = min((key for key in ends if key is not None and (high is None or key < high)), default=None)
        return (interval, None) if end is None else ((low, end), (end, high))

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

    def held_slices(self, step: KeyInterval) -> list[SourceSlice]:
        """Return the slices of a short step for the event loop. ``MustBlock``: they cannot be read at once."""
        found = self.slices(step)
        counts = [len(source_slice.plain(may_block=False).places) for source_slice in found]
        size_bytes = sum(source_slice.row_bytes * count for source_slice, count in zip(found, counts, strict=True))
        if sum(counts) > INLINE_VERSIONS_MAX or size_bytes > INLINE_BYTES_MAX:
            raise MustBlock
        return found

    def rows(
        self, slices: Sequence[SourceSlice], layout: Layout, *, use_cache: bool, row_by_row: bool
    ) -> list[RowBatch]:
        """Return the visible rows of a step in key order.

        Plain slices that do not overlap are returned one after the other. In memory they are neither sorted nor
        copied. Others are resolved, ``row_by_row`` or by Arrow."""
        apart = self._disjoint(slices)
        if not apart and row_by_row:
            parts = [source_slice.plain() for source_slice in slices]
            # A key may have any number of versions, and all of them are in one step.
            if sum(len(part.places) for part in parts) <= BATCH_ROWS_MAX:
                return [ShortRead(self.state, self.at, layout, self._cache).rows(parts)]
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
            source_slice
            for source_slice in self._disjoint(slices)
            if isinstance(source_slice, RowGroupSlice) and source_slice.whole
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
