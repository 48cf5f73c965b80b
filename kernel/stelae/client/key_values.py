"""Converts a caller's keys and bounds: one value, a tuple, a dict, a row of a frame, or a frame with many keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stelae.client.arguments import several
from stelae.partition.key_columns import KeyColumns
from stelae.rows.scalars import plain_scalar
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Schema

_SINGLE = frozenset({int, str, bytes})
"""Types of most values that are a whole key."""


def key_of(schema: Schema, key: Any) -> tuple[Any, ...]:
    """Return the values of a key, in key order.

    Args:
        schema: of the table.
        key: one value, a tuple in key order, a dict by column, or a row of a pandas frame. Other columns of the row are
            ignored.

    Raises:
        SchemaMismatch: the values are not exactly those of the key columns.
    """
    if type(key) in _SINGLE and len(schema.key) == 1:
        return (plain_scalar(schema.key_layout.columns[0], key),)
    names = _names(schema)
    if is_series(key):
        key = {name: value for name, value in key.items() if name in names}
    if isinstance(key, Mapping):
        if {*key} != {*names}:
            raise SchemaMismatch(f"a key has values for exactly {', '.join(names)}, not {key!r:.120}")
        return _plain(schema, [key[name] for name in names])
    values = [*key] if isinstance(key, tuple | list) or _is_vector(key) else [key]
    if len(values) != len(names):
        raise SchemaMismatch(f"a key has values for {', '.join(names)}; got {len(values)}: {key!r:.120}")
    return _plain(schema, values)


def keys_of(schema: Schema, keys: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the values of each key of an iterable, or of each row of a frame with the key columns."""
    columns = _columns_of(keys, _names(schema))
    listed = several("keys", keys, "keys") if columns is None else zip(*columns, strict=True)
    return [key_of(schema, key) for key in listed]


def bound_of(columns: KeyColumns, key: Any) -> bytes | None:
    """Return the encoded form of a key, or of the first values of a key; ``None`` for ``None``."""
    if key is None:
        return None
    values = key if isinstance(key, tuple | list) else (key,)
    if not 1 <= len(values) <= len(columns.columns):
        names = ", ".join(column.name for column in columns.columns)
        raise SchemaMismatch(f"a bound has values for the first of {names}; got {key!r:.120}")
    return columns.encode([*map(plain_scalar, columns.columns, values)])


def is_series(value: Any) -> bool:
    """Return whether a value is a pandas ``Series``, such as a row of a frame."""
    return type(value).__name__ == "Series" and _family(value) == "pandas"


def _columns_of(frame: Any, names: Sequence[str]) -> list[Any] | None:
    """Return the key columns of a frame; ``None``: the argument is not a frame."""
    family = _family(frame)
    if family == "polars" and hasattr(frame, "collect"):
        frame = frame.select(names).collect()
    if family == "pandas" and hasattr(frame, "columns"):
        frame = frame.reset_index() if any(name in names for name in frame.index.names) else frame
        columns = [*frame.columns]
    elif family == "polars" and hasattr(frame, "columns"):
        columns = [*frame.columns]
    elif family == "pyarrow" and hasattr(frame, "schema"):
        frame = frame.read_all() if hasattr(frame, "read_all") else frame  # A ``RecordBatchReader`` is read once.
        columns = [*frame.schema.names]
    else:
        return None
    lacking = [name for name in names if name not in columns]
    if lacking:
        raise SchemaMismatch(f"a frame of keys needs the columns {', '.join(names)}; this one lacks {lacking[0]!r}")
    return [frame.column(name).to_pylist() if family == "pyarrow" else frame[name] for name in names]


def _names(schema: Schema) -> list[str]:
    return [column.name for column in schema.key_layout.columns]


def _plain(schema: Schema, values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(plain_scalar, schema.key_layout.columns, values))


def _is_vector(value: Any) -> bool:
    return _family(value) == "numpy" and len(getattr(value, "shape", ())) == 1


def _family(value: Any) -> str:
    return type(value).__module__.partition(".")[0]
