"""The evaluation of the predicates of ``stelae.spi.scan``. All engines share it, so that null, NaN and prefixes mean
the same in all of them."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, assert_never

import msgspec

from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch, to_array
from stelae.spi.scan import Compare, In, IsNull, Predicate, Prefix
from stelae.spi.schema import Column, Schema


def filter_rows(schema: Schema, predicates: Sequence[Predicate], rows: RowBatch) -> RowBatch:
    """Return the rows for which every predicate holds. The batch has all columns of the schema.

    ``SchemaMismatch``: a predicate names an unknown column, or a value that does not fit its column.
    """
    return rows.filter(matches(schema, predicates, rows)) if predicates else rows


def matches(schema: Schema, predicates: Sequence[Predicate], rows: RowBatch) -> Any:
    """Return a ``pyarrow.BooleanArray``: whether every predicate, of at least one, holds for each row.

    Raises what :func:`filter_rows` raises."""
    import pyarrow.compute as pc

    places = {column_id: place for place, column_id in enumerate(rows.layout.ids)}
    masks = []
    for predicate in predicates:
        column = schema.by_id.get(predicate.column)
        if column is None:
            raise SchemaMismatch(f"a predicate names the unknown column id {predicate.column}")
        array = rows.arrow.column(places[column.id])
        masks.append(pc.fill_null(_mask(predicate, column, array), False))
    return reduce(pc.and_, masks)


def _mask(predicate: Predicate, column: Column, array: Any) -> Any:
    import pyarrow.compute as pc

    match predicate:
        case Compare(op=op, value=value):
            return getattr(pc, _FUNCTIONS[op])(array, _literals(column, (value,))[0])
        case In(values=values):
            return pc.is_in(array, value_set=_literals(column, _equals(column, values)))
        case IsNull(negated=negated):
            return pc.is_valid(array) if negated else pc.is_null(array)
        case Prefix(prefix=prefix):
            if column.type not in ("string", "binary"):
                raise SchemaMismatch(
                    f"column {column.name!r} is {column.type}; a prefix needs a column of text or bytes"
                )
            _literals(column, (prefix,))
            return pc.starts_with(array, pattern=prefix)
        case _:
            assert_never(predicate)


def _equals(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a list in a form that makes Arrow compare as ``=`` does.

    In a list, Arrow tells zero from minus zero, and NaN equals NaN."""
    if column.type not in ("float", "double"):
        return values
    zeros = (0.0, -0.0) if any(value == 0 for value in values) else ()
    return [*(value for value in values if value == value), *zeros]


def _literals(column: Column, values: Sequence[Any]) -> Any:
    return to_array(msgspec.structs.replace(column, nullable=False), values)


_FUNCTIONS = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
