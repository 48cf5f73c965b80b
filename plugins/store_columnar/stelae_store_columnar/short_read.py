"""Reads the visible rows of a short step, and chooses the newest version of each key in Python.

For a few rows of several sources, Arrow's cost for each call, each column and each source is more than the values are
worth. If all versions are whole rows, only their keys are made Python values. Arrow then joins the sources in one call
and takes the newest versions in another. Otherwise the values are made Python values as well. Of a key with many
versions only the newest ones are read, if a lookup or a scan has completed its row before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stelae.rows.key_order import Comparable
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae_store_columnar.begun_row import BegunRow, GivenColumns
from stelae_store_columnar.completed_rows import KEPT_FROM, CompletedRows
from stelae_store_columnar.decoded_cache import CacheShare
from stelae_store_columnar.plain_rows import Row
from stelae_store_columnar.sources import PlainSlice
from stelae_store_columnar.state import ColumnarState

_VERSIONS_OF_KEY = 2
"""Up to this number of versions for each key, on average, Arrow joins them. It copies replaced ones as well."""

_READ_ALL_SHARE = 4
"""If one neighbouring version in this number is wanted, all are read: Arrow makes values of neighbours faster."""


class ShortRead:
    """Reads short steps of one state, with some columns, as of one time; ``None``: the newest rows."""

    def __init__(self, state: ColumnarState, at: int | None, layout: Layout, cache: CacheShare) -> None:
        self._state = state
        self._at = at if at is not None and at < state.stamp else None
        self._until = state.stamp if self._at is None else self._at
        self._layout = layout
        self._places = state.adapter.places(layout)
        self._has_all_columns = layout.ids == state.schema.layout.ids
        self._completed = CompletedRows(cache, state)
        self._given = GivenColumns(state.sets, layout.ids)
        self._newest: dict[Comparable, Row | None] = {}  # ``None``: the newest version is a deletion.
        self._begun: dict[Comparable, BegunRow] = {}

    def rows(self, parts: Sequence[PlainSlice]) -> RowBatch:
        """Return the visible rows of slices, which are ordered from oldest to newest, in key order. Called once."""
        if not self._state.adapter.adds_defaults and all(self._is_joinable(part) for part in parts):
            found = self._joined(parts)
            if found is not None:
                return found
        for part in reversed(parts):
            self._look_below(part)
        for key, left in self._begun.items():  # No version below has a value for the columns that it lacks.
            self._newest[key] = left.row()
        newest = self._newest
        rows = [row for key in sorted(newest) if (row := newest[key]) is not None]
        # One call of Arrow for all columns costs a third of one call for each column.
        return RowBatch(self._layout, pa.RecordBatch.from_struct_array(pa.array(rows, self._layout.struct)))

    def _is_joinable(self, part: PlainSlice) -> bool:
        """Return whether all versions of a slice are visible rows with the columns of the layout."""
        return self._is_whole(part) and part.rows.versions.columns.keys() >= {*self._layout.ids}

    def _is_whole(self, part: PlainSlice) -> bool:
        """Return whether a slice has neither partial versions, nor deletions, nor such that are too late."""
        is_late = self._at is not None and part.stamp_max > self._at
        return part.rows.versions.deleted is None and part.rows.versions.partial is None and not is_late

    def _joined(self, parts: Sequence[PlainSlice]) -> RowBatch | None:
        """Return the newest rows of slices of whole rows; ``None``: too many of them are replaced by newer ones."""
        newest: dict[Comparable, int] = {}
        start = 0
        for part in parts:  # The versions of one key are in log order, so the last one is the newest.
            keys = part.keys.to_pylist()
            newest.update(zip(keys, range(start, start + len(keys)), strict=True))
            start += len(keys)
        if start > _VERSIONS_OF_KEY * len(newest):
            return None
        joined = pa.concat_batches([_rows_of(part, self._layout) for part in parts])
        return RowBatch(self._layout, joined.take(pa.array([newest[key] for key in sorted(newest)], pa.int64())))

    def _look_below(self, part: PlainSlice) -> None:
        """Add the rows of the keys that no newer source has, and complete those begun."""
        keys = part.keys.to_pylist()
        last = dict(zip(keys, range(len(keys)), strict=True))  # The versions of one key are in log order.
        if self._is_whole(part):
            self._take_whole(dict(zip(last, self._rows(part, [*last.values()]), strict=True)))
            return
        places = part.places if isinstance(part.places, range) else part.places.to_pylist()
        whole: dict[Comparable, int] = {}
        for key, position in last.items():
            if key not in self._newest:
                self._look_at(part, keys, places, position, whole)
        if whole:
            self._take_whole(dict(zip(whole, self._rows(part, [*whole.values()]), strict=True)))

    def _take_whole(self, rows: Mapping[Comparable, Row]) -> None:
        """Add rows of versions with all columns, and complete those begun, unless a newer source has the key."""
        for key in [key for key in self._begun if key in rows]:
            above = self._begun[key]
            above.fill(rows[key])
            self._newest[key] = self._end(key, above)
        self._newest.update({**rows, **self._newest})

    def _look_at(
        self, part: PlainSlice, keys: Sequence[Comparable], places: Sequence[int], last: int, whole: dict[Any, int]
    ) -> None:
        """Look at the versions of a key in a slice, newest first, until one of them decides its row.

        If that is a version with all columns, add its position to ``whole``."""
        stamps, deleted, partial = part.rows.marks
        columns = part.rows.columns(self._state.adapter)
        key, position, at = keys[last], last, self._at
        above = self._begun.get(key)
        while position >= 0 and keys[position] == key:
            place = places[position]
            position -= 1
            stamp = stamps.at(place)
            if at is not None and stamp > at:
                continue
            if deleted is not None and deleted.at(place):
                self._newest[key] = None if above is None else self._end(key, above)
                return
            number = 0 if partial is None else partial.at(place)
            if not number:
                whole[key] = position + 1
                return
            if above is None:
                above = self._begun[key] = BegunRow(self._places)
            elif (known := above.known(self._completed, key, self._until)) and stamp < known.stamp:
                # Versions with the timestamp of the completed row may be newer than it. They may be read again.
                above.fill_from_schema(known.row)
                self._newest[key] = self._end(key, above)
                return
            if above.take(columns, place, stamp, self._given.of(number)):
                self._newest[key] = self._end(key, above)
                return

    def _end(self, key: Comparable, begun: BegunRow) -> Row | None:
        """Return the row that was begun, which lacks nothing any more."""
        self._begun.pop(key, None)
        row = begun.row()
        if row is not None and begun.count >= KEPT_FROM and self._has_all_columns:
            self._completed.put(key, begun.stamp, row)
        return row

    def _rows(self, part: PlainSlice, positions: Sequence[int]) -> Sequence[Row]:
        """Return the rows at ascending positions of a slice."""
        adapter, count = self._state.adapter, len(part.places)
        if isinstance(part.places, range):
            if len(positions) == count:
                return part.rows.rows(part.places, adapter, self._layout)
            if len(positions) * _READ_ALL_SHARE >= count:
                found = part.rows.rows(part.places, adapter, self._layout)
                return [found[position] for position in positions]
            return part.rows.rows([part.places[position] for position in positions], adapter, self._layout)
        places = part.places.to_pylist()
        return part.rows.rows([places[position] for position in positions], adapter, self._layout)


def _rows_of(part: PlainSlice, layout: Layout) -> Any:
    rows, places = part.rows.batch(layout), part.places
    return rows.slice(places.start, len(places)) if isinstance(places, range) else rows.take(places)
