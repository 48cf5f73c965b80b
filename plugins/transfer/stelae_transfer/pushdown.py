"""Translation of pyarrow filter expressions into filters of the client, where both have the same meaning.

The expression is read from its serialized form: a record batch that has the tree in its metadata, and the literals with
their types in its columns. Parts that cannot be translated are left out. Then the filters let more rows pass than the
expression, never fewer, and the caller applies the whole expression to the rows again."""

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


class _FunctionCall(NamedTuple):
    function: str
    arguments: list[Any]
    options: Any


class _Field(NamedTuple):
    name: str


class _Literal(NamedTuple):
    value: Any


class Pushed(NamedTuple):
    """The translation of an expression."""

    filters: list[Filter]  #: Filters for the scan. All of them must hold.
    columns: Sequence[str] | None  #: The columns that the expression reads; ``None``: unknown, so all columns.


def pushed(schema: Schema, expression: Any) -> Pushed:
    """Return filters that are implied by a ``pyarrow.dataset.Expression``, and the columns that it reads."""
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
    stack: list[_FunctionCall] = [_FunctionCall("", [], None)]
    for kind, body in _LINE.findall(text.partition(_MARK)[2]):
        if kind == "call":
            stack.append(_FunctionCall(body, [], None))
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
            raise ValueError(f"unknown node {kind}")
    (root,) = stack
    (only,) = root.arguments
    return only


def _fields(part: Any) -> set[str]:
    if isinstance(part, _Field):
        return {part.name}
    found: set[str] = set()
    for argument in part.arguments if isinstance(part, _FunctionCall) else ():
        found |= _fields(argument)
    return found


def _conjuncts(part: Any) -> list[Any]:
    if isinstance(part, _FunctionCall) and part.function in _AND:
        return [one for argument in part.arguments for one in _conjuncts(argument)]
    return [part]


def _filter(schema: Schema, part: Any) -> Filter | None:
    """Return one filter, or ``None`` if the client does not accept it or gives it another meaning."""
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
        case _FunctionCall(function, [_Field(name), _Literal(value)], _) if function in _COMPARE and value is not None:
            return name, _COMPARE[function], value
        case _FunctionCall("is_valid", [_Field(name)], _):
            return name, "is not null"
        case _FunctionCall("is_null", [_Field(name)], _):
            return name, "is null"
        case _FunctionCall("is_in", [_Field(name)], {"value_set": list(values)}):
            # A list with a null is not translated.
            present = [value for value in values if value is not None]
            return (name, "in", present) if 0 < len(present) == len(values) <= IN_VALUES_MAX else None
        case _FunctionCall("if_else", [_FunctionCall("is_valid", [_Field(a)], _), inner, _Literal(None)], _):
            found = _translated(inner)
            return found if found and found[0] == a else None
        case _FunctionCall("or_kleene" | "or", [first, second], _):
            return _joined(_translated(first), _translated(second))
        case _:
            return None


def _joined(first: Filter | None, second: Filter | None) -> Filter | None:
    """Return equalities on one column, joined by *or*, as one list of values."""
    if first is None or second is None or first[0] != second[0]:
        return None
    values: list[Any] = []
    for found in (first, second):
        if found[1] not in ("=", "in"):
            return None
        values += found[2] if found[1] == "in" else [found[2]]
    return (first[0], "in", values) if len(values) <= IN_VALUES_MAX else None


def _differs_for_floats(schema: Schema, found: Filter) -> bool:
    """Return whether a filter compares floats. DuckDB orders NaN above all numbers; the client does not order it."""
    column = schema.by_name.get(found[0])
    return column is not None and column.data_type.name in ("float", "double") and len(found) == 3
