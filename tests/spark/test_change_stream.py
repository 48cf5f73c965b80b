"""The change feed in Spark: batches by DataFrame and SQL, and a stream that goes on from its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stelae.client import AddRange, Client, Table
from stelae.spark import read_changes, stream_changes

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "text", "type": "string", "nullable": True}]
RANGED = {
    "hash": [{"columns": ["id"], "buckets": 2}],
    "range": {"columns": ["id"], "ranges": [{"from": 0, "until": 100}]},
}


@pytest.fixture
def table(client: Client, request: pytest.FixtureRequest) -> Any:
    """A table of two tablets with ten rows."""
    name = f"changes{abs(hash(request.node.name))}"
    made = client.create_table(name, COLUMNS, "id", partition=RANGED)
    made.insert([(n, "first") for n in range(10)])
    yield made
    client.drop_table(name)


def run_feed(spark: SparkSession, masters: str, table: Table, folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Run a query that writes the feed to files until it has all changes; return its progress, batch by batch."""
    query = (
        stream_changes(spark, masters, table.name, **options)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination(60)
    return [json.loads(one.json) for one in query.recentProgress]


def replayed(spark: SparkSession, folder: Path) -> dict[int, Any]:
    """The table that the changes in the files make, in the order of their times."""
    rows: dict[int, Any] = {}
    found = spark.read.parquet(str(folder / "rows")).collect()
    assert len({(row.id, row._commit_version) for row in found}) == len(found)
    for row in sorted(found, key=lambda row: row._commit_version):
        rows[row.id] = None if row._change_type == "delete" else row.text
    return {key: text for key, text in rows.items() if text is not None}


def contents(table: Table) -> dict[int, Any]:
    return {row["id"]: row["text"] for row in table.scan().to_pylist()}


def test_a_stream_has_the_rows_and_then_the_changes_over_restarts_and_a_range_that_is_added(
    spark: SparkSession, masters: str, client: Client, table: Table, tmp_path: Path
) -> None:
    run_feed(spark, masters, table, tmp_path)
    assert replayed(spark, tmp_path) == contents(table)
    table.upsert([(n, "second") for n in range(0, 10, 2)])
    table.delete([(1,), (3,)])
    client.alter_table(table.name, AddRange(range=table.key_range(100, 200))).insert(
        [(n, "new") for n in range(150, 156)]
    )
    progress = run_feed(spark, masters, table, tmp_path, rows_max=6)
    assert [one["numInputRows"] for one in progress if one["numInputRows"]] == [6, 6, 1]
    assert replayed(spark, tmp_path) == contents(table)


def test_a_batch_reads_the_changes_between_two_times_in_a_view_and_with_chosen_columns(
    spark: SparkSession, masters: str, table: Table
) -> None:
    since = table.latest()
    table.update([(1, "second")])
    table.delete([(2,)])
    given = f"masters '{masters}', table '{table.name}', readChangeFeed 'true', startingTimestamp '{since}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW feed USING stelae OPTIONS ({given}, beforeImages 'true')")
    found = spark.sql("SELECT _change_type, id, text FROM feed ORDER BY id, _change_type DESC").collect()
    assert [tuple(row) for row in found] == [
        ("update_preimage", 1, "first"),
        ("update_postimage", 1, "second"),
        ("delete", 2, "first"),
    ]
    frame = read_changes(spark, masters, table.name, since=since, columns=["id"])
    rows = frame.selectExpr("_change_type", "id", "_commit_version", "unix_micros(_commit_timestamp) us").collect()
    assert sorted((row._change_type, row.id) for row in rows) == [("delete", 2), ("upsert", 1)]
    assert {row._commit_version >> 12 for row in rows} == {row.us for row in rows}
