"""The check of a schema change: which schema may follow another one (behaviour D4)."""

from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Schema


def check_change(before: Schema, after: Schema) -> None:
    """Check that ``after`` is the next version of ``before``, and that rows of ``before`` can be read under it.

    A change may add, drop or rename columns, change a default, or make a column nullable. ``SchemaMismatch``: it is not
    the next version; it changes the key or a type; or it adds a column for which existing rows have no value."""
    if after.version != before.version + 1:
        fact = f"schema version {after.version} does not follow version {before.version}, which is in force"
        raise SchemaMismatch(f"{fact}: read the schema again, and change that one")
    if after.key != before.key:
        raise SchemaMismatch(
            f"the key cannot change from columns {before.key!r} to {after.key!r}: create another table"
        )
    for column in after.columns:
        known = before.by_id.get(column.id)
        if known is None:
            if column.required:
                fact = f"existing rows have no value for the new column {column.name!r}"
                raise SchemaMismatch(f"{fact}: make it nullable, or give it a default")
        elif known.type != column.type:
            raise SchemaMismatch(
                f"column {known.name!r} cannot change its type from {known.type} to {column.type}: add another column"
            )
        elif known.nullable and not column.nullable:
            raise SchemaMismatch(f"column {known.name!r} may be null in existing rows: it must stay nullable")
