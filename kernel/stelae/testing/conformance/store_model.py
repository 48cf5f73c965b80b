"""A plain model of a tablet store. The checks compare every engine with it.

It keeps the rows after each entry in a dict of their own, so that a read in the past is a lookup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.keys import encode_key
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, RowCode

Row = tuple[Any, ...]


class Op(NamedTuple):
    """One operation: kind, rows of plain values, and the ids of their columns (``None``: all)."""

    kind: OpKind
    rows: Sequence[Row]
    columns: tuple[int, ...] | None = None


class StoreModel:
    """Applies operations by their definitions, one row at a time, under one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.history: list[tuple[int, dict[bytes, Row]]] = [(0, {})]

    def apply(self, timestamp: int, ops: Sequence[Op]) -> list[tuple[int, RowCode]]:
        """Apply one entry; return its faults as pairs of row number and code."""
        rows = dict(self.history[-1][1])
        faults = []
        number = 0
        for op in ops:
            for values in op.rows:
                fault = self._apply_row(rows, op, values)
                if fault is not None:
                    faults.append((number, fault))
                number += 1
        self.history.append((timestamp, rows))
        return faults

    def rows(self, at: int | None = None) -> list[Row]:
        """Return the rows as of a time, in key order."""
        now = self._at(at)
        return [now[key] for key in sorted(now)]

    def checksum(self, at: int | None = None) -> str:
        """Return the logical checksum as of a time."""
        total = LogicalChecksum()
        total.add(self.rows(at))
        return total.hex()

    def changed(self, after: int, until: int) -> tuple[list[Row], list[bytes]]:
        """Return the rows that differ between two times, and the keys that were deleted, in key order."""
        before, now = self._at(after), self._at(until)
        changed = [now[key] for key in sorted(now) if before.get(key) != now[key]]
        return changed, sorted(before.keys() - now.keys())

    def _at(self, at: int | None) -> dict[bytes, Row]:
        return [rows for timestamp, rows in self.history if at is None or timestamp <= at][-1]

    def _apply_row(self, rows: dict[bytes, Row], op: Op, values: Row) -> RowCode | None:
        ids = op.columns
        if ids is None:
            deleting = op.kind in (OpKind.DELETE, OpKind.DELETE_IGNORE)
            ids = self.schema.key if deleting else self.schema.layout.ids
        given = dict(zip(ids, values, strict=True))
        key = encode_key(self.schema, [given[column_id] for column_id in self.schema.key])
        old = rows.get(key)
        if op.kind in (OpKind.INSERT, OpKind.INSERT_IGNORE) and old is not None:
            return RowCode.ALREADY_PRESENT if op.kind is OpKind.INSERT else None
        if op.kind in (OpKind.UPDATE, OpKind.DELETE) and old is None:
            return RowCode.NOT_FOUND
        if op.kind in (OpKind.UPDATE_IGNORE, OpKind.DELETE_IGNORE) and old is None:
            return None
        if op.kind in (OpKind.DELETE, OpKind.DELETE_IGNORE):
            del rows[key]
            return None
        base = old or tuple(column.default for column in self.schema.columns)
        rows[key] = tuple(given.get(column.id, value) for column, value in zip(self.schema.columns, base, strict=True))
        return None
