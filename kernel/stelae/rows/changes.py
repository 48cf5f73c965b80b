"""The changes between two times as one batch in key order: changed rows with their later values, and deleted keys.

A flag column says whether a row was deleted. A deleted row has only its key; its other columns are null. So every
column outside of the key is nullable here, whatever the schema says."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stelae.rows.key_order import key_order
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout, Schema
from stelae.spi.store import Changes

FLAG_ID = 0
"""Id of the flag column that says whether a row was deleted. The ids of a table's columns are above it."""

FLAG_NAME = "is_deleted"


def changes_layout(schema: Schema, ids: Sequence[int] | None) -> Layout:
    """Return the layout of changes.

    It has the key columns that ``ids`` lacks, the columns of ``ids`` in their order, and the flag column last. The name
    of the flag differs from all column names of the table. ``SchemaMismatch``: an id is unknown or given twice."""
    wanted = schema.layout.ids if ids is None else ids
    lacking = [column_id for column_id in schema.key if column_id not in wanted]
    columns = schema.project((*lacking, *wanted)).columns
    nullable = [c if c.id in schema.key else msgspec.structs.replace(c, nullable=True) for c in columns]
    name = FLAG_NAME
    while name in schema.by_name:
        name += "_"
    return Layout((*nullable, Column(id=FLAG_ID, name=name, type="bool")))


def changes_batch(schema: Schema, layout: Layout, changes: Changes) -> RowBatch:
    """Return changes as one batch in key order. Their rows have all columns of ``layout`` except the flag."""
    import pyarrow as pa
    import pyarrow.compute as pc

    changed, deleted = changes.changed, changes.deleted
    flags = pa.concat_arrays([pa.repeat(False, len(changed)), pa.repeat(True, len(deleted))])
    arrays = []
    for column in layout.columns[:-1]:
        keys = deleted.arrow.column(deleted.layout.ids.index(column.id)) if column.id in deleted.layout.ids else None
        empty = pa.nulls(len(deleted), column.data_type.arrow())
        values = changed.arrow.column(changed.layout.ids.index(column.id))
        arrays.append(pa.concat_arrays([values, empty if keys is None else keys]))
    batch = pa.RecordBatch.from_arrays([*arrays, flags], schema=layout.arrow)
    if len(changed) and len(deleted):
        order = key_order(schema)
        batch = batch.take(pc.array_sort_indices(pa.concat_arrays([order.array(changed), order.array(deleted)])))
    return RowBatch(layout, batch)
