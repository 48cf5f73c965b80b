"""Names of what lookups do inside of the columnar store, which the simulator does not count."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import pytest

from stelae_store_columnar.begun_row import BegunRow
from stelae_store_columnar.block import ColumnarBlock
from stelae_store_columnar.block_merging import BlockMerger
from stelae_store_columnar.completed_rows import CompletedRow, CompletedRows
from stelae_store_columnar.memory_chunks import MemoryChunk
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.point_lookup import PointLookup

ROWS_KEPT_FROM = {"stelae_store_columnar.point_lookup:KEPT_FROM": 1}
"""Few keys get as many partial versions in a run as the product wants before it keeps a row."""

ROWS_TAKEN_FROM = {"stelae_store_columnar.found_keys:TAKE_MIN": 1}
"""A table of a run has few rows, and the product has Arrow take at least eight of a source."""


def note_store_lookups(patch: pytest.MonkeyPatch, names: set[str]) -> None:
    """Add these names as they happen.

    - ``lookup.taken``: Arrow took rows of a source for a batch.
    - ``lookup.merged_block``: the filter of a block that a merge wrote let a key through, and the block decided it.
    - ``lookup.completed_row``: a row was completed by one that was kept.
    - ``lookup.completed_row_too_late``: the kept row was of a later time than the lookup."""
    _note_merged_blocks(patch, names)
    _note_completed_rows(patch, names)
    _note_taken_rows(patch, names)


def _note_taken_rows(patch: pytest.MonkeyPatch, names: set[str]) -> None:
    taken = PlainRows.taken

    def noted(self: Any, places: Any, adapter: Any, layout: Any) -> Any:
        names.add("lookup.taken")
        return taken(self, places, adapter, layout)

    patch.setattr(PlainRows, "taken", noted)


def _note_merged_blocks(patch: pytest.MonkeyPatch, names: set[str]) -> None:
    merged: WeakSet[ColumnarBlock] = WeakSet()
    write, look = BlockMerger._write, PointLookup._look_into_row_group

    def written(self: Any, state: Any, history: Any, sources: Any, *rest: Any) -> Any:
        found = write(self, state, history, sources, *rest)
        if not any(isinstance(source, MemoryChunk) for source in sources):
            merged.update(live.block for live in found)
        return found

    def looked(self: Any, row_group: Any, wanted: Any) -> Any:
        was_cached = row_group.block.cached_rows(row_group.number) is not None
        undecided = look(self, row_group, wanted)
        if not (self._inline or was_cached) and len(undecided) < len(wanted) and row_group.block in merged:
            names.add("lookup.merged_block")
        return undecided

    patch.setattr(BlockMerger, "_write", written)
    patch.setattr(PointLookup, "_look_into_row_group", looked)


def _note_completed_rows(patch: pytest.MonkeyPatch, names: set[str]) -> None:
    get, fill = CompletedRows.get, BegunRow.fill

    def got(self: Any, key: Any, until: int) -> CompletedRow | None:
        found = get(self, key, until)
        if found is None and get(self, key, self._stamp) is not None:
            names.add("lookup.completed_row_too_late")
        return found

    def filled(self: Any, row: Any) -> None:
        names.add("lookup.completed_row")
        fill(self, row)

    patch.setattr(CompletedRows, "get", got)
    patch.setattr(BegunRow, "fill", filled)
