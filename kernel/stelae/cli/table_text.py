"""Text for the partitioning of a table, for the rows of a tablet, and for the default of a column."""

from __future__ import annotations

import datetime
from typing import Any

from stelae.partition.schema import PartitionSchema
from stelae.protocol.master_messages import TableDescription, TabletPlace
from stelae.rows.keys import decode_key
from stelae.spi.errors import CallerError
from stelae.spi.schema import Column, Schema


def partition_text(table: TableDescription, place: TabletPlace) -> str:
    """Return which rows a tablet has."""
    schema, scheme = Schema.from_bytes(table.schema), PartitionSchema.from_bytes(table.partition_schema)
    parts = []
    for level, bucket in zip(scheme.hash_levels, place.partition.buckets, strict=True):
        parts.append(f"bucket {bucket} of {level.buckets} by {_names(schema, level.columns)}")
    keys = place.partition.range
    if keys.lower or keys.upper is not None:
        lower, upper = _bound(schema, scheme, keys.lower), _bound(schema, scheme, keys.upper)
        ends = (f" from {lower}" if lower else "") + (f" until {upper}" if upper else "")
        parts.append(_names(schema, scheme.range_columns) + ends)
    return "; ".join(parts) or "all rows"


def scheme_text(table: TableDescription) -> str:
    """Return how the rows of a table are distributed over its tablets."""
    schema, scheme = Schema.from_bytes(table.schema), PartitionSchema.from_bytes(table.partition_schema)
    parts = [f"hash of {_names(schema, level.columns)} into {level.buckets}" for level in scheme.hash_levels]
    if scheme.range_columns:
        parts.append(f"ranges of {_names(schema, scheme.range_columns)}: {len(scheme.ranges)}")
    return "; ".join(parts) or "none: one tablet"


def default_value(column: Column) -> Any:
    """Return the default of a column as a JSON value: dates and times in ISO 8601, bytes in hex, or ``None``."""
    value = column.default
    if isinstance(value, bytes):
        return value.hex()
    if value is None or column.type not in ("date", "timestamp"):
        return value
    span = datetime.timedelta(days=value) if column.type == "date" else datetime.timedelta(microseconds=value)
    moment = datetime.datetime(1970, 1, 1) + span
    return moment.date().isoformat() if column.type == "date" else moment.isoformat()


def _names(schema: Schema, columns: tuple[int, ...]) -> str:
    return ", ".join(schema.by_id[column].name for column in columns)


def _bound(schema: Schema, scheme: PartitionSchema, bound: bytes | None) -> str:
    if not bound:
        return ""
    try:
        values = decode_key(Schema(1, schema.project(scheme.range_columns).columns, scheme.range_columns), bound)
    except CallerError:
        return f"0x{bound.hex()}"
    return ", ".join(repr(value) for value in values)
