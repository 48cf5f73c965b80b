"""The columns of a block's Parquet file: first those of the table, by name and type, then three system columns.

A column of the table has its id as the Parquet field id. All columns except the key are nullable, because a deletion
has only a key. If a column of the table has the name of a system column, the system column's name gets underscores at
its end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stelae.spi.schema import Schema
from stelae_store_columnar.versions import RowVersions

SYSTEM_NAMES = ("_stelae_timestamp", "_stelae_deleted", "_stelae_schema")
"""The hybrid timestamp of the entry that wrote the row; whether it is a deletion; the schema version of the row."""


def file_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of all columns of a block."""
    names = [column.name for column in schema.columns]
    used_names = set(names)
    for name in SYSTEM_NAMES:
        while name in used_names:
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


def file_arrays(schema: Schema, versions: RowVersions) -> list[Any]:
    """Return versions as the columns of a block. They have all columns of the schema."""
    deleted = pa.repeat(False, len(versions)) if versions.deleted is None else versions.deleted
    columns = [versions.columns[column.id] for column in schema.columns]
    return [*columns, versions.stamps, deleted, versions.schemas]


def types_of(schema: Schema) -> dict[int, Any]:
    """Return the Arrow types of all columns."""
    return {column.id: column.data_type.arrow() for column in schema.columns}
