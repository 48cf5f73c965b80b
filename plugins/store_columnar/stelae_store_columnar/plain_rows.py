"""Reads rows of versions as plain values, column by column (``column_values``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from stelae.spi.schema import Layout
from stelae_store_columnar.column_values import ColumnValues, Defaulted, NoValues, column_values
from stelae_store_columnar.schema_adapter import PlainColumn, SchemaAdapter
from stelae_store_columnar.versions import RowVersions

Row: TypeAlias = tuple[Any, ...]
"""The plain values of a row."""


class VersionMarks(NamedTuple):
    """What versions are besides their values, as the fields of ``RowVersions``."""

    stamps: ColumnValues
    deleted: ColumnValues | None
    partial: ColumnValues | None


class PlainRows:
    """The rows of immutable versions. Several threads may use it."""

    __slots__ = ("_batch", "_columns", "_marks", "versions")

    def __init__(self, versions: RowVersions) -> None:
        self.versions = versions
        self._batch: tuple[Layout, Any] | None = None
        self._columns: tuple[SchemaAdapter, list[ColumnValues]] | None = None
        self._marks: VersionMarks | None = None

    @property
    def marks(self) -> VersionMarks:
        """What the versions are."""
        found = self._marks
        if found is None:
            arrays = self.versions.stamps, self.versions.deleted, self.versions.partial
            stamps, *others = [None if array is None else column_values(array) for array in arrays]
            assert stamps is not None
            found = self._marks = VersionMarks(stamps, *others)
        return found

    def columns(self, adapter: SchemaAdapter) -> list[ColumnValues]:
        """Return the values of the columns of a schema, in its order.

        A version that is older than a column has the default with which the column was added."""
        found = self._columns
        if found is None or found[0] is not adapter:
            columns = [_values_of(column, self.versions) for column in adapter.plain_columns]
            found = self._columns = (adapter, columns)  # Replaced as a whole, for other threads.
        return found[1]

    def batch(self, layout: Layout) -> Any:
        """Return the versions as an Arrow batch with the columns of a layout. The versions have all of these columns.

        Copies nothing. Defaults are not filled in."""
        found = self._batch
        if found is None or found[0] is not layout:
            arrays = [self.versions.columns[column_id] for column_id in layout.ids]
            found = self._batch = (layout, pa.RecordBatch.from_arrays(arrays, schema=layout.arrow))
        return found[1]

    def taken(self, places: Sequence[int], adapter: SchemaAdapter, layout: Layout) -> Any:
        """Return the rows at some places as an Arrow batch with the columns of a layout. None of them is partial."""
        indices = pa.array(places, pa.int64())
        if adapter.adds_defaults or not self.versions.columns.keys() >= {*layout.ids}:
            return adapter.batch(layout, self.versions.select(layout.ids).take(indices)).arrow
        return self.batch(layout).take(indices)

    def rows(self, places: Sequence[int], adapter: SchemaAdapter, layout: Layout) -> list[Row]:
        """Return the rows at some places with the columns of a layout. None of them need have all columns."""
        of_schema = self.columns(adapter)
        columns = [of_schema[place] for place in adapter.places(layout)]
        if len(places) == 1:
            (only,) = places
            return [tuple([column.at(only) for column in columns])]
        return [*zip(*[column.several(places) for column in columns], strict=True)] if columns else [()] * len(places)


def _values_of(column: PlainColumn, versions: RowVersions) -> ColumnValues:
    array = versions.columns.get(column.id)
    found = NoValues() if array is None else column_values(array)
    return Defaulted(found, versions.schemas, column.lacking, column.default) if column.lacking else found
