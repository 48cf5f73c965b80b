"""Filters of the client as JSON, for the options ``where`` and ``replaceWhere``. Pure.

JSON has no decimals, dates, times or bytes. In an option that a user writes they are text, and the type of the column
says how to parse it: for a binary column it is base64. Values of Python keep their type on the way, as in ``{"bytes":
"AP8="}``, so that ``b"..."`` is never taken for text, nor text for base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from stelae.client.filters import BadFilter, Filter
from stelae.client.scalars import has_nanoseconds, plain_scalar
from stelae.client.text_values import parse_text
from stelae.spi.schema import Column, Schema

_AS_TEXT = ("decimal", "date", "timestamp", "binary")

_ANY = Column(id=1, name="any", type="binary")
"""A column for values whose column is unknown: those of libraries become those of Python, and mean the same."""

_DAY_LENGTH = len("2026-06-01")


def to_json(where: Filter | Iterable[Filter]) -> str:
    """Return filters as the text of an option.

    Raises:
        BadFilter: a value has a type that no column has.
    """
    listed = [*where]
    if listed and isinstance(listed[0], str):
        listed = [tuple(listed)]
    return json.dumps([[*one[:2], *map(_typed, one[2:])] for one in listed], default=plain_text)


def _typed(value: Any) -> Any:
    """Return a value of a filter, or its values, as JSON that keeps the type. Raises ``BadFilter`` as ``to_json``."""
    if isinstance(value, str):
        return {"text": value}
    plain = plain_scalar(_ANY, value)
    if isinstance(plain, Decimal):
        return {"decimal": str(plain)}
    if isinstance(plain, bytes | bytearray):
        return {"bytes": plain_text(plain)}
    if isinstance(plain, date) and not has_nanoseconds(plain):
        return {"time" if isinstance(plain, datetime) else "date": plain.isoformat()}
    if isinstance(plain, Iterable) and not _is_time(value):
        return [_typed(each) for each in plain]
    return plain_text(value)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "decimal": Decimal,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "date": date.fromisoformat,
    "time": datetime.fromisoformat,
}


def plain_text(value: Any) -> Any:
    """Return a value that JSON does not have as one that it has, for ``json.dumps``.

    Raises:
        BadFilter: no column has a value of this type, or a time is finer than microseconds, or outside of the years 1
            to 9999.
    """
    plain = plain_scalar(_ANY, value)
    if plain is None or (isinstance(plain, bool | int | float | str) and not _is_time(value)):
        return plain
    if isinstance(plain, Decimal):
        return str(plain)
    if isinstance(plain, date) and not has_nanoseconds(plain):
        return plain.isoformat()
    if isinstance(plain, bytes | bytearray):
        return base64.b64encode(plain).decode()
    if _is_time(value):
        raise BadFilter(f"a filter cannot have the time {value}: give whole microseconds in the years 1 to 9999")
    if isinstance(plain, Iterable):
        return [*plain]
    raise BadFilter(f"a filter cannot have a value of type {type(value).__name__}: {value!r:.60}")


def _is_time(value: Any) -> bool:
    """Return whether a value is a time of Python, pandas or numpy; an array of times is none."""
    is_scalar = getattr(value, "shape", None) == ()
    return isinstance(value, datetime) or (is_scalar and getattr(value.dtype, "kind", "") == "M")


def with_values(schema: Schema, where: Sequence[Filter]) -> list[Filter]:
    """Return the filters of an option with the values of their columns.

    Raises:
        BadFilter: a text is no value of its column.
    """
    return [_with_values(schema, one) for one in where]


def _with_values(schema: Schema, one: Filter) -> Filter:
    name, op, *rest = one
    column = schema.by_name.get(name)
    if not rest:
        return tuple(one)
    (value,) = rest
    found = [_value(name, column, each) for each in value] if isinstance(value, list) else _value(name, column, value)
    return name, op, found


def _value(name: Any, column: Column | None, given: Any) -> Any:
    """Return the value of a filter. ``column``: ``None`` if there is none, which the client refuses."""
    if isinstance(given, dict):
        given = _untyped(name, given)
        if not isinstance(given, str) or (column is not None and column.type == "binary"):
            return given  # A value of Python is taken as it is, and a text of Python is no base64.
    if column is None or column.data_type.name not in _AS_TEXT:
        return given  # The client checks it.
    return _parsed(column, given)


def _untyped(name: Any, given: dict[str, Any]) -> Any:
    """Return the value of Python that ``_typed`` has encoded."""
    try:
        ((kind, text),) = given.items()
        return _PARSERS[kind](text)
    except (KeyError, ValueError, TypeError, ArithmeticError):
        fact = f"in a filter, column {name!r}: {given!r:.60} is no value"
        raise BadFilter(f"{fact}; a value is a number, a text, or one of {', '.join(_PARSERS)} with its text") from None


def _parsed(column: Column, given: Any) -> Any:
    """Return the value of a text in an option."""
    import pyarrow as pa

    if not isinstance(given, str):
        if given is None or column.data_type.name == "decimal":
            return given  # The client refuses null, and takes whole numbers for decimals only.
        raise BadFilter(f"in a filter, column {column.name!r}: expected {column.type} as text, got {given!r:.60}")
    if column.type == "date" and len(given.strip()) > _DAY_LENGTH:
        return _day_of(column, given)
    found = parse_text(column, pa.array([given.encode()], pa.binary()))
    if found.bad:
        raise BadFilter(f"in a filter, {found.bad[0]}")
    return found.array[0].as_py()


def _day_of(column: Column, text: str) -> date:
    """Return the day of a time at midnight, in UTC if it has a zone, as the client takes it for a date."""
    try:
        found = plain_scalar(column, datetime.fromisoformat(text.strip()))
    except ValueError:
        found = None
    if type(found) is not date:
        raise BadFilter(f"in a filter, column {column.name!r}: expected date, got {text!r:.60}")
    return found
