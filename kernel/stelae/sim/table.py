"""The rows of the simulated table: the cells that writes set, and the cells that reads return under a schema.

Columns 1 and 2, the key and the value, are in every version of the schema. Values are never repeated and identify the
write that they come from. All other columns are added and dropped while clients write (``schema_changer``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from stelae.rows.operation_encoding import Operation as Encoded
from stelae.rows.operation_encoding import operation as encode
from stelae.sim.history import ClientAction, ClientOperation, HistoryRow
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind, SequenceRange, digests_of

Cell: TypeAlias = int | str | None
RowCells: TypeAlias = tuple[Cell, ...]
"""The cells of a row as a read returns them: all columns of a schema except the key, in the order of the schema."""

KEY: Final = 1
VALUE: Final = 2

KINDS: Final = {
    ClientAction.INSERT: OpKind.INSERT,
    ClientAction.UPSERT: OpKind.UPSERT,
    ClientAction.UPDATE: OpKind.UPDATE,
    ClientAction.DELETE: OpKind.DELETE,
}

EMPTY_EVERY: Final = 4
"""On average, one cell of a nullable column in this number is null."""


def row_cells(operation: ClientOperation, row: HistoryRow) -> dict[int, Cell]:
    """Return the cells that a row of a write sets, by column id, without the key."""
    ids = operation.columns or operation.schema.layout.ids
    return {column_id: _cell(operation.schema.by_id[column_id], row) for column_id in ids if column_id != KEY}


def read_as(cells: Mapping[int, Cell], schema: Schema) -> RowCells:
    """Return the cells of a row as a read under a schema returns them. Missing cells read as the default."""
    return tuple(cells.get(column.id, column.default) for column in schema.columns if column.id != KEY)


def encode_write(operation: ClientOperation) -> Encoded:
    """Return a write as clients send it. An unfit row has a value of a wrong type."""
    rows = [_row(operation, row) for row in operation.rows]
    return encode(KINDS[operation.action], rows, operation.columns, operation.fence)


def payload_digest(operation: ClientOperation) -> int:
    """Return the payload hash of a write. A leader uses it to distinguish a retry from another payload."""
    encoded_write = encode_write(operation)
    return digests_of(
        SequenceRange(operation.sequence, encoded_write.kind, encoded_write.columns, [encoded_write.rows])
    )[0]


def _row(operation: ClientOperation, row: HistoryRow) -> tuple[Cell, ...]:
    if operation.action is ClientAction.DELETE:
        return (str(row.key),) if row.unfit else (row.key,)
    cells = {KEY: row.key, **row_cells(operation, row)}
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
