"""A plain model of a store whose schema changes. The check of altered tables compares engines with it.

A row is a dict of values by column id, for the columns that it was written with. The model keeps every state of the
past. It shares only key encoding and checksum with the engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.keys import encode_key
from stelae.spi.scan import Compare, IsNull, Predicate
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, RowCode
from stelae.testing.conformance.store_model import Op, Row

_Values: TypeAlias = dict[int, Any]
"""A row's values by column id."""

INSERTS = (OpKind.INSERT, OpKind.INSERT_IGNORE)
UPDATES = (OpKind.UPDATE, OpKind.UPDATE_IGNORE)
DELETES = (OpKind.DELETE, OpKind.DELETE_IGNORE)


class AlteringModel:
    """The rows of one tablet at every time, under the schema in force."""

    def __init__(self, schema: Schema) -> None:
        self.schemas = {schema.version: schema}
        self.schema = schema
        self.history: list[tuple[int, dict[bytes, _Values]]] = [(0, {})]

    def change(self, timestamp: int, schema: Schema) -> None:
        """Put the next schema in force. No row changes."""
        self.schemas[schema.version] = self.schema = schema
        self.history.append((timestamp, self.history[-1][1]))

    def apply(self, timestamp: int, written: Schema, ops: Sequence[Op]) -> list[tuple[int, RowCode]]:
        """Apply one entry whose rows were made for ``written``; return its faults as pairs of row number and code."""
        rows = dict(self.history[-1][1])
        faults = []
        number = 0
        for op in ops:
            for values in op.rows:
                fault = self._apply_row(rows, op, written, values)
                if fault is not None:
                    faults.append((number, fault))
                number += 1
        self.history.append((timestamp, rows))
        return faults

    def rows(
        self,
        at: int | None = None,
        columns: Sequence[int] | None = None,
        predicates: Sequence[Predicate] = (),
        schema: Schema | None = None,
    ) -> list[Row]:
        """Return rows as of a time in key order, under a schema (``None``: the one in force)."""
        schema = schema or self.schema
        now = self.at(at)
        whole = [self._under(schema, now[key]) for key in sorted(now)]
        ids = schema.layout.ids if columns is None else columns
        return [tuple(row[i] for i in ids) for row in whole if all(matches(row, one) for one in predicates)]

    def checksum(self, at: int | None = None) -> str:
        """Return the logical checksum as of a time."""
        total = LogicalChecksum()
        total.add(self.rows(at))
        return total.hex()

    def by_key(self, at: int | None) -> dict[bytes, Row]:
        """Return rows by encoded key."""
        now = self.at(at)
        return {key: tuple(self._under(self.schema, row).values()) for key, row in now.items()}

    def at(self, at: int | None) -> dict[bytes, _Values]:
        """Return the rows as they were written, as of a time."""
        return [rows for timestamp, rows in self.history if at is None or timestamp <= at][-1]

    def added_default(self, column_id: int) -> Any:
        """Return the default with which a column was added."""
        found = [self.schemas[version].by_id.get(column_id) for version in sorted(self.schemas)]
        return next(column.default for column in found if column is not None)

    def _under(self, schema: Schema, row: _Values) -> _Values:
        return {i: row[i] if i in row else self.added_default(i) for i in schema.layout.ids}

    def _apply_row(self, rows: dict[bytes, _Values], op: Op, written: Schema, values: Row) -> RowCode | None:
        ids = op.columns
        if ids is None:
            ids = written.key if op.kind in DELETES else written.layout.ids
        given = dict(zip(ids, values, strict=True))
        key = encode_key(written, [given[column_id] for column_id in written.key])
        old = rows.get(key)
        if op.kind in INSERTS and old is not None:
            return RowCode.ALREADY_PRESENT if op.kind is OpKind.INSERT else None
        if op.kind in (*UPDATES, *DELETES) and old is None:
            return RowCode.NOT_FOUND if op.kind in (OpKind.UPDATE, OpKind.DELETE) else None
        if op.kind in DELETES:
            del rows[key]
            return None
        base = self._new(written) if old is None else self._under(self.schema, old)
        rows[key] = {i: given.get(i, base[i]) for i in self.schema.layout.ids}
        return None

    def _new(self, written: Schema) -> _Values:
        """Return the values of a new row in the columns that are left out."""
        return {
            i: written.by_id[i].default if i in written.by_id else self.added_default(i) for i in self.schema.layout.ids
        }


def matches(row: _Values, predicate: Predicate) -> bool:
    """Say whether a row matches a predicate. A null matches no comparison."""
    value = row[predicate.column]
    if isinstance(predicate, IsNull):
        return (value is None) != predicate.negated
    assert isinstance(predicate, Compare)
    if value is None:
        return False
    other = predicate.value
    outcomes = {"=": value == other, "!=": value != other, "<": value < other, ">=": value >= other}
    return bool(outcomes[predicate.op])
