"""What a reader asks of a store: columns, predicates, key range, order; and how rows are judged.

A ``ScanSpec`` travels from client to tablet as it is, and all engines judge rows by the one
:func:`matching` here, so that none of them has its own idea of null, NaN or prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import reduce
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch, to_array
from stelae.spi.schema import Column, Schema


class Compare(msgspec.Struct, frozen=True, tag=True):
    """``column op value``. A null on the left is never a match; NaN only with ``!=``."""

    column: int
    op: Literal["=", "!=", "<", "<=", ">", ">="]
    value: Any


class In(msgspec.Struct, frozen=True, tag=True):
    """The column equals one of the values, none of which is null."""

    column: int
    values: tuple[Any, ...]


class IsNull(msgspec.Struct, frozen=True, tag=True):
    """The column is null, or, with ``negated``, is not."""

    column: int
    negated: bool = False


class Prefix(msgspec.Struct, frozen=True, tag=True):
    """The text or bytes of the column begin with ``prefix``."""

    column: int
    prefix: Any


Predicate: TypeAlias = Compare | In | IsNull | Prefix


class Order(StrEnum):
    """In which order rows come."""

    ANY = "any"
    KEY = "key"
    KEY_DESCENDING = "key_descending"


class ScanSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to read: rows from ``key_from`` to before ``key_until`` that meet all predicates."""

    columns: tuple[int, ...] | None = None  #: Ids in the order wanted; ``None`` for all.
    predicates: tuple[Predicate, ...] = ()
    key_from: bytes | None = None  #: Encoded key; ``None``: from the first row.
    key_until: bytes | None = None  #: Encoded key; ``None``: to the last row.
    limit: int | None = None  #: Most rows that the whole scan returns.
    order: Order = Order.ANY
    after: bytes | None = None  #: Resume token: go on behind the row with this encoded key.


def matching(schema: Schema, predicates: Sequence[Predicate], rows: RowBatch) -> RowBatch:
    """Return the rows for which every predicate holds; the batch has all columns of the schema.

    ``SchemaMismatch``: an unknown column, or a value that does not fit its column.
    """
    import pyarrow.compute as pc

    if not predicates:
        return rows
    places = {column_id: place for place, column_id in enumerate(rows.layout.ids)}
    masks = []
    for predicate in predicates:
        column = schema.by_id.get(predicate.column)
        if column is None:
            raise SchemaMismatch(f"a predicate names the unknown column id {predicate.column}")
        array = rows.arrow.column(places[column.id])
        masks.append(pc.fill_null(_mask(predicate, column, array), False))
    return rows.filter(reduce(pc.and_, masks))


def _mask(predicate: Predicate, column: Column, array: Any) -> Any:
    import pyarrow.compute as pc

    match predicate:
        case Compare(op=op, value=value):
            return getattr(pc, _FUNCTIONS[op])(array, _literals(column, (value,))[0])
        case In(values=values):
            return pc.is_in(array, value_set=_literals(column, values))
        case IsNull(negated=negated):
            return pc.is_valid(array) if negated else pc.is_null(array)
        case Prefix(prefix=prefix):
            if column.type not in ("string", "binary"):
                raise SchemaMismatch(f"column {column.name!r} has no prefixes: it is {column.type}")
            _literals(column, (prefix,))
            return pc.starts_with(array, pattern=prefix)
        case _:
            assert_never(predicate)


def _literals(column: Column, values: Sequence[Any]) -> Any:
    return to_array(msgspec.structs.replace(column, nullable=False), values)


_FUNCTIONS = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
