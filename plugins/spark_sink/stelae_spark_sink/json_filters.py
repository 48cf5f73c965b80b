"""Filters of the client as JSON, for the options ``where`` and ``replaceWhere``. Pure.

JSON has no decimals, dates, times or bytes. They travel as text, and the type of the column says how to parse it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from stelae.client.filters import BadFilter, Filter
from stelae.client.text_values import parse_text
from stelae.spi.schema import Column, Schema

_AS_TEXT = ("decimal", "date", "timestamp", "binary")


def to_json(where: Filter | Iterable[Filter]) -> str:
    """Return filters as the text of an option.

    Raises:
        BadFilter: a value has a type that no column has.
    """
    listed = [*where]
    if listed and isinstance(listed[0], str):
        listed = [tuple(listed)]
    return json.dumps(listed, default=plain_text)


def plain_text(value: Any) -> Any:
    """Return a value that JSON does not have as one that it has, for ``json.dumps``."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if hasattr(value, "item"):  # A scalar of numpy.
        return value.item()
    if isinstance(value, Iterable):
        return [*value]
    raise BadFilter(f"a filter cannot have a value of type {type(value).__name__}: {value!r:.60}")


def with_values(schema: Schema, where: Sequence[Filter]) -> list[Filter]:
    """Return the filters of an option with the values of their columns.

    Raises:
        BadFilter: a text is no value of its column.
    """
    return [_with_values(schema, one) for one in where]


def _with_values(schema: Schema, one: Filter) -> Filter:
    name, op, *rest = one
    column = schema.by_name.get(name)
    if column is None or not rest or column.data_type.name not in _AS_TEXT:
        return tuple(one)  # The client refuses an unknown column, and checks all other values.
    (value,) = rest
    if isinstance(value, list):
        return name, op, [_value(column, each) for each in value]
    return name, op, _value(column, value)


def _value(column: Column, text: Any) -> Any:
    import pyarrow as pa

    if not isinstance(text, str):
        return text
    found = parse_text(column, pa.array([text.encode()], pa.binary()))
    if found.bad:
        raise BadFilter(f"in a filter, {found.bad[0]}")
    return found.array[0].as_py()
