"""Batches from rows of plain values, for whoever has to say which value does not fit.

The quick way is ``RowBatch.from_equal_rows``, whose error names a column at most; here the rows are
searched for the value at fault, which costs nothing while all of them fit."""

from collections.abc import Sequence
from typing import Any

from stelae.rows.limits import range_said
from stelae.rows.scalars import has_nanoseconds
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch, to_array
from stelae.spi.schema import Column, Layout

_SHOWN_CHARACTERS = 60
"""How much of a value at fault is told."""


class Misfit(SchemaMismatch):
    """A value that does not fit its column. ``row`` counts from 0 within what was handed in."""

    def __init__(self, row: int, column: Column, value: Any) -> None:
        self.row = row
        self.column = column.name
        self.detail = describe_misfit(column, value)
        super().__init__(f"row {row}, {self.detail}")


def build_batch(layout: Layout, rows: Sequence[Sequence[Any]]) -> RowBatch:
    """Build a batch from rows, each with one value per column of the layout, in its order.

    ``Misfit`` names the first value that does not fit; ``SchemaMismatch``: another row width."""
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
    """Return the positions of the values that do not fit, found by halving: few bad, few steps."""
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
    """Say in one short line which column expected what and got which type of value, ``of`` an array of some type."""
    expected = column.type if not column.nullable else f"{column.type} or null"
    got = "null" if value is None else _shown(value)
    said = "" if value is None or isinstance(value, bool | float | str | bytes) else range_said(column)
    goes = f"; {column.type} goes from {said}" if said else ""
    return f"column {column.name!r}: expected {expected}, got {got}{of}{_hint(column, value) or goes}"


def _shown(value: Any) -> str:
    """The type of a value and the value, cut where it is long; ``repr`` of many types begins with their name."""
    name, text = type(value).__name__, repr(value)
    package, found, rest = text.partition(f"{name}(")
    said = found + rest if found and (not package or package.endswith(".")) else f"{name} {text}"
    return said if len(said) <= _SHOWN_CHARACTERS else f"{said[: _SHOWN_CHARACTERS - 1]}…"


def _hint(column: Column, value: Any) -> str:
    """What to do about a value, where that is not plain from its type."""
    if column.type in ("date", "timestamp") and has_nanoseconds(value):
        return "; it has nanoseconds, which no column does: cut them first, in pandas with .floor('us')"
    if column.type.startswith("decimal") and isinstance(value, float):
        return "; a float is not exact: give decimal.Decimal(str(value))"
    if isinstance(value, list | tuple):
        return "; a dict is one row: give many as a list of dicts, or as a frame"
    if column.nullable and isinstance(value, float) and value != value:
        return "; a missing value is None"
    return ""
