"""Finds the column types of a table that can store the rows of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stelae.spi.errors import SchemaMismatch

_WIDTHS = {"uint8": "int16", "uint16": "int32", "uint32": "int64"}
_SAME = ("bool", "int8", "int16", "int32", "int64", "float", "double", "string", "binary")


def columns_of(data: Any) -> Mapping[str, str]:
    """Return the column types of a pandas or polars frame, or of a pyarrow schema, table or batch, by name.

    Raises:
        SchemaMismatch: the argument is none of these, or a column has a type that no table has.
    """
    found = {}
    for field in _schema_of(data):
        kind = stored_type(field.type)
        if kind is None:
            raise SchemaMismatch(
                f"column {field.name!r}: a table cannot store type {field.type}; convert the column or leave it out"
            )
        if field.name in found:
            raise SchemaMismatch(f"the column {field.name!r} appears twice in the input; give each column once")
        found[field.name] = kind
    return found


def _schema_of(data: Any) -> Any:
    import pyarrow as pa

    family = type(data).__module__.partition(".")[0]
    try:
        if family == "pandas" and hasattr(data, "columns"):
            named = any(name is not None for name in data.index.names)
            return pa.Schema.from_pandas(data.reset_index() if named else data, preserve_index=False)
        if family == "polars" and hasattr(data, "collect_schema"):
            return data.lazy().head(0).collect().to_arrow().schema
    except (pa.ArrowException, TypeError, ValueError) as error:
        fact = f"cannot find the column types of the {family} frame{_at_fault(data)}"
        raise SchemaMismatch(f"{fact}: {error}; convert the column's values to one type, or leave it out") from error
    if isinstance(found := getattr(data, "schema", data), pa.Schema):
        return found
    known = "a dict of types, a list of columns, a pandas or polars DataFrame, or a pyarrow Schema or Table"
    raise SchemaMismatch(f"columns must be {known}, not {type(data).__name__}")


def _at_fault(frame: Any) -> str:
    """Return the name of the column of a pandas frame that has values of several types, as an end of a message."""
    import pyarrow as pa

    for number, name in enumerate(frame.columns if hasattr(frame, "iloc") else ()):
        try:
            pa.Array.from_pandas(frame.iloc[:, number])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return f", because of column {str(name)!r}"
    return ""


def stored_type(kind: Any) -> str | None:
    """Return the column type that stores an Arrow type; ``None``: no column type does, or ``kind`` is only a text."""
    import pyarrow as pa
    from pyarrow import types as t

    if isinstance(kind, str):
        return None
    if kind is None or t.is_null(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return "string"
    if t.is_dictionary(kind):
        return stored_type(kind.value_type)
    if t.is_timestamp(kind):
        return "timestamp"
    if t.is_date(kind):
        return "date"
    if t.is_float16(kind):
        return "float"
    if kind == pa.uint64():
        return "decimal(20,0)"
    if t.is_decimal(kind):
        fits = kind.precision <= 38 and 0 <= kind.scale <= kind.precision
        return f"decimal({kind.precision},{kind.scale})" if fits else None
    if t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or t.is_binary_view(kind):
        return "binary"
    text = str(kind)
    return _WIDTHS.get(text, text if text in _SAME else None)
