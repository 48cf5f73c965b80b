"""Reading tables with Spark: exact values, one time for all tasks, columns, and errors on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from stelae.client import Client, Table, to_datetime
from stelae.spark import read_table

NAN = float("nan")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COLUMNS = [
    {"name": "id", "type": "int64"},
    {"name": "station", "type": "string"},
    *(
        {"name": name, "type": kind, "nullable": True}
        for name, kind in {
            "b": "bool",
            "i8": "int8",
            "i16": "int16",
            "i32": "int32",
            "f": "float",
            "d": "double",
            "price": "decimal(38,10)",
            "note": "string",
            "bin": "binary",
            "day": "date",
            "at": "timestamp",
        }.items()
    ),
]
ROWS: list[dict[str, Any]] = [
    {"id": 1, "station": "nulls"},
    {
        "id": 2,
        "station": "greatest",
        "b": True,
        "i8": 127,
        "i16": 32767,
        "i32": 2**31 - 1,
        "f": float("inf"),
        "d": NAN,
        "price": Decimal("9999999999999999999999999999.9999999999"),
        "note": "\U0001f300\0end",
        "bin": b"\xff\0\xff",
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999),
    },
    {
        "id": -(2**63),
        "station": "least",
        "b": False,
        "i8": -128,
        "i16": -32768,
        "i32": -(2**31),
        "f": -0.0,
        "d": -1.7976931348623157e308,
        "price": Decimal("-9999999999999999999999999999.9999999999"),
        "note": "",
        "bin": b"",
        "day": date(1, 1, 1),
        "at": datetime(1, 1, 1),
    },
    {
        "id": 2**63 - 1,
        "station": "Bergen",
        "f": 0.1,
        "d": 5e-324,
        "price": Decimal("0.0000000001"),
        "note": 'O\'slo "x"',
        "bin": bytes(range(256)),
        "day": date(1582, 10, 10),
        "at": datetime(2026, 3, 8, 2, 30, 0, 1),  # An hour that New York skips.
    },
]


@pytest.fixture(scope="module")
def edges(client: Client) -> Table:
    """A table of three tablets with a row for each edge."""
    partition = {"hash": [{"columns": ["id"], "buckets": 3}]}
    table = client.create_table("edges", COLUMNS, "id", partition=partition)
    table.insert(ROWS)
    return table


@pytest.fixture
def load(spark: SparkSession, masters: str) -> Callable[..., DataFrame]:
    """Loads a table with options, as in the documentation."""

    def load(table: str, **options: str) -> DataFrame:
        return spark.read.format("stelae").options(masters=masters, table=table, **options).load()

    return load


def test_a_plain_session_reads_every_value_exactly(load: Callable[..., DataFrame], edges: Table) -> None:
    found = load("edges").toArrow().sort_by("id")
    expected = edges.scan(order="key").to_arrow()
    times = expected.column("at").cast(pa.timestamp("us", tz="UTC"))
    expected = expected.set_column(expected.schema.get_field_index("at"), "at", times)
    for name in expected.column_names:
        # Equal but for the zone in which Spark shows times; repr tells zeros, and finds NaN equal.
        column = found.column(name).cast(expected.schema.field(name).type)
        assert repr(column.to_pylist()) == repr(expected.column(name).to_pylist()), name


def test_times_without_a_zone_are_those_of_the_table(spark: SparkSession, masters: str, edges: Table) -> None:
    reader = spark.read.format("stelae").options(masters=masters, table="edges").schema("at timestamp_ntz, id bigint")
    found = {row.id: row.at for row in reader.load().collect()}
    assert found == {row["id"]: row.get("at") for row in ROWS}


def test_an_empty_table_and_a_query_that_prunes_every_tablet_give_no_rows(
    load: Callable[..., DataFrame], client: Client, edges: Table
) -> None:
    ranges = {"range": {"columns": ["id"], "ranges": [{"from": 0, "until": 10}]}}
    client.create_table("empty", {"id": "int64", "note": "string"}, "id", partition=ranges)
    assert load("empty").collect() == []
    assert load("empty").where("id = 50").collect() == []
    assert load("empty").columns == ["id", "note"]


def test_columns_are_read_in_the_order_of_the_option(load: Callable[..., DataFrame], edges: Table) -> None:
    frame = load("edges", columns="station,id")
    assert [f.simpleString() for f in frame.schema.fields] == ["station:string", "id:bigint"]
    assert not any(field.nullable for field in frame.schema.fields)
    assert {tuple(row) for row in frame.collect()} == {(row["station"], row["id"]) for row in ROWS}


def test_the_plan_of_a_query_shows_the_columns_that_the_load_reads(
    spark: SparkSession, masters: str, edges: Table, load: Callable[..., DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the option or of the schema. A query of fewer columns reads them all the same."""
    schema = spark.read.format("stelae").options(masters=masters, table="edges").schema("id bigint, note string").load()
    for frame, expected in (
        (load("edges", columns="station,id").select("id"), "struct<station:string,id:bigint>"),
        (schema, "struct<id:bigint,note:string>"),
    ):
        frame.explain("formatted")
        shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ReadSchema")]
        assert shown == [f"ReadSchema: {expected}"]


def test_all_tasks_of_a_query_read_at_one_time_and_a_given_time_stays(
    load: Callable[..., DataFrame], client: Client
) -> None:
    partition = {"hash": [{"columns": ["id"], "buckets": 4}]}
    table = client.create_table("moments", {"id": "int64", "round": "int64"}, "id", partition=partition)
    written = table.upsert([(n, 1) for n in range(100)])
    frame, past = load("moments"), load("moments", timestampAsOf=str(written.timestamp))
    rows: Iterator[Any] = frame.toLocalIterator()
    first = next(rows)  # The query is planned, and one of four tasks has run.
    table.upsert([(n, 2) for n in range(100)])
    table.delete((first.id,))
    assert {row.round for row in [first, *rows]} == {1}
    assert {row.round for row in frame.collect()} == {1}, "a frame keeps the time of its first query"
    assert {row.round for row in load("moments").collect()} == {2}
    as_text = to_datetime(written.timestamp).isoformat()
    assert past.count() == load("moments", timestampAsOf=as_text).count() == 100


def test_a_read_shows_what_was_acknowledged_before_it(load: Callable[..., DataFrame], client: Client) -> None:
    table = client.create_table("fresh", {"id": "int64"}, "id")
    for count in range(1, 4):
        table.insert((count,))
        assert load("fresh").count() == count


def test_a_wrong_option_and_a_missing_table_and_wrong_masters_are_errors_on_the_driver(
    spark: SparkSession, load: Callable[..., DataFrame], edges: Table
) -> None:
    with pytest.raises(AnalysisException, match="unknown option 'columnss': did you mean 'columns'"):
        load("edges", columnss="id")
    with pytest.raises(AnalysisException, match="no table 'edgs'; there are:"):
        load("edgs")
    reader = spark.read.format("stelae").options(masters="127.0.0.1:1", table="edges", timeoutSeconds="1")
    with pytest.raises(AnalysisException, match=r"cannot connect to the masters at 127.0.0.1:1: .*check the option"):
        reader.load()


def test_a_schema_that_does_not_fit_is_an_error_on_the_driver(spark: SparkSession, masters: str, edges: Table) -> None:
    reader = spark.read.format("stelae").options(masters=masters, table="edges").schema("id int")
    with pytest.raises(AnalysisException, match="'id' of table 'edges' is int64: ask for bigint, not int"):
        reader.load().collect()


def test_columns_that_differ_from_a_schema_or_a_list_of_a_view_are_an_error(
    spark: SparkSession, masters: str, edges: Table
) -> None:
    """Spark does not ask a source for its columns then, and the option was ignored."""
    reader = spark.read.format("stelae").options(masters=masters, table="edges", columns="id,station")
    with pytest.raises(AnalysisException, match="'columns' is id,station, and the schema has id: leave out 'columns'"):
        reader.schema("id bigint").load().collect()
    given = f"masters '{masters}', table 'edges', columns 'stations'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW listed (station STRING) USING stelae OPTIONS ({given})")
    with pytest.raises(AnalysisException, match="no column 'stations'"):
        spark.sql("SELECT * FROM listed").collect()


def test_the_function_reads_columns_and_rows_as_its_arguments_say(
    spark: SparkSession, masters: str, edges: Table
) -> None:
    at = to_datetime(edges.now())
    where = [("day", ">=", date(1582, 10, 10)), ("at", "<", datetime(2026, 3, 8, 2, 30, 0, 2, UTC))]
    frame = read_table(spark, masters.split(","), "edges", columns=["station"], where=where, at=at)
    assert [tuple(row) for row in frame.collect()] == [("Bergen",)]
    price = read_table(spark, masters, "edges", columns=["id"], where=("price", "=", Decimal("0.0000000001")))
    assert [row.id for row in price.collect()] == [2**63 - 1]
    raw = read_table(spark, masters, "edges", columns=["id"], where=("bin", "in", [b"\xff\0\xff", b"x"]))
    assert [row.id for row in raw.collect()] == [2]


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_conditions_of_a_query_are_judged_as_spark_does_whatever_its_setting_and_do_not_narrow_other_queries(
    spark: SparkSession, load: Callable[..., DataFrame], edges: Table, enabled: str
) -> None:
    spark.conf.set(PUSHDOWN, enabled)
    try:
        frame = load("edges")
        assert {row.id for row in frame.where("d > 1").collect()} == {2}, "in Spark, NaN is above all numbers"
        assert frame.count() == len(ROWS)
        parts = frame.where("id = 1").union(frame.where("id = 2"))
        assert sorted(row.id for row in parts.collect()) == [1, 2]
        filtered = load("edges", where='[["d", "<=", 1.0], ["note", "!=", ""]]')
        assert [row.id for row in filtered.collect()] == [2**63 - 1]
    finally:
        spark.conf.unset(PUSHDOWN)
