"""Columns of a block as any Parquet reader sees them: the table's own, by name and type, then three of ours.

Columns of the table carry their id as the Parquet field id; all but those of the key may be null, because a deletion
brings the key only. A table that has a column of the same name as one of ours makes ours longer by an underscore."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stelae.spi.schema import Schema
from stelae_store_columnar.versions import Versions

SYSTEM_NAMES = ("_stelae_timestamp", "_stelae_deleted", "_stelae_schema")
"""Hybrid timestamp of the entry that wrote the row; whether it is a deletion; under which schema version."""


def file_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of all columns of a block."""
    names = [column.name for column in schema.columns]
    taken = set(names)
    for name in SYSTEM_NAMES:
        while name in taken:
            name += "_"
        names.append(name)
    return tuple(names)


def file_schema(schema: Schema) -> Any:
    """Return the ``pyarrow.Schema`` of a block."""
    fields = [
        pa.field(c.name, c.data_type.arrow(), c.id not in schema.key, {"PARQUET:field_id": str(c.id)})
        for c in schema.columns
    ]
    system = zip(file_names(schema)[-3:], (pa.int64(), pa.bool_(), pa.int32()), strict=True)
    return pa.schema([*fields, *(pa.field(name, kind, False) for name, kind in system)])


def file_arrays(schema: Schema, versions: Versions) -> list[Any]:
    """Return versions, which have all columns of the schema, as the columns of a block."""
    deleted = pa.repeat(False, len(versions)) if versions.deleted is None else versions.deleted
    columns = [versions.columns[column.id] for column in schema.columns]
    return [*columns, versions.stamps, deleted, versions.schemas]


def types_of(schema: Schema) -> dict[int, Any]:
    """Return the Arrow types of all columns."""
    return {column.id: column.data_type.arrow() for column in schema.columns}
