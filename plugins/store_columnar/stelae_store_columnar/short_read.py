"""Reads the visible rows of a short step row by row.

For a few rows of several sources, Arrow's cost for each call, each column and each source is more than the values are
worth. So the values of each source are made Python values, and the newest version of each key is chosen in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stelae.rows.key_order import Comparable
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout
from stelae_store_columnar.plain_rows import Row
from stelae_store_columnar.sources import PlainSlice
from stelae_store_columnar.state import ColumnarState


class ShortRead:
    """Reads short steps of one state, with some columns, as of one time; ``None``: the newest rows."""

    def __init__(self, state: ColumnarState, at: int | None, layout: Layout) -> None:
        self._state = state
        self._at = at if at is not None and at < state.stamp else None
        self._layout = layout
        self._given: dict[int, frozenset[int]] = {}

    def rows(self, parts: Sequence[PlainSlice]) -> RowBatch:
        """Return the visible rows of slices, which are ordered from oldest to newest, in key order."""
        newest: dict[Comparable, Row | None] = {}
        begun: dict[Comparable, _BegunRow] = {}
        for part in reversed(parts):
            self._look_below(newest, begun, part)
        for key, left in begun.items():  # The versions below were not there, so these columns never had a value.
            newest[key] = tuple(left.values)
        rows = [row for key in sorted(newest) if (row := newest[key]) is not None]
        # One call of Arrow for all columns costs a third of one call for each column.
        return RowBatch(self._layout, pa.RecordBatch.from_struct_array(pa.array(rows, self._layout.struct)))

    def _look_below(
        self, newest: dict[Comparable, Row | None], begun: dict[Comparable, _BegunRow], part: PlainSlice
    ) -> None:
        """Add the rows of the keys that no newer source has (``None``: a deletion), and complete those begun."""
        keys, plain = part.keys.to_pylist(), part.rows
        places = part.places if isinstance(part.places, range) else part.places.to_pylist()
        versions = plain.versions
        rows = plain.rows(places, self._state.adapter, self._layout)
        are_late = self._at is not None and part.stamp_max > self._at
        if versions.deleted is None and versions.partial is None and not are_late:
            _take_whole(newest, begun, dict(zip(keys, rows, strict=True)))
            return
        deleted = _marks(versions.deleted, places)
        partial = _marks(versions.partial, places)
        stamps = _marks(versions.stamps, places) if are_late else None
        for position in range(len(keys) - 1, -1, -1):  # The versions of one key are in log order.
            key = keys[position]
            if key in newest or (stamps is not None and stamps[position] > self._at):
                continue
            row, above = rows[position], begun.get(key)
            number = 0 if partial is None else partial[position]
            if deleted is not None and deleted[position]:
                newest[key] = None if above is None else tuple(begun.pop(key).values)
            elif number:
                if above is None:
                    above = begun[key] = _BegunRow(len(row))
                if above.take(row, self._given_by(number)):
                    newest[key] = tuple(begun.pop(key).values)
            elif above is not None:
                above.take(row, above.lacking)
                newest[key] = tuple(begun.pop(key).values)
            else:
                newest[key] = row

    def _given_by(self, number: int) -> frozenset[int]:
        """Return the positions of the columns of the layout that a set of columns has."""
        found = self._given.get(number)
        if found is None:
            ids = self._state.sets.ids(number)
            found = frozenset(place for place, column in enumerate(self._layout.ids) if column in ids)
            self._given[number] = found
        return found


def _take_whole(
    newest: dict[Comparable, Row | None], begun: dict[Comparable, _BegunRow], rows: Mapping[Comparable, Row]
) -> None:
    """Add the rows of a source whose versions all are visible, and complete those begun."""
    for key in [key for key in begun if key in rows]:
        row = begun.pop(key)
        row.take(rows[key], row.lacking)
        newest[key] = tuple(row.values)
    newest.update({**rows, **newest})


def _marks(array: Any, places: Sequence[int]) -> list[Any] | None:
    if array is None:
        return None
    if isinstance(places, range):
        return list(array.slice(places.start, len(places)).to_pylist())
    return [array[place].as_py() for place in places]


class _BegunRow:
    """A row of which only partial versions were found yet."""

    __slots__ = ("lacking", "values")

    def __init__(self, width: int) -> None:
        self.values: list[Any] = [None] * width
        self.lacking = frozenset(range(width))  #: Positions without a value.

    def take(self, row: Row, given: frozenset[int]) -> bool:
        """Take the values at some positions that are lacking from an older version. Return whether none lacks now."""
        for place in given & self.lacking:
            self.values[place] = row[place]
        self.lacking -= given
        return not self.lacking
