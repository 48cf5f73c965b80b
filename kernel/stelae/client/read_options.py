"""Checks the options of scans and diffs: their columns and their limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stelae.client.arguments import BadArgument, text, whole
from stelae.client.row_input import unknown_columns
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Schema


def column_ids(schema: Schema, columns: Sequence[str] | None) -> tuple[int, ...]:
    """Return the ids of the columns with these names, in their order; ``None``: of all columns of the schema.

    Raises:
        SchemaMismatch: a column is unknown or repeated, or there is none.
        BadArgument: ``columns`` is not a list of names.
    """
    if columns is None:
        return schema.layout.ids
    if isinstance(columns, bytes) or not isinstance(columns, Iterable):
        raise BadArgument("columns", "a list of names, or None for all", columns)
    names = [columns] if isinstance(columns, str) else [text("a column to read", name) for name in columns]
    unknown = [str(name) for name in names if name not in schema.by_name]
    if unknown:
        raise SchemaMismatch(unknown_columns(schema, unknown))
    if not names or len(set(names)) != len(names):
        raise SchemaMismatch(f"columns to read must be one or more different ones, not {names!r:.120}")
    return tuple(schema.by_name[name].id for name in names)


def checked_limit(limit: int | None) -> int | None:
    """Return the limit of a scan; ``BadArgument``: it is not a whole number from 0, or ``None``."""
    return None if limit is None else whole("limit", limit, 0, or_none="for all rows")
