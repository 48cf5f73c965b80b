"""A table in words: how it is cut, which rows a tablet holds, and what stands for a value that is absent."""

from __future__ import annotations

import datetime
from typing import Any

from stelae.partition.schema import PartitionSchema
from stelae.protocol.master_messages import TableDescription, TabletPlace
from stelae.rows.keys import decode_key
from stelae.spi.errors import CallerError
from stelae.spi.schema import Column, Schema


def partition_text(table: TableDescription, place: TabletPlace) -> str:
    """Which rows a tablet holds."""
    schema, scheme = Schema.from_bytes(table.schema), PartitionSchema.from_bytes(table.partition_schema)
    parts = []
    for level, bucket in zip(scheme.hash_levels, place.partition.buckets, strict=True):
        parts.append(f"bucket {bucket} of {level.buckets} by {_names(schema, level.columns)}")
    held = place.partition.range
    if held.lower or held.upper is not None:
        lower, upper = _bound(schema, scheme, held.lower), _bound(schema, scheme, held.upper)
        ends = f"from {lower or 'the least'} " + (f"to before {upper}" if upper else "on")
        parts.append(f"{_names(schema, scheme.range_columns)} {ends}")
    return "; ".join(parts) or "all rows"


def scheme_text(table: TableDescription) -> str:
    """By what the rows of a table are spread over its tablets."""
    schema, scheme = Schema.from_bytes(table.schema), PartitionSchema.from_bytes(table.partition_schema)
    parts = [f"hash of {_names(schema, level.columns)} into {level.buckets}" for level in scheme.hash_levels]
    if scheme.range_columns:
        parts.append(f"ranges of {_names(schema, scheme.range_columns)}: {len(scheme.ranges)}")
    return "; ".join(parts) or "none: one tablet"


def default_value(column: Column) -> Any:
    """A column's default as a JSON value: dates and times in ISO 8601, bytes in hex; ``None``: it has none."""
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
