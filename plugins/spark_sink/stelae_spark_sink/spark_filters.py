"""Translates the filters of Spark into filters of the client, where both have the same meaning. Pure.

Spark drops a filter from its plan when the source takes it, so a filter is taken only if tablets judge every value as
Spark does:

- In Spark, NaN equals NaN and is greater than every other number. In a tablet, NaN matches ``!=`` alone. So ``>`` and
  ``>=`` on ``float`` and ``double``, and every filter with NaN, stay with Spark.
- A null matches no comparison, in Spark as in a tablet.
- Text and bytes are compared byte by byte in both."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any, NamedTuple

from pyspark.sql import datasource as spark

from stelae.client.filters import BadFilter, predicates
from stelae.spi.schema import Schema

Filter = tuple[Any, ...]

NOT_IN_VALUES_MAX = 32
"""The most values of a ``NOT IN`` that is taken. Each of them becomes a filter of its own."""

_COMPARE: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}
_FLOATS = ("float", "double")


class Divided(NamedTuple):
    """The filters that tablets judge, and those that are left to Spark."""

    pushed: list[Filter]
    left: Sequence[spark.Filter]


def divided(schema: Schema, filters: Sequence[spark.Filter]) -> Divided:
    """Divide the filters of a query, of which all must hold.

    Args:
        schema: the schema of the table.
        filters: the filters that Spark offers.
    """
    pushed: list[Filter] = []
    left = []
    for one in filters:
        found = _translated(schema, one)
        if found is None:
            left.append(one)
        else:
            pushed += found
    return Divided(pushed, left)


def _translated(schema: Schema, one: spark.Filter) -> list[Filter] | None:
    """Return the filters that together mean the same, or ``None``."""
    found = _client_filters(one)
    if found is None or not all(_means_the_same(schema, part) for part in found):
        return None
    try:
        predicates(schema, found)
    except BadFilter:
        return None
    return found


def _client_filters(one: spark.Filter) -> list[Filter] | None:
    match one:
        case spark.EqualNullSafe((name,), value):
            return [(name, "is null")] if value is None else [(name, "=", value)]
        case spark.In((name,), values):
            return [(name, "in", [*values])]
        case spark.IsNull((name,)) | spark.Not(spark.IsNotNull((name,))):
            return [(name, "is null")]
        case spark.IsNotNull((name,)) | spark.Not(spark.IsNull((name,))):
            return [(name, "is not null")]
        case spark.StringStartsWith((name,), value):
            return [(name, "starts with", value)]
        case spark.Not(spark.EqualTo((name,), value)):
            return [(name, "!=", value)]
        case spark.Not(spark.In((name,), values)) if len(values) <= NOT_IN_VALUES_MAX:
            return [(name, "!=", value) for value in values]
    op = _COMPARE.get(type(one))
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return [(path[0], op, getattr(one, "value", None))] if op and len(path) == 1 else None


def _means_the_same(schema: Schema, found: Filter) -> bool:
    name, op, *rest = found
    column = schema.by_name.get(name)
    if column is None:
        return False
    values = [] if not rest else rest[0] if op == "in" else rest
    if any(value is None or (isinstance(value, float) and isnan(value)) for value in values):
        return False
    return column.type not in _FLOATS or op not in (">", ">=")
