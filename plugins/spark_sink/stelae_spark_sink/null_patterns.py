"""Divides rows by which of their columns are null, so that a write leaves these columns alone.

The rows of one operation have the same columns. So rows with nulls in different columns are written as different
batches, each without the columns that are null in all of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from stelae.client.row_input import WHOLE_ROW
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from stelae_spark_sink.repeated_keys import repeated_keys


class DividedRows(NamedTuple):
    """Rows as batches with different columns."""

    parts: list[Any]  #: ``pyarrow.Table`` objects.
    positions: Any = None  #: ``pyarrow.Array``: the position of each row before the division; ``None``: unchanged.

    def original(self, rows: Sequence[int]) -> Sequence[int]:
        """Return the positions before the division of rows that are counted through all parts."""
        return rows if self.positions is None else [self.positions[row].as_py() for row in rows]


def columns_left_alone(schema: Schema, kind: OpKind) -> Sequence[str]:
    """Return the columns whose nulls a write leaves out: those that a write of this kind does not need."""
    return [c.name for c in schema.columns if c.id not in schema.key and not (kind in WHOLE_ROW and c.required)]


def divided(rows: Any, schema: Schema, kind: OpKind) -> DividedRows:
    """Divide a ``pyarrow.Table`` into tables without nulls in the columns that the write can leave out.

    Rows with the same null columns are put together, but two rows with one key keep their order."""
    import pyarrow.compute as pc

    droppable = columns_left_alone(schema, kind)
    names = [name for name in rows.column_names if name in droppable and rows[name].null_count]
    if not names:
        return DividedRows([rows])
    patterns, positions = _patterns(rows, names), None
    if not _may_repeat_keys(rows, schema):
        positions = pc.sort_indices(patterns)  # It is stable.
        rows, patterns = rows.take(positions), patterns.take(positions)
    ends = pc.run_end_encode(patterns).run_ends.to_pylist()
    parts = []
    for start, end in pairwise([0, *ends]):
        null = [name for name in names if not rows[name][start].is_valid]
        parts.append(rows.slice(start, end - start).drop_columns(null))
    return DividedRows(parts, positions)


def _patterns(rows: Any, names: Sequence[str]) -> Any:
    """Return a number for each row. Rows have the same number if the same columns are null in them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    patterns = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    for name in names:
        is_null = pc.is_null(rows[name]).combine_chunks().cast(pa.int32())
        patterns = pc.add(pc.multiply(patterns, 2), is_null).dictionary_encode().indices
    return patterns


def _may_repeat_keys(rows: Any, schema: Schema) -> bool:
    key = schema.key_layout.columns
    if any(column.type in ("float", "double") for column in key):
        return True  # Zero and minus zero are one key, and Arrow tells them apart.
    return repeated_keys(rows, schema) > 0
