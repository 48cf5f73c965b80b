"""Writing tables with Spark: every kind of write, repeated tasks, row errors, overwrite, and errors on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from stelae.client import Client, Table
from stelae.protocol.master_errors import TableExists
from stelae.spark import create_table_from, read_table, upsert, write_table
from stelae.spi.errors import CallerError, SchemaMismatch

COLUMNS = [
    {"name": "id", "type": "int64"},
    {"name": "station", "type": "string", "nullable": True},
    {"name": "celsius", "type": "double", "nullable": True},
    {"name": "price", "type": "decimal(10,2)", "nullable": True},
    {"name": "at", "type": "timestamp", "nullable": True},
]
HASHED = {"hash": [{"columns": ["id"], "buckets": 3}]}
ROWS = "id bigint, station string, celsius double"
EVERY = "id bigint, station string, celsius double, price decimal(10,2), at timestamp"


@pytest.fixture
def table(client: Client, request: pytest.FixtureRequest) -> Iterator[Table]:
    """An empty table of three tablets."""
    name = f"w{abs(hash(request.node.name))}"
    yield client.create_table(name, COLUMNS, "id", partition=HASHED)
    client.drop_table(name)


@pytest.fixture(scope="module")
def unchanged(client: Client) -> Table:
    """A table of one row, for writes that are refused."""
    made = client.create_table("unchanged", COLUMNS, "id", partition=HASHED)
    made.insert({"id": 7})
    return made


Writes = Callable[..., DataFrameWriter]


def writer_of(frame: DataFrame, masters: str, table: Table, options: Mapping[str, Any]) -> DataFrameWriter:
    writer = frame.write.format("stelae").option("masters", masters).option("table", table.name)
    return writer.options(**options).mode("append")


@pytest.fixture
def writes(masters: str, table: Table) -> Writes:
    """Returns a writer of the table for a DataFrame, with options."""
    return lambda frame, **options: writer_of(frame, masters, table, options)


def rows_of(table: Table) -> dict[int, Any]:
    return {row["id"]: row["celsius"] for row in table.scan().to_pylist()}


def test_rows_arrive_exactly_as_they_are(spark: SparkSession, writes: Writes, table: Table) -> None:
    frame = spark.sql(
        "select id, concat('s', id) station, id / 3 celsius, cast(id as decimal(10,2)) / 7 price, "
        "timestamp'2026-03-08 12:30:00.000001' + make_dt_interval(0, id) at from range(0, 5000, 1, 5)"
    ).selectExpr("id", "station", "celsius", "cast(price as decimal(10,2)) price", "at")
    writes(frame).save()
    found = table.scan(order="key").to_arrow()
    expected = frame.orderBy("id").toArrow()
    assert found.num_rows == 5000
    for name in ("id", "station", "celsius", "price"):
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    assert found["at"].cast(pa.int64()).to_pylist() == expected["at"].cast(pa.int64()).to_pylist()


def test_every_kind_of_write_does_what_its_name_says(spark: SparkSession, writes: Writes, table: Table) -> None:
    def rows(*pairs: tuple[int, float]) -> DataFrame:
        return spark.createDataFrame([(n, None, celsius) for n, celsius in pairs], ROWS)

    writes(rows((1, 1.0), (2, 2.0)), operation="insert").save()
    writes(rows((2, 9.0), (3, 3.0)), operation="insert-ignore").save()
    assert rows_of(table) == {1: 1.0, 2: 2.0, 3: 3.0}
    writes(rows((2, 2.5), (4, 4.0))).save()
    writes(rows((1, 1.5)), operation="update").save()
    writes(rows((9, 9.0)), operation="update_ignore").save()
    writes(rows((3, 0.0)).select("id"), operation="delete").save()
    writes(rows((3, 0.0)).select("id"), operation="DELETE_IGNORE").save()
    assert rows_of(table) == {1: 1.5, 2: 2.5, 4: 4.0}


def test_columns_that_a_frame_lacks_keep_their_values(spark: SparkSession, writes: Writes, table: Table) -> None:
    table.insert({"id": 1, "station": "Oslo", "celsius": 1.0})
    writes(spark.createDataFrame([(2.0, 1)], "celsius double, id bigint")).save()
    assert table.get(1)["station"] == "Oslo" and table.get(1)["celsius"] == 2.0  # type: ignore[index]


def test_a_task_that_runs_again_inserts_nothing_twice(spark: SparkSession, writes: Writes, table: Table) -> None:
    """The first attempt of each task writes all of its rows, and then fails."""

    def fail_behind_the_rows(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            yield from ()
            raise OSError("the executor is lost")

    frame = spark.range(0, 400_000, 1, 4).selectExpr("id", "'s' station", "id / 7 celsius")
    writes(frame.mapInArrow(fail_behind_the_rows, ROWS), operation="insert").save()
    assert table.scan().count() == 400_000


def test_rows_that_are_refused_fail_the_job_after_all_others_are_written(
    spark: SparkSession, writes: Writes, table: Table
) -> None:
    table.insert([{"id": n, "celsius": -1.0} for n in (3, 5)])
    frame = spark.range(10).selectExpr("id", "'s' station", "id * 1.0D celsius")
    told = r"8 of 10 rows are written to table .* bytes, \d+ retries\); 2 are not"
    with pytest.raises(AnalysisException, match=told) as error:
        writes(frame, operation="insert").save()
    assert "ALREADY_PRESENT: a row with this key exists: id=3, station='s', celsius=3.0" in str(error.value)
    assert "failOnRowErrors" in str(error.value)
    assert rows_of(table) == {n: -1.0 if n in (3, 5) else n for n in range(10)}
    writes(frame, operation="insert", failOnRowErrors="false").save()


def test_a_run_that_is_complete_is_not_written_again(spark: SparkSession, writes: Writes, table: Table) -> None:
    frame = spark.range(10).selectExpr("id", "'s' station", "id * 1.0D celsius")
    writes(frame, source="nightly", epoch=4).save()
    table.update({"id": 3, "celsius": -1.0})
    writes(frame, source="nightly", epoch=4).save()
    assert rows_of(table)[3] == -1.0
    writes(frame, source="nightly", epoch=5).save()
    assert rows_of(table)[3] == 3.0


def test_overwrite_leaves_the_rows_of_the_frame_alone(spark: SparkSession, writes: Writes, table: Table) -> None:
    table.insert([{"id": n, "station": "old", "celsius": -1.0} for n in range(2000)])
    frame = spark.range(1000, 3000).selectExpr(
        "id",
        "cast(null as string) station",
        "id * 1.0D celsius",
        "cast(1 as decimal(10,2)) price",
        "timestamp'2026-06-01 12:00:00' at",
    )
    writes(frame).mode("overwrite").save()
    assert rows_of(table) == {n: float(n) for n in range(1000, 3000)}
    assert {row["station"] for row in table.scan(["station"]).to_pylist()} == {None}
    writes(frame.limit(0)).mode("overwrite").save()
    assert rows_of(table) == {}


@pytest.mark.parametrize(
    ("sql", "options", "words"),
    [
        ("select array(1) a, 1L id", {}, "column 'a' is array<int>, which no table stores; convert it with to_json"),
        ("select interval 1 day d, 1L id", {}, "column 'd' is interval day"),
        ("select 1L id, 1 stations", {}, "stations"),
        ("select 's' station", {}, "id"),
        ("select 1L id, 'x' celsius", {}, "column 'celsius': expected double"),
        ("select 1L id", {"operation": "merge"}, "option 'operation' is 'merge'; expected one of insert, upsert"),
        ("select 1L id", {"operatoin": "insert"}, "did you mean 'operation'"),
        ("select 1L id", {"source": "a"}, "set 'epoch', too"),
        ("select 1L id", {"epoch": "-1", "source": "a"}, "an integer from 0"),
        ("select 1L id", {"columns": "id"}, "applies to read and readStream, not to write"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_task_runs(
    spark: SparkSession, masters: str, unchanged: Table, sql: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises((AnalysisException, PythonException)) as error:
        writer_of(spark.sql(sql), masters, unchanged, options).save()
    assert words in str(error.value)
    assert [row["id"] for row in unchanged.scan().to_pylist()] == [7]


@pytest.mark.parametrize(
    ("sql", "options", "words"),
    [
        ("select 1L id", {}, "has no column station, celsius, price, at; add it"),
        ("select 1L id", {"operation": "insert"}, "does not apply to overwrite"),
    ],
)
def test_what_overwrite_cannot_do_is_refused(
    spark: SparkSession, masters: str, unchanged: Table, sql: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises((AnalysisException, PythonException)) as error:
        writer_of(spark.sql(sql), masters, unchanged, options).mode("overwrite").save()
    assert words in str(error.value)
    assert [row["id"] for row in unchanged.scan().to_pylist()] == [7]


def test_sql_inserts_through_a_view(spark: SparkSession, masters: str, table: Table) -> None:
    spark.sql(f"create temporary view sink using stelae options (masters '{masters}', table '{table.name}')")
    try:
        spark.sql("insert into sink select id, 's', id * 1.0D, cast(null as decimal(10,2)), null from range(5)")
        assert rows_of(table) == {n: float(n) for n in range(5)}
        spark.sql("insert overwrite sink select 9L, 's', 1.0D, cast(null as decimal(10,2)), null")
        assert rows_of(table) == {9: 1.0}
    finally:
        spark.catalog.dropTempView("sink")


def test_a_table_is_created_from_a_frame_and_written_with_functions(
    spark: SparkSession, masters: str, client: Client
) -> None:
    frame = spark.range(100).selectExpr(
        "id", "concat('s', id % 3) station", "cast(id as decimal(12,3)) price", "timestamp'2026-06-01 12:00:00' at"
    )
    create_table_from(
        frame, masters, "made", key=["station", "id"], partition={"hash": [{"columns": ["id"], "buckets": 2}]}
    )
    try:
        upsert(frame, masters, "made", source="functions", epoch=1)
        table = client.table("made")
        assert list(table.key) == ["station", "id"]
        assert dict(table.columns) == {"id": "int64", "station": "string", "price": "decimal(12,3)", "at": "timestamp"}
        assert read_table(spark, masters, "made").exceptAll(frame).count() == 0
        write_table(frame.limit(10), masters.split(","), "made", overwrite=True)
        assert table.scan().count() == 10
        with pytest.raises(TableExists):
            create_table_from(frame, masters, "made", key="id")
        with pytest.raises(SchemaMismatch, match="no key column 'ids'; it has: id, station, price, at"):
            create_table_from(frame, masters, "other", key="ids")
        with pytest.raises(CallerError, match="leave out operation='insert'"):
            write_table(frame, masters, "made", operation="insert", overwrite=True)
    finally:
        client.drop_table("made")
