"""Record batches from rows of plain values, with errors that name the value at fault.

``RowBatch.from_equal_rows`` builds a batch fast, but its error names a column at most. ``build_batch`` searches the
rows for the value at fault, only after that has failed."""

from collections.abc import Sequence
from typing import Any

from stelae.rows.limits import range_text
from stelae.rows.scalars import has_nanoseconds
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch, to_array
from stelae.spi.schema import Column, Layout

_SHOWN_CHARACTERS = 60
"""Most characters of a value in a message."""


class Misfit(SchemaMismatch):
    """A value does not fit its column. ``row`` is its position in the rows that were passed in, from 0."""

    def __init__(self, row: int, column: Column, value: Any) -> None:
        self.row = row
        self.column = column.name
        self.detail = describe_misfit(column, value)
        super().__init__(f"row {row}, {self.detail}")


def build_batch(layout: Layout, rows: Sequence[Sequence[Any]]) -> RowBatch:
    """Build a batch from rows. Each row has one value for each column of the layout, in its order.

    Raises:
        Misfit: a value does not fit its column. The error names the first such value.
        SchemaMismatch: a row has another number of values.
    """
    try:
        return RowBatch.from_equal_rows(layout, rows)
    except SchemaMismatch:
        width = len(layout.columns)
        for place, row in enumerate(rows):
            if len(row) != width:
                raise SchemaMismatch(f"row {place} has {len(row)} values; expected {width}") from None
        for column, values in zip(layout.columns, zip(*rows, strict=True), strict=True):
            for place in misfits(column, values):
                raise Misfit(place, column, values[place]) from None
        raise


def misfits(column: Column, values: Sequence[Any]) -> list[int]:
    """Return the positions of the values that do not fit their column.

    The search halves the values, so few misfits need few steps."""
    try:
        to_array(column, values)
        return []
    except SchemaMismatch:
        if len(values) == 1:
            return [0]
    half = len(values) // 2
    second = misfits(column, values[half:])
    return misfits(column, values[:half]) + [half + place for place in second]


def describe_misfit(column: Column, value: Any, of: str = "") -> str:
    """Return a message of one line: the column, the type that it expects, the value that it got, and a hint.

    ``of`` is added after the value, for example the type of the array that it came from."""
    expected = column.type if not column.nullable else f"{column.type} or null"
    got = "null" if value is None else _shown(value)
    limits = "" if value is None or isinstance(value, bool | float | str | bytes) else range_text(column)
    range_hint = f"; {column.type} goes from {limits}" if limits else ""
    return f"column {column.name!r}: expected {expected}, got {got}{of}{_hint(column, value) or range_hint}"


def _shown(value: Any) -> str:
    """Return the type of a value and the value, shortened. The ``repr`` of many types begins with the type already."""
    name, text = type(value).__name__, repr(value)
    package, call, rest = text.partition(f"{name}(")
    shown = call + rest if call and (not package or package.endswith(".")) else f"{name} {text}"
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[: _SHOWN_CHARACTERS - 1]}…"


def _hint(column: Column, value: Any) -> str:
    """Return what the caller can do about a value, if that does not follow from its type."""
    if column.type in ("date", "timestamp") and has_nanoseconds(value):
        return "; it has nanoseconds, which no column can store: remove them first, in pandas with .floor('us')"
    if column.type.startswith("decimal") and isinstance(value, float):
        return "; a float is not exact: pass decimal.Decimal(str(value))"
    if isinstance(value, list | tuple):
        return "; a dict is one row: pass many rows as a list of dicts, or as a frame"
    if column.nullable and isinstance(value, float) and value != value:
        return "; pass None for a missing value"
    return ""
