"""The columns of a change feed, as Spark asks for them."""

from __future__ import annotations

import pytest

from stelae_spark_sink import data_source
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

COLUMNS = [
    {"name": "note", "type": "string", "nullable": True},
    {"name": "id", "type": "int64"},
    {"name": "day", "type": "date"},
]
ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (None, ["note", "id", "day"]),
        ("note", ["id", "day", "note"]),
        ("note,id,_commit_version", ["day", "note", "id"]),
        ("_change_type", ["id", "day"]),
        ("_commit_timestamp,_change_type", ["id", "day"]),
    ],
)
def test_a_feed_has_the_columns_of_the_option_behind_those_of_the_key(
    make_table: MadeTable, columns: str | None, found: list[str]
) -> None:
    """Without a column of the table, the option was refused, as if it was empty."""
    make_table("readings", COLUMNS, ["id", "day"])
    options = {"masters": MASTERS, "table": "readings", "readChangeFeed": "true"}
    schema = data_source.schema(options if columns is None else {**options, "columns": columns})
    assert schema.fieldNames() == [*found, *ADDED]
