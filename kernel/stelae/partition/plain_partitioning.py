"""Partition schemas as people write them: with column names, and with bounds as values.

.. code-block:: toml

    hash = [{columns = ["sensor"], buckets = 4}]
    range = {columns = ["day"], bounds = [[2026-01-01], [2026-02-01]]}

``bounds`` divide all values of the columns: *n* bounds make *n + 1* ranges. Instead of ``bounds``, ``ranges`` may list
the ranges themselves as ``{from = [...], until = [...]}``. Either end may be absent. ``ranges`` may leave gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

from stelae.partition.key_columns import KeyColumns
from stelae.partition.schema import UNBOUNDED, BadPartitioning, HashLevel, KeyRange, PartitionSchema
from stelae.rows.scalars import has_nanoseconds, plain_scalar
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, Schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def partition_schema_from_plain(schema: Schema, plain: Mapping[str, Any]) -> PartitionSchema:
    """Read a partition schema as in the module's example. ``BadPartitioning``: a part is missing, unknown or wrong."""
    _only(plain, "a partitioning", "hash", "range")
    levels = []
    for level in _listed(plain, "hash"):
        _only(level, "a hash level", "columns", "buckets")
        levels.append(HashLevel(_ids(schema, level, "a hash level"), _count(level.get("buckets"))))
    given = plain.get("range")
    if given is None:
        return PartitionSchema(tuple(levels))
    _only(given, "a range level", "columns", "bounds", "ranges")
    columns = KeyColumns(schema, _ids(schema, given, "a range level"))
    return PartitionSchema(tuple(levels), columns.ids, tuple(_ranges(columns, given)))


def partition_schema_to_plain(schema: Schema, scheme: PartitionSchema) -> dict[str, Any]:
    """Return a partition schema in the form that :func:`partition_schema_from_plain` reads. Bounds are plain values."""
    found: dict[str, Any] = {}
    if scheme.hash_levels:
        names = [[schema.by_id[one].name for one in level.columns] for level in scheme.hash_levels]
        levels = zip(names, scheme.hash_levels, strict=True)
        found["hash"] = [{"columns": columns, "buckets": level.buckets} for columns, level in levels]
    if scheme.range_columns:
        columns = KeyColumns(schema, scheme.range_columns)
        ranges = [_plain_range(columns, one) for one in scheme.ranges]
        found["range"] = {"columns": [column.name for column in columns.columns], "ranges": ranges}
    return found


def _plain_range(columns: KeyColumns, one: KeyRange) -> dict[str, list[Any]]:
    ends = {"from": one.lower or None, "until": one.upper}
    return {end: [*columns.decode(bound)] for end, bound in ends.items() if bound is not None}


def _ranges(columns: KeyColumns, given: Mapping[str, Any]) -> Sequence[KeyRange]:
    if ("bounds" in given) == ("ranges" in given):
        raise BadPartitioning(
            "a range level needs either bounds, which divide all values, or ranges, which may leave gaps"
        )
    if "bounds" in given:
        edges = [_bound(columns, values) for values in _listed(given, "bounds")]
        if not edges:
            return [UNBOUNDED]
        middle = [KeyRange(one, other) for one, other in pairwise(edges)]
        return [KeyRange(b"", edges[0]), *middle, KeyRange(edges[-1], None)]
    ranges = []
    for one in _listed(given, "ranges"):
        _only(one, "a range", "from", "until")
        lower = _bound(columns, one["from"]) if "from" in one else b""
        ranges.append(KeyRange(lower, _bound(columns, one["until"]) if "until" in one else None))
    return ranges


def _bound(columns: KeyColumns, values: Any) -> bytes:
    listed = values if isinstance(values, list | tuple) else [values]
    if len(listed) != len(columns.columns):
        raise BadPartitioning(f"a bound needs one value for each of {len(columns.columns)} columns, got {values!r:.80}")
    try:
        return columns.encode([plain_value(c, value) for c, value in zip(columns.columns, listed, strict=True)])
    except SchemaMismatch as error:
        raise BadPartitioning(f"a bound does not fit its columns: {error}") from error


def plain_value(column: Column, value: Any) -> Any:
    """Return the plain value of a value of a column.

    A ``date`` or ``datetime`` becomes its number; a ``datetime`` without a zone counts as UTC. A scalar of another
    library becomes the value in it (``stelae.rows.scalars``). Any other value is returned as it is."""
    value = plain_scalar(column, value)
    if has_nanoseconds(value):
        return value
    if column.type == "timestamp" and isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        span = aware - _EPOCH
        return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
    if column.type == "date" and isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH.toordinal()
    return value


def _ids(schema: Schema, given: Mapping[str, Any], what: str) -> tuple[int, ...]:
    names = given.get("columns")
    if not isinstance(names, list | tuple) or not names:
        raise BadPartitioning(f"{what} needs columns, as a list of names")
    unknown = [name for name in names if not isinstance(name, str) or name not in schema.by_name]
    if unknown:
        known = ", ".join(schema.by_name)
        raise BadPartitioning(f"{what} names {', '.join(map(repr, unknown))[:80]}, but the table has: {known}")
    ids = tuple(schema.by_name[name].id for name in names)
    return KeyColumns(schema, ids).ids


def _listed(given: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = given.get(name, ())
    if not isinstance(found, list | tuple):
        raise BadPartitioning(f"{name} must be a list, not {type(found).__name__}")
    return found


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadPartitioning(f"buckets must be a number, not {value!r:.40}")
    return value


def _only(given: Any, what: str, *names: str) -> None:
    if not isinstance(given, Mapping):
        raise BadPartitioning(f"{what} must be a table with {', '.join(names)}, not {type(given).__name__}")
    unknown = sorted(set(given) - {*names})
    if unknown:
        raise BadPartitioning(f"{what} has no key {', '.join(map(repr, unknown))}; known keys: {', '.join(names)}")
