"""Changes between two times as one batch in key order: rows as they are now, and the keys of rows that went.

A column that no table has says which is which. Of a row that went all but the key is null, so every other column may be
empty here, whatever the schema says."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stelae.rows.key_order import key_order
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout, Schema
from stelae.spi.store import Changes

FLAG_ID = 0
"""Of the column that says whether a row went; those of tables are above it."""

FLAG_NAME = "is_deleted"


def changes_layout(schema: Schema, ids: Sequence[int] | None) -> Layout:
    """Return the layout of changes: the columns by id, before them those of the key that are not among them, and the
    flag last, under a name that the table has not. ``SchemaMismatch``: unknown or twice."""
    wanted = schema.layout.ids if ids is None else ids
    lacking = [column_id for column_id in schema.key if column_id not in wanted]
    columns = schema.project((*lacking, *wanted)).columns
    mine = [c if c.id in schema.key else msgspec.structs.replace(c, nullable=True) for c in columns]
    name = FLAG_NAME
    while name in schema.by_name:
        name += "_"
    return Layout((*mine, Column(id=FLAG_ID, name=name, type="bool")))


def changes_batch(schema: Schema, layout: Layout, changes: Changes) -> RowBatch:
    """Return changes, whose rows have all columns of ``layout`` but the flag, as one batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    now, gone = changes.changed, changes.deleted
    flags = pa.concat_arrays([pa.repeat(False, len(now)), pa.repeat(True, len(gone))])
    arrays = []
    for column in layout.columns[:-1]:
        held = gone.arrow.column(gone.layout.ids.index(column.id)) if column.id in gone.layout.ids else None
        empty = pa.nulls(len(gone), column.data_type.arrow())
        here = now.arrow.column(now.layout.ids.index(column.id))
        arrays.append(pa.concat_arrays([here, empty if held is None else held]))
    batch = pa.RecordBatch.from_arrays([*arrays, flags], schema=layout.arrow)
    if len(now) and len(gone):
        order = key_order(schema)
        batch = batch.take(pc.array_sort_indices(pa.concat_arrays([order.array(now), order.array(gone)])))
    return RowBatch(layout, batch)
