"""Rows as they were written. They are converted to Python only when a reader needs them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from stelae.rows.defaults import Defaults
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout

Row = tuple[Any, ...]

_CHARACTER_BYTES_MAX = 4


class WrittenRows:
    """Immutable rows with the layout under which they were written.

    Several threads may read them at the same time, because each cache is one attribute that is replaced as a whole.
    ``row_bytes`` is the average size of the values of a row."""

    __slots__ = ("_batch", "_converted", "_own", "row_bytes")

    def __init__(self, batch: RowBatch, row_bytes: int) -> None:
        self._batch: RowBatch | None = batch
        self._own: tuple[Layout, Sequence[Row]] | None = None
        self._converted: tuple[Layout, Sequence[Row]] | None = None
        self.row_bytes = row_bytes

    @classmethod
    def of_rows(cls, layout: Layout, rows: list[Row]) -> WrittenRows:
        """Make written rows from Python tuples. The list may grow, but its rows must not change."""
        written = cls.__new__(cls)
        written._batch, written._converted = None, None
        written._own = (layout, rows)
        written.row_bytes = layout.row_bytes_min
        return written

    def is_ready(self, layout: Layout, rows_max: int) -> bool:
        """Return true if ``rows`` has at most ``rows_max`` rows to convert, or has converted them for this layout."""
        own, converted = self._own, self._converted
        if own is not None and (own[0] is layout or (converted is not None and converted[0] is layout)):
            return True
        batch = self._batch
        return (len(own[1]) if own is not None else 0 if batch is None else len(batch)) <= rows_max

    def rows(self, layout: Layout, defaults: Defaults) -> Sequence[Row]:
        """Return all rows as tuples of plain values of a layout. Columns are matched by id.

        Rows that are older than a column have the default with which it was added."""
        own = self._own
        if own is None:
            batch = self._batch
            if batch is None:  # Another thread has converted the batch.
                return self.rows(layout, defaults)
            own = self._own = (batch.layout, batch.to_rows())
            self._batch = None
        if own[0] is layout or own[0] == layout:
            return own[1]
        converted = self._converted
        if converted is None or converted[0] is not layout:
            converted = self._converted = (layout, _convert(own[0], own[1], layout, defaults))
        return converted[1]


def plain_default(column: Column) -> Any:
    """Return a column's default as ``RowBatch.to_rows`` returns it; ``None`` if it has none."""
    if column.default is None:
        return None
    return RowBatch.from_equal_rows(Layout((column,)), [(column.default,)]).values(0)[0]


class RowSizer:
    """Computes the sizes of rows of a layout: at least their size as Arrow."""

    def __init__(self, layout: Layout) -> None:
        self._fixed_bytes = layout.row_bytes_min + len(layout.columns)
        columns = layout.columns
        self._texts = [position for position, column in enumerate(columns) if column.type in ("string", "binary")]

    def one(self, row: Row) -> int:
        """Return the size of a row in bytes."""
        return self._fixed_bytes + sum(_size_bytes(row[position]) for position in self._texts)

    def at_most(self, rows: Sequence[Row]) -> int:
        """Return an upper bound of the size of many rows. It is fast, and up to four times too high."""
        lengths = (sum(map(len, filter(None, map(itemgetter(position), rows)))) for position in self._texts)
        return len(rows) * self._fixed_bytes + _CHARACTER_BYTES_MAX * sum(lengths)


def _size_bytes(value: Any) -> int:
    """Return the size of a value of text or bytes. For text that is not ASCII, it is an upper bound."""
    if value is None:
        return 0
    return len(value) if isinstance(value, bytes) or value.isascii() else _CHARACTER_BYTES_MAX * len(value)


def _convert(own: Layout, rows: Sequence[Row], layout: Layout, defaults: Defaults) -> list[Row]:
    positions = {column_id: position for position, column_id in enumerate(own.ids)}
    sources = [
        (positions.get(i), None if i in positions else plain_default(defaults.when_added(i))) for i in layout.ids
    ]
    return [tuple(d if p is None else row[p] for p, d in sources) for row in rows]
