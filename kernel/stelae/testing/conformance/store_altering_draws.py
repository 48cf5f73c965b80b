"""Random schemas, schema changes, operations and predicates for the check of altered tables.

All come from one seeded random source, so that a seed reproduces the run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from stelae.rows.schema_change import check_change
from stelae.spi.errors import SchemaMismatch
from stelae.spi.scan import Compare, IsNull, Predicate
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_altering_model import DELETES, UPDATES
from stelae.testing.conformance.store_model import Op, Row

TYPES = ("int32", "string", "double", "bool")
NAMES = ("a", "b", "c", "d", "e")
KEYS = 14
Operator: TypeAlias = Literal["=", "!=", "<", ">="]
_T = TypeVar("_T")


class Draws:
    """Draws from one seed.

    Attributes:
        next_id: the next column id of the table; no id is used twice.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.next_id = 1

    def below(self, count: int) -> int:
        """Draw a number from 0 to below ``count``."""
        return int(self._rng.random() * count)

    def pick(self, values: Sequence[_T]) -> _T:
        """Draw one of some values."""
        return values[self.below(len(values))]

    def some(self, values: Sequence[_T]) -> list[_T]:
        """Draw a subset of some values, in random order."""
        return self._shuffled([value for value in values if self.below(2)])

    def schema(self) -> Schema:
        """Draw the first schema: one or two key columns and up to three others."""
        key_types = self.pick((("int64",), ("string",), ("int32", "string")))
        keys = [Column(id=self._id(), name=f"k{n}", type=kind) for n, kind in enumerate(key_types)]
        others = [self._column(name) for name in NAMES[: self.below(4)]]
        return Schema(1, (*keys, *others), tuple(column.id for column in keys))

    def replaced(self, before: Schema) -> Schema:
        """Draw the next version: one column is dropped and another added under its name, if there is one to drop."""
        others = [column for column in before.columns if column.id not in before.key]
        if not others:
            return self.changed(before)
        gone = self.pick(others)
        columns = [column for column in before.columns if column is not gone]
        return Schema(before.version + 1, (*columns, self._column(gone.name)), before.key)

    def changed(self, before: Schema) -> Schema:
        """Draw the next version: the result of one or several steps, and always a valid change."""
        while True:
            columns = [*before.columns]
            for _ in range(1 + self.below(4)):
                self._step(columns, before.key)
            try:
                after = Schema(before.version + 1, tuple(columns), before.key)
                check_change(before, after)
            except SchemaMismatch:
                continue
            return after

    def operations(self, schema: Schema) -> list[Op]:
        """Draw the operations of one entry, for rows of a schema."""
        return [self._operation(schema) for _ in range(1 + self.below(3))]

    def whole_rows(self, schema: Schema) -> list[Op]:
        """Draw one upsert of whole rows."""
        columns = schema.columns
        return [Op(OpKind.UPSERT, [tuple(self.value(schema, c) for c in columns) for _ in range(1 + self.below(6))])]

    def update(self, schema: Schema, row: Row, *, of_first: bool = False) -> Op:
        """Draw an update of one column of a row, or of none if it has only its key.

        With ``of_first``, it is the first column that is not of the key."""
        others = [column for column in schema.columns if column.id not in schema.key]
        chosen = others[:1] if of_first else [self.pick(others)] if others else []
        key = [row[schema.layout.ids.index(column_id)] for column_id in schema.key]
        values = (*key, *(self.value(schema, column) for column in chosen))
        return Op(OpKind.UPDATE, [values], (*schema.key, *(column.id for column in chosen)))

    def predicate(self, schema: Schema) -> Predicate:
        """Draw a predicate."""
        column = self.pick(schema.columns)
        value = self.value(schema, column)
        if value is None or self.below(3) == 0:
            return IsNull(column.id, negated=bool(self.below(2)))
        operators: tuple[Operator, ...] = ("=", "!=") if column.type == "bool" else ("=", "!=", "<", ">=")
        return Compare(column.id, self.pick(operators), value)

    def value(self, schema: Schema, column: Column) -> Any:
        """Draw a value for a column."""
        if column.id in schema.key:
            number = self.below(KEYS if len(schema.key) == 1 else 4)
            return f"k{number}" if column.type == "string" else number
        return None if column.nullable and self.below(4) == 0 else self._plain(column.type)

    def _operation(self, schema: Schema) -> Op:
        kind = OpKind(self.below(len(OpKind)))
        ids: tuple[int, ...] | None = None
        if kind not in DELETES and self.below(2):
            free = [c.id for c in schema.columns if c.id not in schema.key and (kind in UPDATES or not c.required)]
            bound = [c.id for c in schema.columns if c.id in schema.key or c.id not in free]
            ids = tuple(self._shuffled([*bound, *self.some(free)]))
        wanted = schema.key if kind in DELETES else ids or schema.layout.ids
        rows = [tuple(self.value(schema, schema.by_id[i]) for i in wanted) for _ in range(1 + self.below(6))]
        return Op(kind, rows, ids)

    def _step(self, columns: list[Column], key: Sequence[int]) -> None:
        others = [place for place, column in enumerate(columns) if column.id not in key]
        names = {column.name for column in columns}
        free = [name for name in NAMES if name not in names]
        match self.below(8):
            case 0 | 1 | 2 if free:
                columns.append(self._column(self.pick(free)))
            case 3 | 4 if others:
                del columns[self.pick(others)]
            case 5 if others and free:
                place = self.pick(others)
                columns[place] = msgspec.structs.replace(columns[place], name=self.pick(free))
            case 6 if others:
                place = self.pick(others)
                column = columns[place]
                default = self._plain(column.type) if self.below(3) else None
                nullable = column.nullable or self.below(3) == 0
                columns[place] = msgspec.structs.replace(column, default=default, nullable=nullable)
            case 7 if len(others) > 1:
                one, other = others[0], others[-1]
                first, last = columns[one].name, columns[other].name
                columns[one] = msgspec.structs.replace(columns[one], name=last)
                columns[other] = msgspec.structs.replace(columns[other], name=first)
                if self.below(2):
                    columns[one], columns[other] = columns[other], columns[one]

    def _column(self, name: str) -> Column:
        kind = self.pick(TYPES)
        nullable = bool(self.below(2))
        default = self._plain(kind) if not nullable or self.below(2) else None
        return Column(id=self._id(), name=name, type=kind, nullable=nullable, default=default)

    def _plain(self, kind: str) -> Any:
        number = self.below(6)
        return {"int32": number, "string": f"t{number}", "double": number / 4, "bool": number > 2}[kind]

    def _id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _shuffled(self, values: list[_T]) -> list[_T]:
        for place in range(len(values) - 1, 0, -1):
            other = self.below(place + 1)
            values[place], values[other] = values[other], values[place]
        return values
