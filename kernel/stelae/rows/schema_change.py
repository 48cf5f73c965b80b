"""Which schema may follow which (behaviour D4)."""

from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Schema


def check_change(before: Schema, after: Schema) -> None:
    """Check that rows made under ``before`` can be had under ``after``, which is the next version of it.

    Columns may come, go, be renamed, get another default or become nullable. ``SchemaMismatch``: not the next version;
    another key or type; a column that rows of before have no value for."""
    if after.version != before.version + 1:
        fact = f"schema version {after.version} does not follow version {before.version}, which is in force"
        raise SchemaMismatch(f"{fact}: read the schema again and change that")
    if after.key != before.key:
        raise SchemaMismatch(f"the key is columns {before.key!r} for good, not {after.key!r}: make another table")
    for column in after.columns:
        known = before.by_id.get(column.id)
        if known is None:
            if column.required:
                fact = f"rows of before have no value for the new column {column.name!r}"
                raise SchemaMismatch(f"{fact}: make it nullable, or give it a default")
        elif known.type != column.type:
            raise SchemaMismatch(f"column {known.name!r} is {known.type} for good, not {column.type}: add another one")
        elif known.nullable and not column.nullable:
            raise SchemaMismatch(f"column {known.name!r} may be empty in rows of before: it stays nullable")
