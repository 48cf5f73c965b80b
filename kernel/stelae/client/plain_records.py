"""Converts the plain values of rows into records: dicts by the names of columns, with the values of ``to_pylist``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from stelae.spi.schema import Schema

Record = dict[str, Any]

_DAY_0 = date(1970, 1, 1).toordinal()
_TIME_0 = datetime(1970, 1, 1)

_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "date": lambda days: date.fromordinal(_DAY_0 + days),
    "timestamp": lambda microseconds: _TIME_0 + timedelta(microseconds=microseconds),
    "decimal": Decimal,
}


class LacksColumns(Exception):
    """Rows lack a column of the schema: it was dropped."""


class PlainRecords:
    """Makes the records of one schema.

    Args:
        schema: its columns, with their names, are those of the records.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._ids = schema.layout.ids
        self._names = [column.name for column in schema.columns]
        kinds = enumerate(column.data_type.name for column in schema.columns)
        self._conversions = [(place, _CONVERSIONS[kind]) for place, kind in kinds if kind in _CONVERSIONS]
        self._places: dict[tuple[int, ...], list[int] | None] = {}

    def of(self, ids: Sequence[int], rows: Sequence[Any]) -> list[Record | None]:
        """Return the record of each row.

        Args:
            ids: ids of the columns of the rows, in their order.
            rows: lists of plain values, which may be changed; ``None``: there is no row. Decimals are text.

        Raises:
            LacksColumns: a column of the schema is not among ``ids``.
        """
        places = None if ids is self._ids else self._places_of(tuple(ids))
        if places is not None:
            rows = [None if row is None else [row[place] for place in places] for row in rows]
        names, conversions = self._names, self._conversions
        if not conversions:
            return [None if row is None else dict(zip(names, row, strict=True)) for row in rows]
        for row in rows:
            if row is not None:
                for place, convert in conversions:
                    if row[place] is not None:
                        row[place] = convert(row[place])
        return [None if row is None else dict(zip(names, row, strict=True)) for row in rows]

    def _places_of(self, ids: tuple[int, ...]) -> list[int] | None:
        """Return the place of each column among ``ids``; ``None``: they are the columns of the schema."""
        if ids not in self._places:
            own = self.schema.layout.ids
            if not {*own} <= {*ids}:
                raise LacksColumns
            self._places[ids] = None if ids == own else [ids.index(column_id) for column_id in own]
        return self._places[ids]
