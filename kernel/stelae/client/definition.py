"""What a new table looks like, as people say it."""

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
"""``{"id": "int64", "name": "string"}``, where all but the key may be empty; or ``[{"name": "id", "type": "int64"},
{"name": "note", "type": "string", "nullable": True, "default": "-"}]``, where nothing may unless it is said; or a frame
(pandas, polars, pyarrow) or a ``pyarrow.Schema`` that has such columns. A frame's rows are not written."""


def definition(
    name: str, columns: Columns, key: str | Sequence[str], partition: Mapping[str, Any] | None, replicas: int
) -> CreateTable:
    """Return the request that creates a table.

    Args:
        name: of the table.
        columns: see :data:`Columns`.
        key: name or names of the key columns, in key order.
        partition: as in ``stelae.partition.plain_partitioning``, for example
            ``{"hash": [{"columns": ["id"], "buckets": 4}]}``; without it the table has one tablet.
        replicas: of each tablet; an odd number.

    Raises:
        SchemaMismatch: a column or the key is not possible.
        BadPartitioning: the partitioning is not possible, or does not fit the key.
    """
    if not isinstance(key, str | Sequence):
        raise SchemaMismatch(f"a key is the name of a column, or a list of them, not {key!r:.80}")
    names = [key] if isinstance(key, str) else list(key)
    if not names:
        raise SchemaMismatch("a table needs a key: name one or more of its columns")
    if not isinstance(columns, Mapping | list | tuple):
        columns = columns_of(columns)
    if isinstance(columns, Mapping):
        columns = [{"name": one, "type": kind, "nullable": one not in names} for one, kind in columns.items()]
    for one in columns:
        if not isinstance(one, Mapping):
            raise SchemaMismatch(f'a column is a dict such as {{"name": "id", "type": "int64"}}, not {one!r:.80}')
        _check_fields(one)
    columns = [{**one, "default": plain_default(str(one["type"]), one.get("default"))} for one in columns]
    unknown = [one for one in names if one not in [column.get("name") for column in columns]]
    if unknown:
        known = ", ".join(str(column.get("name")) for column in columns)
        raise SchemaMismatch(f"the key names {unknown[0]!r}, which is no column; there are: {known}")
    schema = schema_from_plain({"columns": list(columns), "key": names})
    HIGHEST.check_schema(schema)
    scheme = partition_schema_from_plain(schema, partition or {})
    Partitioning(schema, scheme)
    return CreateTable(
        name=name, schema=schema.to_bytes(), partition_schema=scheme.to_bytes(), replication_factor=replicas
    )


def plain_default(kind: str, value: Any) -> Any:
    """Return a default as schemas have it: a number, text, bytes, a decimal as text, a date or a time as a number."""
    try:
        plain = plain_value(Column(id=1, name="default", type=kind), value)
    except SchemaMismatch:
        return value  # Of a type that there is not, which whoever makes the schema says.
    return str(plain) if kind.startswith("decimal") and type(plain) in (int, Decimal) else plain


def plain_defaults(schema: Schema, steps: Sequence[AlterStep]) -> tuple[AlterStep, ...]:
    """Return the steps of an alteration of a table with defaults as schemas have them."""
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
    """``SchemaMismatch``: a part of a column is of a wrong type."""
    try:
        name = text("the name of a column", column.get("name"))
        text(f"the type of column {name!r}", column.get("type"))
        flag(f"nullable of column {name!r}", column.get("nullable", False))
    except BadArgument as error:
        raise SchemaMismatch(str(error)) from None


def range_of(schema: Schema, scheme: PartitionSchema, lower: Any = None, upper: Any = None) -> KeyRange:
    """Return the range of keys from ``lower`` to before ``upper``, as ``AddRange`` and ``DropRange`` want it.

    Args:
        schema: of the table.
        scheme: of the table; it says which columns have ranges.
        lower: one value, or a list of one for each range column; ``None``: from the least.
        upper: the same; ``None``: to the greatest.

    Raises:
        BadPartitioning: the table has no ranges, or a bound does not fit.
    """
    if not scheme.range_columns:
        raise BadPartitioning("the table has no range columns: ranges cannot be added or dropped")
    ends = {"from": lower, "until": upper}
    names = [schema.by_id[column_id].name for column_id in scheme.range_columns]
    said = {end: value for end, value in ends.items() if value is not None}
    return partition_schema_from_plain(schema, {"range": {"columns": names, "ranges": [said]}}).ranges[0]
