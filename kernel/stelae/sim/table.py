"""The table of a simulated tablet: its first schema, what a row brings for each column, and what rows read like.

Columns 1 and 2, the key and the value, are in every version of the schema: values are never repeated, and name the
write that they come from. All other columns come and go while clients write (``altering``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from stelae.rows.operations import Operation as Encoded
from stelae.rows.operations import operation as encode
from stelae.sim.history import ClientAction, ClientOperation, HistoryRow
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind, SequenceRange, digests_of

Cell: TypeAlias = int | str | None
Cells: TypeAlias = tuple[Cell, ...]
"""What a row reads like: all columns of a schema but the key, in the order of the schema."""

KEY: Final = 1
VALUE: Final = 2

KINDS: Final = {
    ClientAction.INSERT: OpKind.INSERT,
    ClientAction.UPSERT: OpKind.UPSERT,
    ClientAction.UPDATE: OpKind.UPDATE,
    ClientAction.DELETE: OpKind.DELETE,
}

EMPTY_EVERY: Final = 4
"""One in so many cells of a nullable column is empty."""


def brought(operation: ClientOperation, row: HistoryRow) -> dict[int, Cell]:
    """Return what a row of a write brings, by column id, without the key."""
    ids = operation.columns or operation.schema.layout.ids
    return {column_id: _cell(operation.schema.by_id[column_id], row) for column_id in ids if column_id != KEY}


def read_as(cells: Mapping[int, Cell], schema: Schema) -> Cells:
    """Return what a row with these cells reads like under a schema: what it lacks reads as the default."""
    return tuple(cells.get(column.id, column.default) for column in schema.columns if column.id != KEY)


def encoded(operation: ClientOperation) -> Encoded:
    """Return a write as clients send it. An unfit row brings a value of a wrong type."""
    rows = [_row(operation, row) for row in operation.rows]
    return encode(KINDS[operation.action], rows, operation.columns)


def digest(operation: ClientOperation) -> int:
    """Return the hash by which a leader tells a retry of this write from another payload."""
    made = encoded(operation)
    return digests_of(SequenceRange(operation.sequence, made.kind, made.columns, [made.rows]))[0]


def _row(operation: ClientOperation, row: HistoryRow) -> tuple[Cell, ...]:
    if operation.action is ClientAction.DELETE:
        return (str(row.key),) if row.unfit else (row.key,)
    cells = {KEY: row.key, **brought(operation, row)}
    if row.unfit:
        cells[VALUE] = row.key
    return tuple(cells[column_id] for column_id in operation.columns or operation.schema.layout.ids)


def _cell(column: Column, row: HistoryRow) -> Cell:
    if column.id == VALUE:
        return row.value
    drawn = row.more + column.id
    if column.nullable and drawn % EMPTY_EVERY == 0:
        return None
    return drawn if column.type == "int64" else f"{drawn}."
