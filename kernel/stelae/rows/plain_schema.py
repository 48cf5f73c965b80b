"""Schemas as people write them: the key consists of column names, and most fields have a default."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, Schema

_FIELDS = ("id", "name", "type", "nullable", "default")


def schema_to_plain(schema: Schema) -> dict[str, Any]:
    """Return a schema in the form that :func:`schema_from_plain` reads."""
    columns = [{name: getattr(column, name) for name in _FIELDS} for column in schema.columns]
    return {"version": schema.version, "columns": columns, "key": [schema.by_id[i].name for i in schema.key]}


def schema_from_plain(plain: Mapping[str, Any]) -> Schema:
    """Build a schema from ``{"columns": [{"name", "type", ...}], "key": [names]}``.

    Defaults: ``id`` is the column's position from 1, ``nullable`` is false, ``version`` is 1. ``SchemaMismatch``: a
    field is missing, unknown or wrong."""
    try:
        given = [_column(column, place) for place, column in enumerate(plain["columns"], start=1)]
        ids = {column.name: column.id for column in given}
        return Schema(int(plain.get("version", 1)), tuple(given), tuple(ids[name] for name in plain["key"]))
    except KeyError as error:
        raise SchemaMismatch(
            f"the schema has no {error}: give the columns, and a key that names some of them"
        ) from error
    except (msgspec.ValidationError, TypeError, AttributeError) as error:
        raise SchemaMismatch(f"not a schema: {error}") from error


def _column(column: Mapping[str, Any], place: int) -> Column:
    unknown = set(column) - {*_FIELDS}
    if unknown:
        raise SchemaMismatch(f"column {place} has unknown fields {sorted(unknown)!r}")
    given = {"id": place, "nullable": False, "default": None, **column}
    if any("\ud800" <= character <= "\udfff" for character in str(given.get("name"))):
        raise SchemaMismatch(f"the name of column {place}, {given['name']!r}, cannot be encoded in UTF-8")
    return msgspec.convert([given[name] for name in _FIELDS], Column)
