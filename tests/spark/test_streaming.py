"""The streaming sink: each batch once, whatever is killed and when."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from stelae.client import Client, Table
from stelae.spark import create_rejects_table, read_table

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "batch", "type": "int64", "nullable": True}]
HASHED = {"hash": [{"columns": ["id"], "buckets": 3}]}


@pytest.fixture
def table(client: Client, request: pytest.FixtureRequest) -> Any:
    """An empty table of three tablets."""
    name = f"s{abs(hash(request.node.name))}"
    yield client.create_table(name, COLUMNS, "id", partition=HASHED)
    client.drop_table(name)


def add_file(folder: Path, number: int, rows: int = 100) -> None:
    """Add a file of ``rows`` rows to the input of a stream, at once."""
    lines = "".join(f'{{"id": {number * rows + n}, "batch": {number}}}\n' for n in range(rows))
    hidden = folder.parent / f"hidden-{number}"
    hidden.write_text(lines)
    hidden.rename(folder / f"{number:04}.json")


def run_stream(
    spark: SparkSession, folder: Path, checkpoint: Path, masters: str, table: Table, **options: str
) -> StreamingQuery:
    """Start a query that takes one file for each batch and ends with the last one."""
    stream = spark.readStream.schema("id bigint, batch bigint").option("maxFilesPerTrigger", 1).json(str(folder))
    writer = stream.writeStream.format("stelae").option("masters", masters).option("table", table.name)
    writer = writer.option("checkpointLocation", str(checkpoint)).options(**options).trigger(availableNow=True)
    return writer.queryName(table.name).start()


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for row in table.scan(["id"]).to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The input of a stream."""
    made = tmp_path / "input"
    made.mkdir()
    return made


def test_a_stream_writes_each_batch_and_goes_on_from_its_checkpoint(
    spark: SparkSession, masters: str, table: Table, folder: Path, tmp_path: Path
) -> None:
    for number in range(3):
        add_file(folder, number)
    for count in (3, 5):
        run_stream(spark, folder, tmp_path / "checkpoint", masters, table, operation="insert").awaitTermination(60)
        assert ids(table) == [*range(count * 100)]
        for number in range(3, 5):
            add_file(folder, number)


def forget_commit(checkpoint: Path, batch: int) -> None:
    """Take back what Spark has recorded behind a batch, as if the driver was killed before it could."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


def test_a_batch_that_was_complete_is_not_written_again(
    spark: SparkSession, masters: str, table: Table, folder: Path, tmp_path: Path
) -> None:
    """The driver was killed between the end of the writes and its own record of the batch."""
    checkpoint = tmp_path / "checkpoint"
    for number in range(2):
        add_file(folder, number)
    run_stream(spark, folder, checkpoint, masters, table).awaitTermination(60)
    table.update({"id": 150, "batch": -1})
    forget_commit(checkpoint, 1)
    add_file(folder, 2)
    run_stream(spark, folder, checkpoint, masters, table).awaitTermination(60)
    assert ids(table) == [*range(300)]
    assert table.get(150)["batch"] == -1, "what came after the batch is still there"  # type: ignore[index]


def test_a_source_with_a_name_knows_its_last_batch_over_checkpoints_and_refuses_an_earlier_one(
    spark: SparkSession, masters: str, table: Table, folder: Path, tmp_path: Path
) -> None:
    add_file(folder, 0)
    run_stream(spark, folder, tmp_path / "one", masters, table, source="feed").awaitTermination(60)
    table.update({"id": 50, "batch": -1})
    run_stream(spark, folder, tmp_path / "two", masters, table, source="feed").awaitTermination(60)
    assert table.get(50)["batch"] == -1  # type: ignore[index]
    add_file(folder, 1)
    run_stream(spark, folder, tmp_path / "one", masters, table, source="feed").awaitTermination(60)
    with pytest.raises(StreamingQueryException, match=r"batch 0 of source 'feed/stream-upsert' is not written"):
        run_stream(spark, folder, tmp_path / "three", masters, table, source="feed").awaitTermination(60)


def test_a_copied_checkpoint_whose_next_batch_has_other_rows_ends_with_an_error(
    spark: SparkSession, masters: str, table: Table, folder: Path, tmp_path: Path
) -> None:
    """Both plan a batch 1. That of the copy was skipped, and the rows of its file never arrived."""
    one, copy = tmp_path / "one", tmp_path / "copy"
    add_file(folder, 0)
    run_stream(spark, folder, one, masters, table).awaitTermination(60)
    shutil.copytree(one, copy)
    add_file(folder, 1)
    run_stream(spark, folder, one, masters, table).awaitTermination(60)
    (folder / "0001.json").unlink()
    add_file(folder, 2, rows=101)
    with pytest.raises(StreamingQueryException, match=r"batch 1 of source .* is complete .* than the 101 that"):
        run_stream(spark, folder, copy, masters, table).awaitTermination(60)
    assert ids(table) == [*range(200)]


def test_rows_that_are_refused_end_the_query_or_go_into_a_table_of_rejects(
    spark: SparkSession, masters: str, client: Client, table: Table, folder: Path, tmp_path: Path
) -> None:
    table.insert({"id": 7, "batch": -1})
    add_file(folder, 0)
    query = run_stream(spark, folder, tmp_path / "checkpoint", masters, table, operation="insert")
    with pytest.raises(StreamingQueryException, match="99 of 100 rows are written"):
        query.awaitTermination(60)
    create_rejects_table(masters, "streamrejects", replicas=1)
    options = {"operation": "insert", "failOnRowErrors": "false", "rejectsTable": "streamrejects"}
    run_stream(spark, folder, tmp_path / "checkpoint", masters, table, **options).awaitTermination(60)
    assert ids(table) == [*range(100)] and table.get(7)["batch"] == -1  # type: ignore[index]
    (reject,) = client.table("streamrejects").scan().to_pylist()
    assert reject["source"].startswith("spark/") and (reject["epoch"], reject["code"]) == (0, "ALREADY_PRESENT")
    rows = read_table(spark, masters, "streamrejects").selectExpr("from_json(row, 'id bigint, batch bigint') row")
    assert rows.select("row.*").collect() == [(7, 0)]


def test_complete_mode_is_refused_with_the_way_round(
    spark: SparkSession, masters: str, table: Table, folder: Path, tmp_path: Path
) -> None:
    add_file(folder, 0)
    counted = spark.readStream.schema("id bigint, batch bigint").json(str(folder)).groupBy("id").count()
    frame = counted.withColumnRenamed("count", "batch")
    writer = frame.writeStream.format("stelae").option("masters", masters).option("table", table.name)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("complete")
    with pytest.raises((AnalysisException, StreamingQueryException)) as error:
        writer.trigger(availableNow=True).start().awaitTermination(60)
    assert "outputMode('update')" in str(error.value)
