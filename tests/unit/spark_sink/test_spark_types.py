"""Types: every column type has one Spark type, and what no table stores is refused with the way round."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, data_type
from stelae_spark_sink.spark_types import (
    UnsupportedSparkType,
    checked_fields,
    column_type,
    column_types,
    spark_schema,
    spark_type,
)

TYPES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "decimal(1,0)": "decimal(1,0)",
    "decimal(38,38)": "decimal(38,38)",
    "decimal(12,2)": "decimal(12,2)",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
}


@pytest.mark.parametrize(("stored", "shown"), TYPES.items())
def test_a_column_type_becomes_one_spark_type_and_the_same_again(stored: str, shown: str) -> None:
    kind = spark_type(data_type(stored))
    assert kind.simpleString() == shown
    assert column_type(t.StructField("x", kind)) == stored


def test_the_schema_of_a_table_keeps_names_order_and_nulls() -> None:
    columns = [Column(id=3, name="b", type="int64"), Column(id=1, name="a", type="string", nullable=True)]
    assert spark_schema(columns) == t.StructType(
        [t.StructField("b", t.LongType(), False), t.StructField("a", t.StringType(), True)]
    )


@pytest.mark.parametrize(
    ("kind", "stored"), [(t.TimestampNTZType(), "timestamp"), (t.CharType(3), "string"), (t.VarcharType(9), "string")]
)
def test_other_types_of_a_frame_have_a_column_type_too(kind: t.DataType, stored: str) -> None:
    assert column_types(t.StructType([t.StructField("x", kind)])) == {"x": stored}


@pytest.mark.parametrize(
    ("kind", "shown", "way"),
    [
        (t.ArrayType(t.LongType()), "array<bigint>", "to_json(x)"),
        (t.MapType(t.StringType(), t.LongType()), "map<string,bigint>", "to_json(x)"),
        (t.StructType([t.StructField("y", t.LongType())]), "struct<y:bigint>", "to_json(x)"),
        (t.VariantType(), "variant", "to_json(x)"),
        (t.NullType(), "void", "cast(x as string)"),
        (t.DayTimeIntervalType(), "interval day to second", "cast(x as string)"),
        (t.YearMonthIntervalType(), "interval year to month", "extract(... from x)"),
        (t.TimeType(6), "time(6)", "cast(x as string)"),
        (t.StringType("UTF8_LCASE"), "string collate UTF8_LCASE", "x collate UTF8_BINARY"),
        (t.CalendarIntervalType(), "interval", "leave the column out"),
        (t.DecimalType(5, -2), "decimal(5,-2)", "cast(x as decimal(38,0))"),
    ],
)
def test_a_type_that_no_table_stores_is_refused_by_column_with_the_way_round(
    kind: t.DataType, shown: str, way: str
) -> None:
    with pytest.raises(UnsupportedSparkType) as refused:
        column_type(t.StructField("x", kind))
    assert f"column 'x' is {shown}" in str(refused.value)
    assert way in str(refused.value)


def test_a_name_that_is_no_identifier_is_quoted_in_the_way_round() -> None:
    with pytest.raises(UnsupportedSparkType, match=r"cast\(`a ``b``` as string\)"):
        column_type(t.StructField("a `b`", t.NullType()))


COLUMNS = {
    column.name: column
    for column in (
        Column(id=1, name="id", type="int64"),
        Column(id=2, name="at", type="timestamp", nullable=True),
        Column(id=3, name="price", type="decimal(12,2)", nullable=True),
    )
}


def test_a_schema_of_the_user_chooses_columns_and_the_form_of_times() -> None:
    asked = t.StructType().add("at", t.TimestampNTZType()).add("id", t.LongType())
    assert checked_fields(COLUMNS, asked, "readings") == ["at", "id"]
    assert checked_fields(COLUMNS, spark_schema([*COLUMNS.values()]), "readings") == ["id", "at", "price"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (t.StructType().add("ID", t.LongType()), "no column 'ID'.*did you mean 'id'"),
        (t.StructType().add("nothing", t.LongType()), "no column 'nothing'; it has: id, at, price$"),
        (t.StructType().add("id", t.IntegerType()), "'id' of table 'readings' is int64: ask for bigint, not int"),
        (t.StructType().add("at", t.DateType()), "ask for timestamp or timestamp_ntz, not date"),
        (t.StructType().add("price", t.DecimalType(12, 3)), r"ask for decimal\(12,2\), not decimal\(12,3\)"),
        (t.StructType().add("at", t.TimestampType(), False), "'at' of table 'readings' may be null"),
    ],
)
def test_a_schema_of_the_user_that_does_not_fit_is_refused(asked: t.StructType, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        checked_fields(COLUMNS, asked, "readings")


def test_spark_expects_the_arrow_types_of_the_table_but_for_the_zone_of_times() -> None:
    columns = [Column(id=n, name=stored, type=stored) for n, stored in enumerate(TYPES, 1)]
    expected = to_arrow_schema(spark_schema(columns), timezone="UTC")
    differing = [c.name for c, field in zip(columns, expected, strict=True) if c.data_type.arrow() != field.type]
    assert differing == ["timestamp"]
