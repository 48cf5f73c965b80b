"""Filters of pyarrow as filters of the client, as far as both mean the same.

An expression is read from its serialized form, whose record batch holds the tree in its metadata, and the literals with
their types in its column. What is not understood is left out: the result then says less than the expression, never
more, and whoever asks judges the rows by the expression itself once more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from stelae.client.filters import BadFilter, predicates
from stelae.protocol.tablet_messages import IN_VALUES_MAX
from stelae.spi.schema import Schema

Filter = tuple[Any, ...]

_LINE = re.compile(r"(call|end|field_ref|nested_field_ref|literal|options): '(.*)'")
_COMPARE = {"equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_AND = ("and_kleene", "and")
_MARK = "-- schema metadata --"
_ODD_NAME = re.compile(r"['\n\r]")


class _Call(NamedTuple):
    function: str
    arguments: list[Any]
    options: Any


class _Field(NamedTuple):
    name: str


class _Literal(NamedTuple):
    value: Any


class Pushed(NamedTuple):
    """What a scan is asked for."""

    filters: list[Filter]
    columns: Sequence[str] | None  #: Columns that the expression needs; ``None``: unknown, so all.


def pushed(schema: Schema, expression: Any) -> Pushed:
    """Return filters that hold wherever a ``pyarrow.dataset.Expression`` holds, and the columns that it needs."""
    if expression is None:
        return Pushed([], ())
    if any(_ODD_NAME.search(column.name) for column in schema.columns):
        return Pushed([], None)
    try:
        tree = _tree(expression)
        columns = _fields(tree)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        return Pushed([], None)
    if not columns <= {*schema.by_name}:
        return Pushed([], None)
    return Pushed([one for part in _conjuncts(tree) if (one := _filter(schema, part))], sorted(columns))


def _tree(expression: Any) -> Any:
    import pyarrow as pa

    _, (buffer,) = expression.__reduce__()
    batch = pa.ipc.open_file(buffer).get_batch(0)
    text = batch.schema.to_string(truncate_metadata=False, show_field_metadata=False)
    stack: list[_Call] = [_Call("", [], None)]
    for kind, body in _LINE.findall(text.partition(_MARK)[2]):
        if kind == "call":
            stack.append(_Call(body, [], None))
        elif kind == "end":
            done = stack.pop()
            stack[-1].arguments.append(done)
        elif kind == "field_ref":
            stack[-1].arguments.append(_Field(body))
        elif kind == "literal":
            stack[-1].arguments.append(_Literal(batch.column(int(body))[0].as_py()))
        elif kind == "options":
            stack[-1] = stack[-1]._replace(options=batch.column(int(body))[0].as_py())
        else:
            raise ValueError(f"unknown part {kind}")
    (root,) = stack
    (only,) = root.arguments
    return only


def _fields(part: Any) -> set[str]:
    if isinstance(part, _Field):
        return {part.name}
    found: set[str] = set()
    for argument in part.arguments if isinstance(part, _Call) else ():
        found |= _fields(argument)
    return found


def _conjuncts(part: Any) -> list[Any]:
    if isinstance(part, _Call) and part.function in _AND:
        return [one for argument in part.arguments for one in _conjuncts(argument)]
    return [part]


def _filter(schema: Schema, part: Any) -> Filter | None:
    """One filter, if the client takes it and it means the same."""
    found = _translated(part)
    if found is None or _differs_for_floats(schema, found):
        return None
    try:
        predicates(schema, [found])
    except BadFilter:
        return None
    return found


def _translated(part: Any) -> Filter | None:
    match part:
        case _Call(function, [_Field(name), _Literal(value)], _) if function in _COMPARE and value is not None:
            return name, _COMPARE[function], value
        case _Call("is_valid", [_Field(name)], _):
            return name, "is not null"
        case _Call("is_null", [_Field(name)], _):
            return name, "is null"
        case _Call("is_in", [_Field(name)], {"value_set": list(values)}):
            # A null in the list changes nothing for rows that have a value, and null rows do not hold.
            present = [value for value in values if value is not None]
            return (name, "in", present) if 0 < len(present) == len(values) <= IN_VALUES_MAX else None
        case _Call("if_else", [_Call("is_valid", [_Field(a)], _), inner, _Literal(None)], _):
            found = _translated(inner)
            return found if found and found[0] == a else None
        case _Call("or_kleene" | "or", [one, other], _):
            return _either(_translated(one), _translated(other))
        case _:
            return None


def _either(one: Filter | None, other: Filter | None) -> Filter | None:
    """Equalities of one column, joined by *or*, as a list of values."""
    if one is None or other is None or one[0] != other[0]:
        return None
    values: list[Any] = []
    for found in (one, other):
        if found[1] not in ("=", "in"):
            return None
        values += found[2] if found[1] == "in" else [found[2]]
    return (one[0], "in", values) if len(values) <= IN_VALUES_MAX else None


def _differs_for_floats(schema: Schema, found: Filter) -> bool:
    """Whoever asks may order NaN above all numbers; here it is neither above nor below."""
    column = schema.by_name.get(found[0])
    return column is not None and column.data_type.name in ("float", "double") and len(found) == 3
