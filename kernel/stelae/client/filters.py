"""Filters as people write them, as the predicates that tablets judge by.

A filter is ``(column, operation, value)``, or a list of them of which all must hold::

    [("celsius", ">", 20.5), ("sensor", "in", [1, 2]), ("note", "is null"), ("name", "starts with", "ab")]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from stelae.client.row_input import unknown_columns
from stelae.protocol.tablet_messages import IN_VALUES_MAX
from stelae.rows.batch_building import describe_misfit, misfits
from stelae.rows.scalars import plain_scalar
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch, to_array
from stelae.spi.scan import Compare, In, IsNull, Predicate, Prefix
from stelae.spi.schema import Column, Layout, Schema

Filter: TypeAlias = Sequence[Any]

_COMPARE = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SUCH = ", such as ('celsius', '>', 20.5)"
_OPERATIONS = "=, !=, <, <=, >, >=, in, is null, is not null, starts with"


class BadFilter(SchemaMismatch, code="BAD_FILTER"):
    """A filter that cannot be read, or does not fit its column."""


def predicates(schema: Schema, where: Filter | Iterable[Filter] | None) -> tuple[Predicate, ...]:
    """Read filters; ``BadFilter``: which one, what was expected, and what came."""
    if where is None:
        return ()
    if isinstance(where, str | Mapping) or not isinstance(where, Iterable):
        what = "the text" if isinstance(where, str) else type(where).__name__
        raise BadFilter(f"a filter is (column, operation, value){_SUCH}, not {what} {where!r:.60}")
    listed = [*where]
    if listed and isinstance(listed[0], str):
        listed = [tuple(listed)]
    return tuple(_predicate(schema, one) for one in listed)


def _predicate(schema: Schema, one: Any) -> Predicate:
    if not isinstance(one, tuple | list) or not 2 <= len(one) <= 3:
        raise BadFilter(f"a filter is (column, operation, value){_SUCH}, not {one!r:.80}")
    name, op = one[0], " ".join(str(one[1]).lower().split())
    column = schema.by_name.get(name)
    if column is None:
        raise BadFilter(unknown_columns(schema, [str(name)]))
    if op in ("is null", "is not null"):
        return IsNull(column.id, negated=op == "is not null")
    if len(one) != 3:
        raise BadFilter(f"filter {one!r:.80} lacks a value")
    if op in _COMPARE:
        return Compare(column.id, _COMPARE[op], _plain(column, [one[2]])[0])  # type: ignore[arg-type]
    if op == "in":
        return In(column.id, tuple(_plain(column, _listed(column, one[2]))))
    if op == "starts with":
        if column.type not in ("string", "binary"):
            raise BadFilter(f"column {name!r} is {column.type} and has no prefixes")
        return Prefix(column.id, _plain(column, [one[2]])[0])
    raise BadFilter(f"unknown operation {one[1]!r:.40} in a filter on {name!r}; known: {_OPERATIONS}")


def _listed(column: Column, values: Any) -> list[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise BadFilter(f"'in' on column {column.name!r} takes a list of values, not {type(values).__name__}")
    listed = [*values]
    if len(listed) > IN_VALUES_MAX:
        raise BadFilter(f"'in' on column {column.name!r} has {len(listed)} values; at most {IN_VALUES_MAX}")
    return listed


def _plain(column: Column, values: list[Any]) -> list[Any]:
    """The plain values that travel, once all of them fit the column."""
    never_null = msgspec.structs.replace(column, nullable=False, default=None)
    plain = [plain_scalar(never_null, value) for value in values]
    try:
        rows = RowBatch.from_arrays(Layout((never_null,)), [to_array(never_null, plain)])
    except SchemaMismatch:
        place = misfits(never_null, plain)[0]
        hint = f"; rows without a value: ({column.name!r}, 'is null')" if plain[place] is None else ""
        raise BadFilter(f"in a filter, {describe_misfit(never_null, values[place])}{hint}") from None
    return rows.values(0)
