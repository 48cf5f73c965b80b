"""Parts: rows as they were written, turned into Python only when somebody reads them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from stelae.rows.defaults import Defaults
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout

Row = tuple[Any, ...]

_CHARACTER_BYTES_MAX = 4


class Part:
    """Immutable rows under the layout that held when they were written.

    Several threads may read one part: each cache is one attribute, replaced whole.
    ``row_bytes`` is what its values take, per row."""

    __slots__ = ("_batch", "_fitted", "_own", "row_bytes")

    def __init__(self, batch: RowBatch, row_bytes: int) -> None:
        self._batch: RowBatch | None = batch
        self._own: tuple[Layout, Sequence[Row]] | None = None
        self._fitted: tuple[Layout, Sequence[Row]] | None = None
        self.row_bytes = row_bytes

    @classmethod
    def of_rows(cls, layout: Layout, rows: list[Row]) -> Part:
        """Make a part of rows that are Python already; the list may grow, but not change."""
        part = cls.__new__(cls)
        part._batch, part._fitted = None, None
        part._own = (layout, rows)
        part.row_bytes = layout.row_bytes_min
        return part

    def rows(self, layout: Layout, defaults: Defaults) -> Sequence[Row]:
        """Return all rows as tuples of plain values of a layout, columns matched by id.

        Rows that are older than a column have the default with which it was added."""
        own = self._own
        if own is None:
            batch = self._batch
            if batch is None:  # another thread was faster
                return self.rows(layout, defaults)
            own = self._own = (batch.layout, batch.to_rows())
            self._batch = None
        if own[0] is layout or own[0] == layout:
            return own[1]
        fitted = self._fitted
        if fitted is None or fitted[0] is not layout:
            fitted = self._fitted = (layout, _fit(own[0], own[1], layout, defaults))
        return fitted[1]


def plain_default(column: Column) -> Any:
    """Return a column's default as ``to_rows`` would give it; ``None`` if it has none."""
    if column.default is None:
        return None
    return RowBatch.from_equal_rows(Layout((column,)), [(column.default,)]).values(0)[0]


class Weigher:
    """Weighs rows of a layout: no less than they take as Arrow."""

    def __init__(self, layout: Layout) -> None:
        self._fixed_bytes = layout.row_bytes_min + len(layout.columns)
        columns = layout.columns
        self._texts = [place for place, column in enumerate(columns) if column.type in ("string", "binary")]

    def one(self, row: Row) -> int:
        """Return the bytes of a row."""
        return self._fixed_bytes + sum(_size_bytes(row[place]) for place in self._texts)

    def at_most(self, rows: Sequence[Row]) -> int:
        """Return what many rows have at most: quick, and up to four times what they have."""
        lengths = (sum(map(len, filter(None, map(itemgetter(place), rows)))) for place in self._texts)
        return len(rows) * self._fixed_bytes + _CHARACTER_BYTES_MAX * sum(lengths)


def _size_bytes(value: Any) -> int:
    """Of text that is not ASCII, whose length in UTF-8 only an encoder could tell, the most that it may be."""
    if value is None:
        return 0
    return len(value) if isinstance(value, bytes) or value.isascii() else _CHARACTER_BYTES_MAX * len(value)


def _fit(own: Layout, rows: Sequence[Row], layout: Layout, defaults: Defaults) -> list[Row]:
    places = {column_id: place for place, column_id in enumerate(own.ids)}
    sources = [(places.get(i), None if i in places else plain_default(defaults.when_added(i))) for i in layout.ids]
    return [tuple(d if p is None else row[p] for p, d in sources) for row in rows]
