"""Rows of older schema versions as rows of the schema in force.

A value of a column that a row's own schema version did not have is null in memory and on disk, also after merges. A
read replaces it with the default with which the column was added (``stelae.rows.defaults``). So no replica depends on
when it stores a default. Columns are identified by id, never by name or position."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.defaults import Defaults
from stelae.spi.rows import RowBatch, to_array
from stelae.spi.schema import Column, Layout, Schema
from stelae_store_columnar.versions import RowVersions


class PlainColumn(NamedTuple):
    """A column, for readers of single values."""

    id: int
    lacking: frozenset[int]  #: The schema versions without the column, if it has a default.
    default: Any  #: The plain value of the default with which the column was added.


class SchemaAdapter:
    """Makes batches of one schema from versions of that schema and earlier ones."""

    def __init__(self, schema: Schema, schemas: Mapping[int, Schema]) -> None:
        self._schema = schema
        self._schemas = dict(schemas)
        self._defaults = Defaults(schemas)
        self._lacking: dict[int, frozenset[int]] = {}
        for column in schema.columns:
            lacking = frozenset(version for version, one in schemas.items() if column.id not in one.by_id)
            if lacking and self._defaults.when_added(column.id).default is not None:
                self._lacking[column.id] = lacking

    @cached_property
    def all_types(self) -> Mapping[int, Any]:
        """The Arrow types of all columns."""
        return self.types(self._schema.by_id)

    @cached_property
    def plain_columns(self) -> tuple[PlainColumn, ...]:
        """The columns in the order of the schema."""
        return tuple([self._plain_column(column) for column in self._schema.columns])

    @property
    def adds_defaults(self) -> bool:
        """Whether rows of earlier schemas have defaults in columns that they lack."""
        return bool(self._lacking)

    def places(self, layout: Layout) -> Sequence[int]:
        """Return the positions of a layout's columns in the schema."""
        place_of = self._place_of
        return [place_of[column_id] for column_id in layout.ids]

    @cached_property
    def _place_of(self) -> dict[int, int]:
        return {column.id: place for place, column in enumerate(self._schema.columns)}

    def _plain_column(self, column: Column) -> PlainColumn:
        lacking = self._lacking.get(column.id, frozenset())
        default = default_of(self._defaults.when_added(column.id)) if lacking else None
        is_number = column.type in ("date", "timestamp")  # A plain value is the number in the Arrow value.
        plain = None if default is None else default.value if is_number else default.as_py()
        return PlainColumn(column.id, lacking, plain)

    def for_schema(self, schema: Schema) -> SchemaAdapter:
        """Return the adapter for another one of the known schemas."""
        return SchemaAdapter(schema, self._schemas)

    def types(self, ids: Iterable[int]) -> dict[int, Any]:
        """Return the Arrow types of some columns."""
        return {column_id: self._schema.by_id[column_id].data_type.arrow() for column_id in ids}

    def needs_no_defaults(self, layout: Layout, versions: Collection[int]) -> bool:
        """Return true if rows of some schema versions need no defaults in the columns of a layout."""
        if not self._lacking:
            return True
        return all(self._lacking.get(i, frozenset()).isdisjoint(versions) for i in layout.ids)

    def inherited(self, column_id: int, own: Any, before: Any, values: Any) -> Any:
        """Return the values of a column that partial versions inherit from the versions before them.

        ``own`` and ``before`` are the schema versions of both. If the version before is older than the column, its
        value is the column's default. The result then has the default instead of null: a reader would take a null for a
        written one, because ``own`` has the column."""
        lacking = self._lacking.get(column_id)
        if lacking is None or not len(values):
            return values
        versions = pa.array(sorted(lacking), pa.int32())
        late = pc.and_not(pc.is_in(before, value_set=versions), pc.is_in(own, value_set=versions))
        if not late.true_count:
            return values
        return pc.if_else(late, default_of(self._defaults.when_added(column_id)), values)

    def batch(self, layout: Layout, versions: RowVersions) -> RowBatch:
        """Return versions as rows of a layout. None of them is a deletion."""
        arrays = [self._column(column, versions) for column in layout.columns]
        return RowBatch.from_arrays(layout, arrays)

    def _column(self, column: Column, versions: RowVersions) -> Any:
        array = versions.columns.get(column.id)
        if array is None:
            array = pa.nulls(len(versions), column.data_type.arrow())
        lacking = self._lacking.get(column.id)
        if lacking is None or not len(versions):
            return array
        old = pc.is_in(versions.schemas, value_set=pa.array(sorted(lacking), pa.int32()))
        if not old.true_count:
            return array
        return pc.if_else(old, default_of(self._defaults.when_added(column.id)), array)


def default_of(column: Column) -> Any:
    """Return a column's default as an Arrow scalar; null if it has none."""
    if column.default is None:
        return pa.scalar(None, column.data_type.arrow())
    return to_array(column, [column.default])[0]
