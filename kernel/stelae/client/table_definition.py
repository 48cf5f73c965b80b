"""Converts a caller's description of a new table into the request that creates it, and defaults and ranges likewise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from stelae.client.arguments import BadArgument, flag, text
from stelae.client.column_types import columns_of
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain, plain_value
from stelae.partition.schema import BadPartitioning, KeyRange, PartitionSchema
from stelae.protocol.master_messages import AddColumn, AlterStep, CreateTable, RenameColumn, SetDefault
from stelae.rows.limits import HIGHEST
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, Schema

Columns: TypeAlias = Mapping[str, str] | Sequence[Mapping[str, Any]] | Any
"""The columns of a new table, in one of three forms:

- ``{"id": "int64", "name": "string"}``: all columns but those of the key may be null.
- ``[{"name": "id", "type": "int64"}, {"name": "note", "type": "string", "nullable": True, "default": "-"}]``: a column
  may be null only if it says so.
- A frame (pandas, polars, pyarrow) or a ``pyarrow.Schema`` with such columns. The rows of a frame are not written."""


def definition(
    name: str, columns: Columns, key: str | Sequence[str], partition: Mapping[str, Any] | None, replicas: int
) -> CreateTable:
    """Return the request that creates a table.

    Args:
        name: name of the table.
        columns: see :data:`Columns`.
        key: name or names of the key columns, in key order.
        partition: as in ``stelae.partition.plain_partitioning``, for example
            ``{"hash": [{"columns": ["id"], "buckets": 4}]}``; ``None``: one tablet.
        replicas: number of replicas of each tablet; odd.

    Raises:
        SchemaMismatch: a column or the key is not possible.
        BadPartitioning: the partitioning is not possible, or does not fit the key.
    """
    if not isinstance(key, str | Sequence):
        raise SchemaMismatch(f"a key must be the name of a column, or a list of names, not {key!r:.80}")
    names = [key] if isinstance(key, str) else list(key)
    if not names:
        raise SchemaMismatch("a table needs a key: name one or more of its columns")
    if not isinstance(columns, Mapping | list | tuple):
        columns = columns_of(columns)
    if isinstance(columns, Mapping):
        columns = [{"name": one, "type": kind, "nullable": one not in names} for one, kind in columns.items()]
    for one in columns:
        if not isinstance(one, Mapping):
            raise SchemaMismatch(f'a column must be a dict such as {{"name": "id", "type": "int64"}}, not {one!r:.80}')
        _check_fields(one)
    columns = [{**one, "default": plain_default(str(one["type"]), one.get("default"))} for one in columns]
    unknown = [one for one in names if one not in [column.get("name") for column in columns]]
    if unknown:
        known = ", ".join(str(column.get("name")) for column in columns)
        raise SchemaMismatch(f"the key names {unknown[0]!r}, which is not a column; the columns are: {known}")
    schema = schema_from_plain({"columns": list(columns), "key": names})
    HIGHEST.check_schema(schema)
    scheme = partition_schema_from_plain(schema, partition or {})
    Partitioning(schema, scheme)
    return CreateTable(
        name=name, schema=schema.to_bytes(), partition_schema=scheme.to_bytes(), replication_factor=replicas
    )


def plain_default(kind: str, value: Any) -> Any:
    """Return the default of a column as a schema stores it: decimals are text, dates and times are numbers."""
    try:
        plain = plain_value(Column(id=1, name="default", type=kind), value)
    except SchemaMismatch:
        return value  # The type is unknown, or the value does not fit. Building the schema raises the error.
    return str(plain) if kind.startswith("decimal") and type(plain) in (int, Decimal) else plain


def plain_defaults(schema: Schema, steps: Sequence[AlterStep]) -> tuple[AlterStep, ...]:
    """Return the steps of an alteration with their defaults as a schema stores them."""
    kinds = {column.name: column.type for column in schema.columns}
    found = []
    for step in steps:
        if isinstance(step, AddColumn):
            kinds[step.name] = step.type
        elif isinstance(step, RenameColumn):
            kinds[step.to] = kinds.get(step.name, "")
        if isinstance(step, AddColumn | SetDefault):
            step = msgspec.structs.replace(step, default=plain_default(kinds.get(step.name, ""), step.default))
        found.append(step)
    return tuple(found)


def _check_fields(column: Mapping[str, Any]) -> None:
    """Check the types of the fields of a column's description; ``SchemaMismatch``: one is wrong."""
    try:
        name = text("the name of a column", column.get("name"))
        text(f"the type of column {name!r}", column.get("type"))
        flag(f"nullable of column {name!r}", column.get("nullable", False))
    except BadArgument as error:
        raise SchemaMismatch(str(error)) from None


def range_of(schema: Schema, scheme: PartitionSchema, lower: Any = None, upper: Any = None) -> KeyRange:
    """Return the range of keys from ``lower`` to before ``upper``, for ``AddRange`` and ``DropRange``.

    Args:
        schema: of the table.
        scheme: of the table; it has the range columns.
        lower: one value, or a list with one value for each range column; ``None``: from the least key.
        upper: the same, exclusive; ``None``: to the greatest key.

    Raises:
        BadPartitioning: the table has no ranges, or a bound does not fit.
    """
    if not scheme.range_columns:
        raise BadPartitioning("the table has no range columns, so ranges cannot be added or dropped")
    ends = {"from": lower, "until": upper}
    names = [schema.by_id[column_id].name for column_id in scheme.range_columns]
    given = {end: value for end, value in ends.items() if value is not None}
    return partition_schema_from_plain(schema, {"range": {"columns": names, "ranges": [given]}}).ranges[0]
