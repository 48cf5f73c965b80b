"""Column defaults: the value of a row in a column that it was written without.

Two rules hold in every store, so that all replicas hold equal rows, however they flush, merge or are copied:

1. A row that is older than a column has the default with which the column was *added*. This never changes. A later
   default changes no existing row.
2. A new row that leaves a column out gets the default of the schema version *for which it was written*. The leader
   checked the row against that version. The entry may be applied after another schema change."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stelae.spi.schema import Column, Layout, Schema


class Defaults:
    """The defaults of a tablet's columns. One thread adds schemas; any thread may read at the same time."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self._added: dict[int, Column] = {}
        for version in sorted(schemas):
            self.add(schemas[version])

    def add(self, schema: Schema) -> None:
        """Add a schema version. A version that is known already changes nothing."""
        for column in schema.columns:
            self._added.setdefault(column.id, column)

    def when_added(self, column_id: int) -> Column:
        """Return a column as it is in the first schema version that has it (rule 1)."""
        return self._added[column_id]

    def layout(self, current: Schema, written: Schema) -> Layout:
        """Return the columns of ``current`` with the defaults for new rows that were written for ``written`` (rule 2).

        Columns that are newer than ``written`` have the default with which they were added."""
        if written is current or written.version == current.version:
            return current.layout
        return Layout(tuple(self._with_default(column, written) for column in current.columns))

    def _with_default(self, column: Column, written: Schema) -> Column:
        source = written.by_id.get(column.id) or self._added[column.id]
        return column if source.default == column.default else msgspec.structs.replace(column, default=source.default)
