"""Converts column types between Spark and tables. Pure: it needs no session and no JVM.

Spark infers one type for each column type, and values keep their meaning in both directions. A ``timestamp`` column
stores a time in UTC. It is Spark's ``TIMESTAMP``; a schema given by the user may ask for ``TIMESTAMP_NTZ``, which shows
the time in UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import types as t

from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, DataType

PLAIN_TYPES: Mapping[str, t.DataType] = {
    "bool": t.BooleanType(),
    "int8": t.ByteType(),
    "int16": t.ShortType(),
    "int32": t.IntegerType(),
    "int64": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
}
"""The Spark type of every column type but decimals."""

_STELAE: Mapping[type[t.DataType], str] = {
    **{type(spark): name for name, spark in PLAIN_TYPES.items()},
    t.CharType: "string",
    t.VarcharType: "string",
    t.TimestampNTZType: "timestamp",
}

_TO_TEXT = "convert it with cast({name} as string)"
_TO_UNITS = "convert it with cast({name} as string), or into numbers with extract(... from {name})"
_TO_JSON = "convert it with to_json({name}), or select its parts as columns of their own"
WAYS_ROUND: Mapping[str, str] = {
    "array": _TO_JSON,
    "map": _TO_JSON,
    "struct": _TO_JSON,
    "variant": "convert it with to_json({name})",
    "void": _TO_TEXT,
    "day-time interval": _TO_UNITS,
    "year-month interval": _TO_UNITS,
    "time": _TO_TEXT,
    "collated string": "convert it with {name} collate UTF8_BINARY",
    "other": "convert it into another type, or leave the column out",
}
"""How a column of a type that no table has can be converted, by kind of type."""

_KINDS: Mapping[type[t.DataType], str] = {
    t.ArrayType: "array",
    t.MapType: "map",
    t.StructType: "struct",
    t.VariantType: "variant",
    t.NullType: "void",
    t.DayTimeIntervalType: "day-time interval",
    t.YearMonthIntervalType: "year-month interval",
    t.TimeType: "time",
    t.StringType: "collated string",
}


class UnsupportedSparkType(SchemaMismatch, code="UNSUPPORTED_SPARK_TYPE"):
    """A column of a DataFrame has a type that no table has."""


def spark_type(kind: DataType) -> t.DataType:
    """Return the Spark type of a column type."""
    return t.DecimalType(kind.precision, kind.scale) if kind.name == "decimal" else PLAIN_TYPES[kind.name]


def spark_schema(columns: Sequence[Column]) -> t.StructType:
    """Return the Spark schema of columns."""
    return t.StructType([t.StructField(c.name, spark_type(c.data_type), c.nullable) for c in columns])


def column_type(field: t.StructField) -> str:
    """Return the column type that stores a field of a DataFrame.

    Raises:
        UnsupportedSparkType: no column type does; the message names the column and a workaround.
    """
    kind = field.dataType
    if isinstance(kind, t.DecimalType):
        if 0 <= kind.scale <= kind.precision:
            return f"decimal({kind.precision},{kind.scale})"
        raise UnsupportedSparkType(
            f"column {field.name!r} is {kind.simpleString()}; a table stores decimal(p,s) with 0 <= s <= p <= 38: "
            f"convert it with cast({quoted(field.name)} as decimal(38,0))"
        )
    is_collated = isinstance(kind, t.StringType) and not kind.isUTF8BinaryCollation()
    found = None if is_collated else _STELAE.get(type(kind))
    if found is None:
        way = WAYS_ROUND[_KINDS.get(type(kind), "other")].format(name=quoted(field.name))
        raise UnsupportedSparkType(f"column {field.name!r} is {kind.simpleString()}, which no table stores; {way}")
    return found


def column_types(schema: t.StructType) -> Mapping[str, str]:
    """Return the column types that store the rows of a DataFrame, by name; raises as :func:`column_type` does."""
    return {field.name: column_type(field) for field in schema.fields}


def checked_fields(columns: Mapping[str, Column], asked: t.StructType, table: str) -> list[str]:
    """Return the names of the columns that a schema of the user asks for.

    Args:
        columns: the columns of the table, by name.
        asked: the schema of the user, as ``spark.read.schema`` took it.
        table: name of the table, for errors.

    Raises:
        SchemaMismatch: a column is unknown, or a type is another one than that of the column.
    """
    for field in asked.fields:
        column = columns.get(field.name)
        if column is None:
            close = [name for name in columns if name.lower() == field.name.lower()]
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SchemaMismatch(f"table {table!r} has no column {field.name!r}; it has: {', '.join(columns)}{hint}")
        expected = spark_type(column.data_type)
        accepts: list[Any] = [expected, t.TimestampNTZType()] if column.type == "timestamp" else [expected]
        if field.dataType not in accepts:
            types = " or ".join(kind.simpleString() for kind in accepts)
            raise SchemaMismatch(
                f"column {field.name!r} of table {table!r} is {column.type}: ask for {types}, not "
                f"{field.dataType.simpleString()}, and convert it in the query"
            )
        if column.nullable and not field.nullable:
            raise SchemaMismatch(f"column {field.name!r} of table {table!r} may be null: leave out NOT NULL")
    return [field.name for field in asked.fields]


def quoted(name: str) -> str:
    """Return a column name as SQL has it."""
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"
