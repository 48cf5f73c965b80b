"""The option ``columns`` beside a schema of the user. Spark does not ask the source for its columns then."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

from stelae.spi.errors import SchemaMismatch
from stelae_spark_sink import data_source
from stelae_spark_sink.options import BadOption
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

COLUMNS = [
    {"name": "note", "type": "string", "nullable": True},
    {"name": "id", "type": "int64"},
    {"name": "day", "type": "date"},
]
TYPES = {"id": LongType(), "day": DateType(), "_commit_version": LongType()}
FEED = {"readChangeFeed": "true", "startingTimestamp": "2026-06-01T00:00:00Z"}


def read(make_table: MadeTable, columns: str, asked: str, *, feed: bool) -> None:
    """Make the readers, as Spark does after ``option("columns", columns).schema(asked)``."""
    make_table("readings", COLUMNS, ["id", "day"])
    given = {"masters": MASTERS, "table": "readings", "columns": columns, **(FEED if feed else {})}
    schema = StructType([StructField(name, TYPES.get(name, StringType())) for name in asked.split(",")])
    data_source.reader(given, schema)
    if feed:
        data_source.stream_reader(given, schema)


@pytest.mark.parametrize(
    ("columns", "asked", "feed"),
    [
        ("note,id", "id", False),
        ("note,id", "id,note", False),
        ("note", "note,id,day", False),
        ("note", "id", False),
        ("note,id", "id", True),
        ("note,id", "id,note", True),
        ("id", "id,note", True),
        ("note", "id,_change_type", True),
    ],
)
def test_columns_that_differ_from_the_schema_of_the_user_are_refused(
    make_table: MadeTable, columns: str, asked: str, feed: bool
) -> None:
    """The option was ignored."""
    with pytest.raises(BadOption, match=f"option 'columns' is {columns}, and the schema has {asked}: leave out"):
        read(make_table, columns, asked, feed=feed)


@pytest.mark.parametrize("feed", [False, True])
def test_an_unknown_column_is_refused_beside_a_schema_of_the_user(make_table: MadeTable, feed: bool) -> None:
    with pytest.raises(SchemaMismatch, match=r"no column 'notes'; .* did you mean 'note'"):
        read(make_table, "notes,id", "note,id", feed=feed)


@pytest.mark.parametrize(
    ("columns", "asked", "feed"),
    [
        ("note,id", "note,id", False),
        ("note", "note", True),
        ("note", "id,day,note,_change_type", True),
        ("note,_change_type", "_commit_version,note", True),
        ("_change_type", "id,_change_type", True),
        ("day,note,id", "_change_type,day,note,id", True),
    ],
)
def test_columns_of_the_schema_of_the_user_are_accepted(
    make_table: MadeTable, columns: str, asked: str, feed: bool
) -> None:
    read(make_table, columns, asked, feed=feed)
